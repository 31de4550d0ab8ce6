package httpclient_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/httpclient"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/retry"
)

// server is a fake server that responds in virtual time.
type server func(req *http.Request, call int) (status int, delay time.Duration)

// base returns the transport to the server and the number of calls that reached it.
func (s server) base() (http.RoundTripper, *atomic.Int64) {
	calls := new(atomic.Int64)
	return transport(func(req *http.Request) (*http.Response, error) {
		status, delay := s(req, int(calls.Add(1)))
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-timer.C:
		}
		return response(req, status, fmt.Sprintf("call %d", calls.Load())), nil
	}), calls
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func response(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
		Request: req,
	}
}

func newClient(t *testing.T, o httpclient.Options, s server) (*http.Client, *atomic.Int64) {
	t.Helper()
	var calls *atomic.Int64
	o.Base, calls = s.base()
	client, err := httpclient.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return client, calls
}

func get(client *http.Client) (status int, body string, err error) {
	resp, err := client.Get("http://service.test/")
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// TestRetries checks that attempts that fail or hang are retried.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := newClient(t, httpclient.Options{
			Retry: retry.Options{AttemptTimeout: time.Second, Policy: backoff.Fixed(time.Second)},
		}, func(_ *http.Request, call int) (int, time.Duration) {
			return []int{503, 0, 200}[call-1], []time.Duration{0, time.Hour, 0}[call-1]
		})
		began := time.Now()
		status, body, err := get(client)
		if status != 200 || body != "call 3" || err != nil || calls.Load() != 3 {
			t.Errorf("status %d, body %q, err %v after %d calls; want 200 from the third", status,
				body, err, calls.Load())
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("took %v, want 3s: two waits and one attempt that timed out", d)
		}
	})
}

// TestHedges checks that a second request overtakes a slow one, and that the breaker counts neither
// as a failure.
func TestHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := newClient(t, httpclient.Options{
			Hedge:   retry.HedgeOptions{Delay: 100 * time.Millisecond},
			Breaker: breaker.Options{Failures: 1},
			Limit:   limit.Options{Window: window.Queue{Initial: 4}},
			Retry:   retry.Options{MaxAttempts: 1},
		}, func(_ *http.Request, call int) (int, time.Duration) {
			return 200, []time.Duration{time.Hour, 50 * time.Millisecond}[(call-1)%2]
		})
		for i := range 5 {
			began := time.Now()
			if status, _, err := get(client); status != 200 || err != nil {
				t.Fatalf("call %d: %d, %v", i, status, err)
			}
			if d := time.Since(began); d != 150*time.Millisecond {
				t.Errorf("took %v, want 150ms", d)
			}
		}
		if calls.Load() != 10 {
			t.Errorf("%d requests, want 10", calls.Load())
		}
	})
}

// TestBreaks checks that an open breaker sends no request to the server, and the fallback provides
// the response.
func TestBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		client, calls := newClient(t, httpclient.Options{
			Breaker: breaker.Options{Failures: 3, Wait: backoff.Fixed(time.Minute)},
			Retry:   retry.Options{Policy: backoff.Fixed(0), MaxElapsed: time.Second},
			Fallback: func(req *http.Request, err error) (*http.Response, error) {
				causes = append(causes, err)
				return response(req, 203, "cached"), nil
			},
		}, func(*http.Request, int) (int, time.Duration) { return 500, 0 })
		for range 10 {
			if status, body, err := get(client); status != 203 || body != "cached" || err != nil {
				t.Fatalf("status %d, body %q, err %v; want the fallback's", status, body, err)
			}
		}
		if calls.Load() != 3 {
			t.Errorf("%d requests reached the server, want 3", calls.Load())
		}
		for _, err := range causes {
			if _, ok := errors.AsType[*breaker.OpenError](err); !ok {
				t.Errorf("the fallback got %v, want a *breaker.OpenError", err)
			}
		}
	})
}

