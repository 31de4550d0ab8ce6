package limithttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/limit/limithttp"
)

func Example() {
	client := &http.Client{Transport: &limithttp.Transport{}}
	hello := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fmt.Println(string(text), err)
	// Output: hello <nil>
}

// The server lets callers wait for at most half a second and serves health checks first.
func ExampleHandler() {
	mux := http.NewServeMux()
	server := &http.Server{Handler: &limithttp.Handler{
		Next:    mux,
		Options: limit.Options{MaxWait: 500 * time.Millisecond},
		Priority: func(req *http.Request) limit.Priority {
			if req.URL.Path == "/healthz" {
				return limit.High
			}
			return limit.Normal
		},
	}}
	fmt.Println(server.Handler != nil)
	// Output: true
}

// trip adapts a function to http.RoundTripper.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body))}
}

func get(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestTransportHoldsPermitUntilBodyEnds(t *testing.T) {
	next := trip(func(*http.Request) (*http.Response, error) { return answer(200, "text"), nil })
	transport := &limithttp.Transport{Next: next, Limiter: limit.Fixed(2)}
	inFlight := func() int {
		s, _ := transport.Status("a")
		return s.InFlight
	}
	for name, end := range map[string]func(*http.Response){
		"read to the end": func(r *http.Response) { _, _ = io.ReadAll(r.Body) },
		"closed":          func(r *http.Response) { r.Body.Close(); r.Body.Close() },
	} {
		resp, err := transport.RoundTrip(get(t.Context(), t, "http://a/"))
		if err != nil {
			t.Fatal(err)
		}
		if inFlight() != 1 {
			t.Errorf("%s: %d in flight before, want 1", name, inFlight())
		}
		end(resp)
		if inFlight() != 0 {
			t.Errorf("%s: %d in flight after, want 0", name, inFlight())
		}
	}
	transport.Next = trip(func(*http.Request) (*http.Response, error) { panic("oh") })
	func() {
		defer func() { _ = recover() }()
		_, _ = transport.RoundTrip(get(t.Context(), t, "http://a/"))
	}()
	transport.Next = trip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
	})
	if _, err := transport.RoundTrip(get(t.Context(), t, "http://a/")); err != nil ||
		inFlight() != 0 {
		t.Errorf("after a panic and a response without body %d are in flight, %v", inFlight(), err)
	}
}

func TestTransportRefuses(t *testing.T) {
	next := trip(func(*http.Request) (*http.Response, error) { return answer(200, ""), nil })
	transport := &limithttp.Transport{Next: next,
		Options: limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: -1}}
	first, err := transport.RoundTrip(get(t.Context(), t, "http://a/"))
	if err != nil {
		t.Fatal(err)
	}
	sent := &closer{}
	req := get(t.Context(), t, "http://a/")
	req.Body = sent
	if _, err := transport.RoundTrip(req); !sent.closed || !refusedBecause(err, limit.QueueFull) {
		t.Errorf("beyond the limit: %v, body closed: %v; want a refusal and true", err, sent.closed)
	}
	other, err := transport.RoundTrip(get(t.Context(), t, "http://b/"))
	if err != nil {
		t.Errorf("another host was refused: %v", err)
	}
	first.Body.Close()
	other.Body.Close()
	if s, ok := transport.Status("a"); !ok || s.Counts.Refused != 1 || s.Counts.Succeeded != 1 {
		t.Errorf("status of the first host: %+v, want one success and one refusal", s)
	}
	broken := &limithttp.Transport{Options: limit.Options{MaxWait: -1}}
	_, err = broken.RoundTrip(get(t.Context(), t, "http://a/"))
	if err == nil || !strings.Contains(err.Error(), "MaxWait") {
		t.Errorf("invalid options: %v, want an error that names MaxWait", err)
	}
	if _, ok := broken.Status("a"); ok {
		t.Error("invalid options: there is a status")
	}
}

type closer struct{ closed bool }

func (c *closer) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closer) Close() error             { c.closed = true; return nil }

func refusedBecause(err error, why limit.Reason) bool {
	e, ok := errors.AsType[*limit.RefusedError](err)
	return ok && e.Reason == why
}

func TestOutcomes(t *testing.T) {
	for status, want := range map[int]limit.Outcome{
		200: limit.Success, 204: limit.Success, 302: limit.Success, 404: limit.Success,
		412: limit.Success,
		401: limit.Ignored, 400: limit.Ignored, 500: limit.Ignored, 502: limit.Ignored,
		429: limit.Overloaded, 503: limit.Overloaded, 504: limit.TimedOut,
	} {
		if got := limithttp.OutcomeOf(answer(status, ""), nil); got != want {
			t.Errorf("status %d is %v, want %v", status, got, want)
		}
	}
	if got := limithttp.OutcomeOf(nil, context.DeadlineExceeded); got != limit.TimedOut {
		t.Errorf("a timeout is %v", got)
	}
}

