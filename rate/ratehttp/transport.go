// Package ratehttp keeps an http.Client within the rate limits of its servers, with package rate.
//
//	client := &http.Client{Transport: &ratehttp.Transport{}}
//
// This client follows the limits in the response headers Retry-After, RateLimit, X-RateLimit-* and
// similar ones. If a host states that no request is left, further requests wait until the host
// allows some again. Options.MaxPause bounds this wait. Other fields of Options set an additional
// limit.
//
// The package starts no goroutine and runs under testing/synctest.
package ratehttp

import (
	"net/http"
	"time"

	"github.com/penstock-io/penstock/internal/perhost"
	"github.com/penstock-io/penstock/rate"
)

// Transport is an http.RoundTripper that delays a request until the limit of its host allows it.
// The zero value works. The fields must not change once the Transport is in use. A Transport is
// safe for concurrent use.
//
// It does not retry: it returns a 429 as it is. Later requests wait for the time that the response
// states, within Options.MaxPause. A request whose deadline would pass during the wait, or that
// finds the queue full, fails with a *rate.RefusedError before it is sent.
type Transport struct {
	// Next sends the requests. Nil means http.DefaultTransport.
	Next http.RoundTripper

	// Limiter limits the requests to all hosts together. Nil means a limiter for each host, made
	// from Options.
	Limiter *rate.Limiter
	Options rate.Options

	// MaxHosts bounds the number of hosts with a limiter. When it is exceeded, the Transport drops
	// the least recently used limiter. Zero means 1000.
	MaxHosts int

	hosts perhost.Table[*rate.Limiter]
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	limiter, err := t.limiter(req)
	if err == nil {
		err = limiter.Wait(req.Context())
	}
	if err != nil {
		perhost.CloseBody(req)
		return nil, err
	}
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if advice, ok := Advice(resp, time.Now()); ok {
		limiter.Observe(advice)
	}
	return resp, nil
}

// Advice returns the rate limit that a response states, or false if it states none. The parameter
// now is the time at which the response was received. Advice uses Retry-After only with the
// statuses 429 and 503, because Retry-After has other meanings with other statuses.
func Advice(resp *http.Response, now time.Time) (rate.Advice, bool) {
	a, ok := rate.ParseHeaders(resp.Header, now)
	if !ok || resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable {
		return a, ok
	}
	a.RetryAfter = 0
	return a, a != rate.Advice{}
}

func (t *Transport) limiter(req *http.Request) (*rate.Limiter, error) {
	if t.Limiter != nil {
		return t.Limiter, nil
	}
	return t.hosts.Get(perhost.Host(req), t.MaxHosts, func() (*rate.Limiter, error) {
		return rate.New(t.Options)
	})
}

// Status returns a snapshot of the limiter for a host, such as "example.com:8080", or false if the
// host has no limiter yet. If the field Limiter is set, Status ignores the host and returns a
// snapshot of that Limiter.
func (t *Transport) Status(host string) (rate.Status, bool) {
	limiter := t.Limiter
	if limiter == nil {
		var ok bool
		if limiter, ok = t.hosts.Find(host); !ok {
			return rate.Status{}, false
		}
	}
	return limiter.Status(), true
}
