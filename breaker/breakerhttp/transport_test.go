package breakerhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/breaker/breakerhttp"
)

func Example() {
	client := &http.Client{Transport: &breakerhttp.Transport{Options: breaker.Options{Failures: 2}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(503)
	}))
	defer server.Close()

	for range 3 {
		resp, err := client.Get(server.URL)
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println("not sent, the next probe is due soon:", open.Wait > 0)
			continue
		}
		fmt.Println(resp.Status)
		resp.Body.Close()
	}
	// Output:
	// 503 Service Unavailable
	// 503 Service Unavailable
	// not sent, the next probe is due soon: true
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func send(t *testing.T, tr http.RoundTripper, url string, body io.ReadCloser) error {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	req.Body = body
	_, err := tr.RoundTrip(req)
	return err
}

type closer struct{ closed bool }

func (c *closer) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closer) Close() error             { c.closed = true; return nil }

func TestOneHostFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		tr := &breakerhttp.Transport{
			Next: trip(func(req *http.Request) (*http.Response, error) {
				if req.URL.Host == "a" && down {
					return nil, errors.New("connection refused")
				}
				return &http.Response{StatusCode: 200}, nil
			}),
			Options: breaker.Options{Failures: 2, Wait: backoff.Fixed(time.Second)},
		}
		for range 2 {
			if err := send(t, tr, "http://a/", nil); err == nil ||
				err.Error() != "connection refused" {
				t.Fatalf("got %v, want the error of the round trip", err)
			}
		}
		body := &closer{}
		err := send(t, tr, "http://a/", body)
		if open, ok := errors.AsType[*breaker.OpenError](err); !ok || open.Wait != time.Second ||
			!body.closed {
			t.Errorf("after 2 failures: %v, body closed: %v; want a refusal for 1s and true", err,
				body.closed)
		}
		err = send(t, tr, "http://b/", nil)
		if err != nil || tr.State("b") != breaker.Closed || tr.State("c") != breaker.Closed {
			t.Errorf("another host: %v, %v, %v", err, tr.State("b"), tr.State("c"))
		}
		down = false
		time.Sleep(time.Second)
		if err := send(t, tr, "http://a/", nil); err != nil || tr.State("a") != breaker.Closed {
			t.Errorf("when it is back: %v, %v", err, tr.State("a"))
		}
	})
}

func TestSharedBreakerAndPanic(t *testing.T) {
	b, err := breaker.New(breaker.Options{Failures: 1})
	if err != nil {
		t.Fatal(err)
	}
	tr := &breakerhttp.Transport{Breaker: b,
		Next: trip(func(*http.Request) (*http.Response, error) {
			panic("oh")
		})}
	func() {
		defer func() { _ = recover() }()
		_ = send(t, tr, "http://a/", nil)
	}()
	if tr.State("b") != breaker.Open {
		t.Errorf("after a panic the breaker of all hosts is %v, want open", tr.State("b"))
	}
	broken := &breakerhttp.Transport{Options: breaker.Options{Probes: -1}}
	if err := send(t, broken, "http://a/", nil); err == nil ||
		!strings.Contains(err.Error(), "Probes") {
		t.Errorf("invalid options: %v, want an error that names Probes", err)
	}
}

func TestJudge(t *testing.T) {
	if err := breakerhttp.Judge(nil, context.Canceled); err != context.Canceled {
		t.Errorf("an error counts as %v", err)
	}
	date := time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
	for _, v := range []struct {
		status      int
		retryAfter  string
		want        string
		least, most time.Duration
	}{
		{200, "", "<nil>", 0, 0},
		{404, "", "<nil>", 0, 0},
		{429, "9", "<nil>", 0, 0},
		{501, "", "<nil>", 0, 0},
		{505, "", "<nil>", 0, 0},
		{500, "", "500 Internal Server Error", 0, 0},
		{503, " 9 ", "503 Service Unavailable", 9 * time.Second, 9 * time.Second},
		{503, date, "503 Service Unavailable", 20 * time.Second, 30 * time.Second},
		{503, "Mon, 02 Jan 2006 15:04:05 GMT", "503 Service Unavailable", 0, 0},
		{503, "4000000000", "503 Service Unavailable", 4e9 * time.Second, 4e9 * time.Second},
		{503, "soon", "503 Service Unavailable", 0, 0},
	} {
		header := http.Header{"Retry-After": {v.retryAfter}}
		err := breakerhttp.Judge(&http.Response{StatusCode: v.status, Header: header}, nil)
		wait := time.Duration(0)
		if e, ok := errors.AsType[*breakerhttp.StatusError](err); ok {
			wait = e.RetryAfter()
		}
		if fmt.Sprint(err) != v.want || wait < v.least || wait > v.most {
			t.Errorf("%d with %q counts as %v, wait %v; want %s, %v to %v",
				v.status, v.retryAfter, err, wait, v.want, v.least, v.most)
		}
	}
}

// TestCauseOfACancellation checks that canceled requests do not open the breaker, even if the round
// tripper returns only the cause of the cancellation.
func TestCauseOfACancellation(t *testing.T) {
	next := func(cancel context.CancelCauseFunc) trip {
		return func(req *http.Request) (*http.Response, error) {
			cancel(errors.New("user left"))
			return nil, context.Cause(req.Context())
		}
	}
	tr := &breakerhttp.Transport{Options: breaker.Options{Failures: 2}}
	for range 10 {
		ctx, cancel := context.WithCancelCause(t.Context())
		tr.Next = next(cancel)
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://a.test/", nil)
		if _, err := tr.RoundTrip(req); err == nil {
			t.Fatal("no error")
		}
	}
	if got := tr.State("a.test"); got != breaker.Closed {
		t.Errorf("after canceled requests it is %v, want closed", got)
	}
}

// TestRetryAfterUpToMaxHint checks that Options.MaxHint alone bounds a Retry-After.
func TestRetryAfterUpToMaxHint(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"7200":                 2 * time.Hour,
		"4294967296":           3 * time.Hour, // does not fit 32 bits
		"99999999999999999999": 3 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &breakerhttp.Transport{
				Next: trip(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 503, Body: http.NoBody,
						Header: http.Header{"Retry-After": {value}}}, nil
				}),
				Options: breaker.Options{Failures: 1, MaxHint: 3 * time.Hour},
			}
			_ = send(t, tr, "http://a/", http.NoBody)
			open, ok := errors.AsType[*breaker.OpenError](send(t, tr, "http://a/", http.NoBody))
			if !ok || open.Wait != want {
				t.Errorf("Retry-After %s: %v, want open for %v", value, open, want)
			}
		})
	}
}
