package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

func TestStatusError(t *testing.T) {
	for status, want := range map[int]retry.Action{
		400: retry.Fail, 401: retry.Refresh, 403: retry.Fail, 404: retry.Fail, 408: retry.Retry,
		409: retry.Fail, 421: retry.Failover,
		422: retry.Fail, 425: retry.Retry, 429: retry.Retry, 500: retry.Retry, 501: retry.Fail,
		502: retry.Retry, 503: retry.Retry,
		504: retry.Retry, 505: retry.Fail, 511: retry.Fail, 522: retry.Retry, 599: retry.Fail,
	} {
		err := retry.HTTP(&http.Response{StatusCode: status,
			Header: http.Header{"Retry-After": {"3"}}})
		e, ok := errors.AsType[*retry.StatusError](err)
		if !ok || e.Action() != want || e.Wait != 3*time.Second ||
			!strings.Contains(err.Error(), strconv.Itoa(status)) {
			t.Errorf("%d: %v, %v; want %v", status, err, e.Action(), want)
		}
		if got := retry.Classify(fmt.Errorf("call: %w", err)); got != want {
			t.Errorf("%d: classified as %v, want %v", status, got, want)
		}
	}
	for _, status := range []int{200, 204, 304} {
		if err := retry.HTTP(&http.Response{StatusCode: status}); err != nil {
			t.Error(err)
		}
	}
	req := httptest.NewRequest(http.MethodPost, "http://user:secret@host/x", nil)
	req.Header.Set("Idempotency-Key", "k")
	for status, want := range map[int]retry.Action{409: retry.Retry, 422: retry.Fail,
		400: retry.Fail} {
		err := retry.HTTP(&http.Response{StatusCode: status, Request: req})
		if e, _ := errors.AsType[*retry.StatusError](err); e.Action() != want ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%d of a keyed request: %v, %v; want %v", status, err, e.Action(), want)
		}
	}
}

// TestStatusDecidesByDefault checks that without a classifier, the status of a response decides
// about a retry.
func TestStatusDecidesByDefault(t *testing.T) {
	for status, want := range map[int]int{404: 1, 401: 1, 503: 10} {
		calls := 0
		err := retry.Do(t.Context(), func(context.Context) error {
			calls++
			return fmt.Errorf("get: %w", retry.HTTP(&http.Response{StatusCode: status}))
		}, atOnce)
		if e, _ := errors.AsType[*retry.StatusError](err); calls != want || e == nil ||
			e.Status != status {
			t.Errorf("%d: %d calls, %v; want %d", status, calls, err, want)
		}
	}
}

// TestErrorsFindTheLastFailure checks that errors.AsType finds the last failure, not the first.
func TestErrorsFindTheLastFailure(t *testing.T) {
	statuses := []int{503, 502, 404}
	n := 0
	err := retry.Do(t.Context(), func(context.Context) error {
		n++
		return retry.HTTP(&http.Response{StatusCode: statuses[n-1]})
	}, atOnce)
	if e, _ := errors.AsType[*retry.StatusError](err); e == nil || e.Status != 404 {
		t.Errorf("found %v, want the 404", e)
	}
	joined, _ := err.(interface{ Unwrap() []error })
	for i, want := range []string{"404", "502", "503", "not retryable"} {
		if got := joined.Unwrap()[i].Error(); !strings.Contains(got, want) {
			t.Errorf("Unwrap()[%d] is %q, want %q", i, got, want)
		}
	}
}

// reply is the response of a fake server to one request.
type reply struct {
	status int
	header http.Header
	err    error
	hangs  bool
}

