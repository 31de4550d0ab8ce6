package retry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

type roundTripFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestTransportFallback checks that the fallback replaces only failures and retryable statuses.
func TestTransportFallback(t *testing.T) {
	for _, c := range []struct {
		status int // 0: no response
		want   int
		calls  int
	}{{200, 200, 0}, {404, 404, 0}, {503, 203, 1}, {0, 203, 1}} {
		calls := 0
		rt := &retry.Transport{
			Next: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if c.status == 0 {
					return nil, errors.New("connection refused")
				}
				return &http.Response{StatusCode: c.status, Body: http.NoBody, Request: req}, nil
			}),
			Options: retry.Options{MaxAttempts: 2, Policy: backoff.Fixed(0)},
			Fallback: func(req *http.Request, err error) (*http.Response, error) {
				calls++
				if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 2 {
					t.Errorf("status %d: the fallback got %v, want a *retry.Error of 2 attempts",
						c.status, err)
				}
				return &http.Response{StatusCode: 203, Body: http.NoBody, Request: req}, nil
			},
		}
		resp, err := rt.RoundTrip(httptest.NewRequest(http.MethodGet, "http://service.test/", nil))
		if err != nil || resp.StatusCode != c.want || calls != c.calls {
			t.Errorf("status %d: %v, %v, %d fallbacks; want %d and %d", c.status, resp, err, calls,
				c.want, c.calls)
		}
	}
}

// TestHedgeTransport checks that a slow request is sent twice, with its body, if that is allowed,
// and otherwise once.
func TestHedgeTransport(t *testing.T) {
	for _, c := range []struct {
		method, body string
		calls        int
		took         time.Duration
	}{
		{http.MethodGet, "", 2, 150 * time.Millisecond},
		{http.MethodPut, "abc", 2, 150 * time.Millisecond},
		{http.MethodPost, "abc", 1, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			hedging := &retry.HedgeTransport{
				Options: retry.HedgeOptions{Delay: 100 * time.Millisecond},
				Next: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					delay := 50 * time.Millisecond
					if calls.Add(1) == 1 {
						delay = time.Hour
					}
					if req.Body != nil {
						if got, _ := io.ReadAll(req.Body); string(got) != c.body {
							t.Errorf("%s: the body is %q", c.method, got)
						}
					}
					select {
					case <-req.Context().Done():
						return nil, context.Cause(req.Context())
					case <-time.After(delay):
						return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
					}
				}),
			}
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://service.test/",
				strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			resp, err := hedging.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != c.took || int(calls.Load()) != c.calls {
				t.Errorf("%s: %d requests in %v, want %d in %v", c.method, calls.Load(), d, c.calls,
					c.took)
			}
			resp.Body.Close()
		})
	}
}
