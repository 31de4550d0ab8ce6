package flow_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
)

func kindOf(err error) string {
	if _, ok := errors.AsType[*flow.Throttled](err); ok {
		return "throttled"
	}
	if _, ok := errors.AsType[*flow.Rejected](err); ok {
		return "rejected"
	}
	if _, ok := errors.AsType[*flow.Misconfigured](err); ok {
		return "misconfigured"
	}
	if err != nil {
		return "retryable"
	}
	return "delivered"
}

func TestHTTPOutcome(t *testing.T) {
	want := map[int]string{
		200: "delivered", 201: "delivered", 204: "delivered", 206: "delivered",
		301: "misconfigured", 304: "misconfigured",
		400: "rejected", 401: "misconfigured", 403: "misconfigured", 404: "misconfigured",
		405: "misconfigured",
		407: "misconfigured", 408: "retryable", 409: "misconfigured", 413: "rejected",
		415: "misconfigured", 422: "rejected",
		425: "retryable", 429: "throttled",
		500: "retryable", 501: "retryable", 502: "retryable", 503: "retryable", 504: "retryable",
		529: "retryable",
		600: "misconfigured",
	}
	for code, want := range want {
		if got := kindOf(flow.HTTPOutcome(&http.Response{StatusCode: code})); got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
}

func TestHTTPOutcomeReadsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fake clock, at midnight UTC 2000-01-01
		for value, want := range map[string]time.Duration{
			"": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "3600": time.Hour,
			"86400":                time.Hour,
			"99999999999999999999": time.Hour, "-3": 0, "soon": 0, "1.5": 1500 * time.Millisecond,
			time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
			time.Now().Add(20 * time.Second).UTC().Format(time.ANSIC):      20 * time.Second,
			time.Now().Add(48 * time.Hour).UTC().Format(http.TimeFormat):   time.Hour,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):       0,
		} {
			for _, code := range []int{429, 503} {
				resp := &http.Response{StatusCode: code,
					Header: http.Header{"Retry-After": {value}}}
				throttled, ok := errors.AsType[*flow.Throttled](flow.HTTPOutcome(resp))
				if wantOK := code == 429 || value != ""; ok != wantOK || ok &&
					throttled.After != want {
					t.Errorf("%d with %q: %+v", code, value, throttled)
				}
			}
		}
	})
}

// TestHTTPOutcomeNamesTheRequest checks that the error names the request, without the password in
// its URL.
func TestHTTPOutcomeNamesTheRequest(t *testing.T) {
	at, err := url.Parse("http://user:secret@host:80/path?q=1")
	if err != nil {
		t.Fatal(err)
	}
	got := flow.HTTPOutcome(&http.Response{StatusCode: 404,
		Request: &http.Request{Method: "POST", URL: at}}).Error()
	if got != "misconfigured: POST http://user:xxxxx@host:80/path?q=1: 404 Not Found" {
		t.Error(got)
	}
}

// TestThrottledText checks the error text of a *Throttled that has no cause or states no time.
func TestThrottledText(t *testing.T) {
	full := errors.New("queue full")
	for _, c := range []struct {
		err  flow.Throttled
		want string
	}{
		{flow.Throttled{After: time.Second}, "throttled for 1s"},
		{flow.Throttled{After: time.Second, Err: full}, "throttled for 1s: queue full"},
		{flow.Throttled{Err: full}, "throttled: queue full"},
		{flow.Throttled{}, "throttled"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestZeroReceiver checks that the zero Receiver serves as many requests at once as there are
// threads, and that further requests wait.
func TestZeroReceiver(t *testing.T) {
	old := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(old)
	synctest.Test(t, func(t *testing.T) {
		var r flow.Receiver
		var mu sync.Mutex
		running, most := 0, 0
		handler := r.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
		}))
		start := time.Now()
		var all sync.WaitGroup
		for range 9 {
			all.Go(func() {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil))
				if report, ok := flow.ParseGrant(answer.Header().Get(flow.CreditHeader)); !ok ||
					!report.Batches || report.Slots != 3 {
					t.Errorf("advertises %+v", report)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); most != 3 || took != 3*time.Second {
			t.Errorf("%d at once, %v in all; want 3 and 3s", most, took)
		}
	})
}

func TestLogTo(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}}))
	cause := errors.New("no")
	hook := flow.LogTo[int](log)
	for _, f := range []flow.Failure{
		{Lane: "a", Number: 1, Outcome: control.Throttled,
			Err: &flow.Throttled{After: time.Second, Err: cause}},
		{Lane: "a", Number: 2, Outcome: control.Rejected, Err: &flow.Rejected{Err: cause}},
		{Lane: "a", Number: 3, Outcome: control.Misconfigured,
			Err: &flow.Misconfigured{Err: cause}},
		{Lane: "b", Number: 4, Outcome: control.Retryable, Died: true, Err: &flow.Died{Err: cause}},
		{Lane: "b", Number: 5, Outcome: control.Split,
			Err: &flow.Split[int]{Done: make([]flow.Item[int], 2), Err: cause}},
		{Lane: "b", Number: 6, Outcome: control.TimedOut,
			Err: &flow.PanicError{Where: "w", Value: cause, Stack: []byte("main.go:1")}},
	} {
		hook(t.Context(), flow.Item[int]{}, f)
	}
	want := `level=DEBUG msg="attempt failed" lane=a attempt=1 outcome=throttled err.msg="throttled for 1s: no" err.after=1s
level=WARN msg="attempt failed" lane=a attempt=2 outcome=rejected err.msg="rejected: no"
level=ERROR msg="attempt failed" lane=a attempt=3 outcome=misconfigured err.msg="misconfigured: no"
level=WARN msg="attempt failed" lane=b attempt=4 outcome=retryable died=true ` +
		`err.msg="the worker died: no"
level=WARN msg="attempt failed" lane=b attempt=5 outcome=split ` +
		`err.msg="settled in part (2 delivered, 0 to be sent again, 0 refused): no" err.delivered=2 err.rest=0 err.refused=0
level=WARN msg="attempt failed" lane=b attempt=6 outcome="timed out" err.msg="w: panic: no" err.stack=main.go:1
`
	if got := buf.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if strings.Contains(buf.String(), "unknown") {
		t.Error("an outcome has no name")
	}
}