// server is a RoundTripper that returns its replies in order and records the requests.
type server struct {
	replies []reply
	begun   time.Time
	at      []time.Duration
	bodies  []string
	keys    []string
	open    int // response bodies that are not closed yet
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.begun))
	s.keys = append(s.keys, req.Header.Get("Idempotency-Key"))
	body := ""
	if req.Body != nil {
		data, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		body = string(data)
		_ = req.Body.Close()
	}
	s.bodies = append(s.bodies, body)
	r := s.replies[min(len(s.at), len(s.replies))-1]
	if r.hangs {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	}
	if r.err != nil {
		return nil, r.err
	}
	s.open++
	return &http.Response{StatusCode: r.status, Header: r.header, Request: req,
			Body: &closeCounter{Reader: strings.NewReader(fmt.Sprintf("answer %d", len(s.at))),
				s: s}},
		nil
}

type closeCounter struct {
	io.Reader
	s      *server
	closed bool
}

func (c *closeCounter) Close() error {
	if !c.closed {
		c.closed = true
		c.s.open--
	}
	return nil
}

func TestTransport(t *testing.T) {
	refused := errors.New("connection refused")
	bad := reply{status: 503}
	for _, c := range []struct {
		name    string
		method  string
		key     string
		body    string
		opaque  bool // the request has no GetBody
		buffer  int64
		newKeys bool
		replies []reply
		options retry.Options
		at      []time.Duration
		status  int
		stop    error
	}{
		{name: "good at once", replies: []reply{{status: 200}}, at: seconds(0), status: 200},
		{name: "good in the end", replies: []reply{bad, {err: refused}, {status: 204}},
			at: seconds(0, 1, 2), status: 204},
		{name: "never good: the last answer comes through", replies: []reply{bad},
			options: retry.Options{MaxAttempts: 3},
			at:      seconds(0, 1, 2), status: 503},
		{name: "no answer at all", replies: []reply{{err: refused}},
			options: retry.Options{MaxAttempts: 2}, at: seconds(0, 1),
			stop: retry.ErrExhausted},
		{name: "not found is an answer", replies: []reply{{status: 404}}, at: seconds(0),
			status: 404},
		{name: "the server's hint",
			replies: []reply{{status: 429, header: http.Header{"Retry-After": {"20"}}},
				{status: 200}},
			options: retry.Options{ExactHint: true}, at: seconds(0, 20), status: 200},
		{name: "a hint that is too long",
			replies: []reply{{status: 429, header: http.Header{"Retry-After": {"86400"}}}},
			at:      seconds(0), status: 429},
		{name: "PUT with a body", method: "PUT", body: "data", replies: []reply{bad, {status: 200}},
			at: seconds(0, 1), status: 200},
		{name: "PUT with a body that has to be buffered", method: "PUT", body: "data", opaque: true,
			replies: []reply{bad, bad, {status: 200}}, at: seconds(0, 1, 2), status: 200},
		{name: "PUT with a body beyond the buffer", method: "PUT", body: "data", opaque: true,
			buffer:  3,
			replies: []reply{bad}, at: seconds(0), status: 503},
		{name: "PUT without a buffer", method: "PUT", body: "data", opaque: true, buffer: -1,
			replies: []reply{{err: refused}}, at: seconds(0), stop: retry.ErrNotRepeatable},
		{name: "POST is sent once", method: "POST", body: "data", replies: []reply{bad},
			at: seconds(0), status: 503},
		{name: "POST without a response", method: "POST", body: "data",
			replies: []reply{{err: refused}}, at: seconds(0),
			stop: retry.ErrNotRepeatable},
		{name: "POST with a key", method: "POST", body: "data", key: "k",
			replies: []reply{bad, {status: 201}},
			at:      seconds(0, 1), status: 201},
		{name: "POST gets a key", method: "POST", body: "data", newKeys: true,
			replies: []reply{bad, {status: 201}},
			at:      seconds(0, 1), status: 201},
		{name: "attempt timeout", replies: []reply{{hangs: true}, {status: 200}},
			options: retry.Options{AttemptTimeout: 5 * time.Second},
			at:      seconds(0, 6), status: 200},
		{name: "classified by the caller first", replies: []reply{{status: 404}, {status: 200}},
			at: seconds(0, 1), status: 200,
			options: retry.Options{Classify: func(err error) retry.Action {
				if e, ok := errors.AsType[*retry.StatusError](err); ok && e.Status == 404 {
					return retry.Retry
				}
				return retry.Undecided
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{replies: c.replies, begun: time.Now()}
				c.options.Policy = backoff.Fixed(time.Second)
				client := http.Client{Transport: &retry.Transport{Next: s, Options: c.options,
					NewKeys: c.newKeys, MaxBuffer: c.buffer}}
				var body io.Reader
				if c.body != "" {
					body = bytes.NewReader([]byte(c.body))
				}
				if c.opaque {
					body = io.MultiReader(body)
				}
				req, err := http.NewRequestWithContext(t.Context(), c.method,
					"http://example.test/", body)
				if err != nil {
					t.Fatal(err)
				}
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				before := req.Header.Clone()
				resp, err := client.Do(req)
				if !slices.Equal(s.at, c.at) {
					t.Errorf("sent at %v, want %v", s.at, c.at)
				}
				if fmt.Sprint(req.Header) != fmt.Sprint(before) {
					t.Errorf("the request was changed: %v, was %v", req.Header, before)
				}
				for i := range s.bodies {
					if s.bodies[i] != c.body || s.keys[i] != s.keys[0] ||
						(c.newKeys && s.keys[i] == "") {
						t.Errorf("request %d had the body %q and the key %q", i+1, s.bodies[i],
							s.keys[i])
					}
				}
				if c.stop != nil {
					if !errors.Is(err, c.stop) || s.open != 0 {
						t.Errorf("%v, %d bodies left open", err, s.open)
					}
					return
				}
				if err != nil || resp.StatusCode != c.status {
					t.Fatalf("%v, %v; want %d", resp, err, c.status)
				}
				text, err := io.ReadAll(resp.Body)
				if want := fmt.Sprintf("answer %d", len(c.at)); err != nil || string(text) != want {
					t.Errorf("body %q, %v; want %q", text, err, want)
				}
				if _ = resp.Body.Close(); s.open != 0 {
					t.Errorf("%d bodies left open", s.open)
				}
			})
		})
	}
}

func TestTransportCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{replies: []reply{{status: 503}}, begun: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.test/", nil)
		_, err := (&retry.Transport{Next: s,
			Options: retry.Options{Policy: backoff.Fixed(time.Second)}}).RoundTrip(req)
		if !errors.Is(err, context.Canceled) || s.open != 0 {
			t.Errorf("%v, %d bodies left open", err, s.open)
		}
		closed := &closeCounter{Reader: strings.NewReader("x"), s: &server{open: 1}}
		req, _ = http.NewRequestWithContext(ctx, http.MethodPut, "http://example.test/", closed)
		_, err = (&retry.Transport{Next: s}).RoundTrip(req)
		if !errors.Is(err, context.Canceled) || !closed.closed || len(s.at) != 1 {
			t.Errorf("%v; body closed: %v; %d requests sent", err, closed.closed, len(s.at))
		}
	})
}

// TestTransportOverTheWire checks that a connection to a real server is reused, because the
// responses that are not returned are drained.
func TestTransportOverTheWire(t *testing.T) {
	var requests, connections atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if requests.Add(1) < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(bytes.Repeat([]byte("sorry "), 1000))
			return
		}
		_, _ = w.Write(append([]byte("got "), body...))
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	client := http.Client{Transport: &retry.Transport{Next: &http.Transport{},
		Options: retry.Options{Policy: backoff.Fixed(0)}}}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL,
		strings.NewReader("the body"))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "got the body" || requests.Load() != 4 ||
		connections.Load() != 1 {
		t.Errorf("%q after %d requests on %d connections; want the body after 4 on one", text,
			requests.Load(), connections.Load())
	}
	client.CloseIdleConnections()
}