func TestBodyThatTimesOut(t *testing.T) {
	next := trip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200,
			Body: io.NopCloser(&failing{context.DeadlineExceeded})}, nil
	})
	transport := &limithttp.Transport{Next: next, Limiter: limit.Fixed(1)}
	resp, err := transport.RoundTrip(get(t.Context(), t, "http://a/"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	if s, _ := transport.Status(""); s.Counts.TimedOut != 1 || s.Counts.Succeeded != 0 {
		t.Errorf("counts are %+v, want one timeout", s.Counts)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := &limithttp.Handler{
			Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(1500 * time.Millisecond)
				w.WriteHeader(http.StatusCreated)
			}),
			Options:  limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: 1},
			Priority: func(*http.Request) limit.Priority { return limit.Normal },
		}
		statuses := map[int]int{}
		var retryAfter string
		var mu sync.Mutex
		var group sync.WaitGroup
		serve := func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
			mu.Lock()
			defer mu.Unlock()
			statuses[w.Code]++
			if w.Code == http.StatusServiceUnavailable {
				retryAfter = w.Header().Get("Retry-After")
			}
		}
		serve() // from here on the round trip is known
		for range 4 {
			group.Go(serve)
		}
		group.Wait()
		if statuses[http.StatusCreated] != 3 || statuses[http.StatusServiceUnavailable] != 2 ||
			retryAfter != "3" {
			t.Errorf("statuses %v, Retry-After %q; want three times 201 and twice 503 with 3",
				statuses, retryAfter)
		}
		if s := handler.Status(); s.Counts.Succeeded != 3 || s.Counts.Refused != 2 {
			t.Errorf("counts are %+v", s.Counts)
		}
	})
}

func TestHandlerOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var status int
		handler := &limithttp.Handler{
			Next: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				switch status {
				case 0: // hangs
					<-req.Context().Done()
				case 1:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(status)
				}
			}),
			Limiter: limit.Fixed(1),
		}
		serve := func(ctx context.Context, s int) {
			defer func() { _ = recover() }()
			status = s
			handler.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone, leave := context.WithCancel(t.Context())
		leave()
		serve(t.Context(), 200)
		serve(t.Context(), 503)
		serve(t.Context(), 500)
		serve(t.Context(), 1)
		serve(late, 0)
		serve(gone, 200) // not even begun
		want := limit.Counts{Started: 5, Succeeded: 1, Overloaded: 1, Ignored: 2, TimedOut: 1}
		if c := handler.Status().Counts; c != want {
			t.Errorf("counts are %+v, want %+v", c, want)
		}
	})
}

// TestHandlerKeepsOptionalMethods checks that a handler on a real server still finds the optional
// Flusher and Hijacker.
func TestHandlerKeepsOptionalMethods(t *testing.T) {
	var flusher, hijacker, readerFrom, controller bool
	handler := &limithttp.Handler{Next: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, flusher = w.(http.Flusher)
		_, hijacker = w.(http.Hijacker)
		_, readerFrom = w.(io.ReaderFrom)
		controller = http.NewResponseController(w).SetWriteDeadline(time.Time{}) == nil
	})}
	server := httptest.NewServer(handler)
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !flusher || !hijacker || !readerFrom || !controller {
		t.Errorf("Flusher %v, Hijacker %v, ReaderFrom %v, ResponseController %v; want all",
			flusher, hijacker, readerFrom, controller)
	}
	if handler.Status().Counts.Succeeded != 1 {
		t.Errorf("counts are %+v", handler.Status().Counts)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if !flusher || hijacker {
		t.Errorf("behind a recorder: Flusher %v, Hijacker %v; want true, false", flusher, hijacker)
	}
	broken := &limithttp.Handler{Options: limit.Options{MaxWait: -1}}
	if broken.Status() != (limit.Status{}) {
		t.Error("invalid options have a status")
	}
	defer func() {
		if recover() == nil {
			t.Error("invalid options did not panic")
		}
	}()
	broken.ServeHTTP(w, nil)
}

// wrapped is the ResponseWriter of a handler around this one, without io.ReaderFrom.
type wrapped struct {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
}

// TestHandlerBehindAnother checks that a handler finds the Hijacker that it needs for a WebSocket
// if the server's ResponseWriter is wrapped by another handler.
func TestHandlerBehindAnother(t *testing.T) {
	var flusher, hijacker bool
	handler := &limithttp.Handler{Next: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, flusher = w.(http.Flusher)
		_, hijacker = w.(http.Hijacker)
	})}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	handler.ServeHTTP(wrapped{ResponseWriter: httptest.NewRecorder(),
		Flusher: httptest.NewRecorder(), Hijacker: hijack{}}, req)
	if !flusher || !hijacker {
		t.Errorf("Flusher %v, Hijacker %v; want both", flusher, hijacker)
	}
	handler.ServeHTTP(struct {
		http.ResponseWriter
		http.Hijacker
	}{httptest.NewRecorder(), hijack{}}, req)
	if flusher || !hijacker {
		t.Errorf("Flusher %v, Hijacker %v; want only the latter", flusher, hijacker)
	}
}

// hijack is a Hijacker that is not called.
type hijack struct{ http.Hijacker }