// TestRefusalsDoNotBreak checks that a call that Options.Limit refuses does not count as a failure
// of the server: the breaker stays closed.
func TestRefusalsDoNotBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := newClient(t, httpclient.Options{
			Breaker: breaker.Options{Failures: 1},
			Limit:   limit.Options{MaxWaiting: -1},
			Retry:   retry.Options{MaxAttempts: 1},
		}, func(*http.Request, int) (int, time.Duration) { return 200, time.Second })
		refused := make(chan error, 1)
		time.AfterFunc(time.Millisecond, func() {
			_, _, err := get(client)
			refused <- err
		})
		if status, _, err := get(client); status != 200 || err != nil {
			t.Fatal(status, err)
		}
		if _, ok := errors.AsType[*limit.RefusedError](<-refused); !ok {
			t.Error("the second call at once was not refused by the limit")
		}
		if status, _, err := get(client); status != 200 || err != nil {
			t.Errorf("after a refusal: %d, %v; want the breaker closed", status, err)
		}
		if calls.Load() != 2 {
			t.Errorf("%d requests, want 2", calls.Load())
		}
	})
}

// TestTimeout checks that Timeout bounds the whole call and does not trigger the fallback.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := newClient(t, httpclient.Options{
			Timeout: 3 * time.Second,
			Retry:   retry.Options{AttemptTimeout: time.Second, Policy: backoff.Fixed(0)},
			Fallback: func(*http.Request, error) (*http.Response, error) {
				t.Error("the fallback was called")
				return nil, errors.New("none")
			},
		}, func(*http.Request, int) (int, time.Duration) { return 200, time.Hour })
		began := time.Now()
		_, _, err := get(client)
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("err = %v, want a timeout", err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("took %v, want 3s", d)
		}
	})
}

func TestInvalidOptions(t *testing.T) {
	for _, o := range []httpclient.Options{
		{Timeout: -1},
		{Retry: retry.Options{MaxElapsed: -1}},
		{Retry: retry.Options{Policy: backoff.Fixed(-1)}},
		{Hedge: retry.HedgeOptions{Delay: -1}},
		{Breaker: breaker.Options{FailureRate: 2}},
		{Rate: rate.Options{Events: -1}},
		{Limit: limit.Options{MaxWait: -1}},
	} {
		if client, err := httpclient.New(o); err == nil || client != nil {
			t.Errorf("New(%+v) = %v, %v; want an error", o, client, err)
		}
	}
}

// TestIdempotentAndPrepare checks that Idempotent and Prepare reach the retry transport.
func TestIdempotentAndPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []string
		client, calls := newClient(t, httpclient.Options{
			Idempotent: func(req *http.Request) bool { return req.URL.Path == "/query" },
			Prepare: func(req *http.Request, a retry.Attempt) error {
				req.Header.Set("Authorization", fmt.Sprint("token ", a.Number))
				return nil
			},
		}, func(req *http.Request, call int) (int, time.Duration) {
			tokens = append(tokens, req.Header.Get("Authorization"))
			return map[bool]int{true: 503, false: 200}[call%2 == 1], 0
		})
		resp, err := client.Post("http://a.test/query", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || calls.Load() != 2 || tokens[1] != "token 2" {
			t.Errorf("%s after %d calls; want 200 after two", resp.Status, calls.Load())
		}
		resp, err = client.Post("http://a.test/order", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 503 || calls.Load() != 3 {
			t.Errorf("%s after %d calls; an order must be sent once", resp.Status, calls.Load()-2)
		}
	})
}

// TestWaitsHoldNoPermit checks that a call that waits for its next attempt does not count against
// the concurrency limit, even if nobody has read the response of its last attempt.
func TestWaitsHoldNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := newClient(t, httpclient.Options{
			Retry: retry.Options{Policy: backoff.Fixed(time.Minute)},
			Limit: limit.Options{Window: window.Fixed{Size: 1}},
		}, func(_ *http.Request, call int) (int, time.Duration) {
			if call == 1 {
				return http.StatusServiceUnavailable, 0
			}
			return http.StatusOK, 0
		})
		begun := time.Now()
		waiting := make(chan error)
		go func() {
			resp, err := client.Get("http://service.test/a")
			if err == nil {
				err = resp.Body.Close()
			}
			waiting <- err
		}()
		synctest.Wait()
		resp, err := client.Get("http://service.test/b")
		if err != nil || time.Since(begun) != 0 {
			t.Fatalf("the second call ended after %v: %v", time.Since(begun), err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	})
}
