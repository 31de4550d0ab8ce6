package ratehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/rate/ratehttp"
)

func Example() {
	client := &http.Client{Transport: &ratehttp.Transport{Options: rate.Options{Events: 50,
		Burst: 10}}}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 404 Not Found
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func send(ctx context.Context, tr http.RoundTripper, url string) (*http.Response, error) {
	return tr.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, url, nil))
}

// TestFollowsTheServer checks that a server that states a limit of 5 requests in 10s never gets
// more.
func TestFollowsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin, left, window := time.Now(), 5, 0
		tr := &ratehttp.Transport{Next: trip(func(*http.Request) (*http.Response, error) {
			if w := int(time.Since(origin) / (10 * time.Second)); w > window {
				left, window = 5, w
			}
			if left == 0 {
				return &http.Response{StatusCode: 429}, nil
			}
			left--
			reset := 10*time.Second - time.Since(origin)%(10*time.Second)
			value := fmt.Sprintf(`"default";r=%d;t=%d`, left, int(math.Ceil(reset.Seconds())))
			return &http.Response{StatusCode: 200, Header: http.Header{"Ratelimit": {value}}}, nil
		})}
		for i := range 23 {
			resp, err := send(t.Context(), tr, "http://a/")
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("request %d: %v, %v", i, resp, err)
			}
		}
		if d := time.Since(origin); d < 40*time.Second || d > 45*time.Second {
			t.Errorf("23 requests, 5 in 10s, took %v; want 40s and a little", d)
		}
		if s, ok := tr.Status("a"); !ok || s.Remaining != 2 {
			t.Errorf("status %+v, %v; want 2 remaining", s, ok)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := 202
		tr := &ratehttp.Transport{Next: trip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"30"}}},
				nil
		})}
		after := func(host string) time.Duration {
			began := time.Now()
			if _, err := send(t.Context(), tr, "http://"+host+"/"); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		after("a")
		if d := after("a"); d != 0 {
			t.Errorf("after 202 with Retry-After it waited %v, want 0: that is when to poll", d)
		}
		status = 429
		after("a")
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		body := &closer{}
		req := httptest.NewRequestWithContext(soon, http.MethodPost, "http://a/", nil)
		req.Body = body
		_, err := tr.RoundTrip(req)
		if e, ok := errors.AsType[*rate.RefusedError](err); !ok || e.Reason != rate.DeadlineSoon ||
			!body.closed {
			t.Errorf("with 10s left: %v, body closed: %v; want a refusal and true", err,
				body.closed)
		}
		if d := after("b"); d != 0 {
			t.Errorf("another host waited %v", d)
		}
		if d := after("a"); d < 30*time.Second || d > 33*time.Second {
			t.Errorf("after 429 with Retry-After: 30 it waited %v, want 30s and up to a tenth more",
				d)
		}
	})
}

type closer struct{ closed bool }

func (c *closer) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closer) Close() error             { c.closed = true; return nil }

func TestLimiterOfAllHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := rate.New(rate.Options{Events: 1})
		if err != nil {
			t.Fatal(err)
		}
		tr := &ratehttp.Transport{Limiter: l,
			Next: trip(func(*http.Request) (*http.Response, error) {
				return nil, errors.New("connection refused")
			})}
		began := time.Now()
		for _, host := range []string{"a", "b", "c"} {
			if _, err := send(t.Context(), tr, "http://"+host+"/"); err == nil ||
				err.Error() != "connection refused" {
				t.Errorf("got %v, want the error of the round trip", err)
			}
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("three requests took %v, want 2s", d)
		}
		if s, ok := tr.Status("d"); !ok || s.ExpectedWait != time.Second {
			t.Errorf("status %+v, %v", s, ok)
		}
		broken := &ratehttp.Transport{Options: rate.Options{Events: -1}}
		if _, err := send(t.Context(), broken, "http://a/"); err == nil ||
			!strings.Contains(err.Error(), "Events") {
			t.Errorf("invalid options: %v, want an error that names Events", err)
		}
		if _, ok := broken.Status("a"); ok {
			t.Error("invalid options: there is a status")
		}
	})
}
