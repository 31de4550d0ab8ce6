// Package breakerhttp keeps an http.Client from calling hosts that fail. It uses package breaker.
//
//	client := &http.Client{Transport: &breakerhttp.Transport{}}
//
// The breaker of a host opens after five failures in a row, or when half of at least 20 requests
// within ten seconds failed. Requests to the host then fail at once with a *breaker.OpenError. A
// single probe request finds out when the host is back.
//
// The package starts no goroutine and runs under testing/synctest.
package breakerhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/httpfield"
	"github.com/penstock-io/penstock/internal/perhost"
)

// Transport is an http.RoundTripper with a breaker for each host. The zero value works. The fields
// must not change once the Transport is in use. A Transport is safe for concurrent use.
type Transport struct {
	// Next sends the requests. Nil means http.DefaultTransport.
	Next http.RoundTripper

	// Breaker protects all hosts together. Nil means a breaker for each host, made from Options.
	Breaker *breaker.Breaker
	Options breaker.Options

	// MaxHosts bounds the number of hosts with a breaker. When it is exceeded, the Transport drops
	// the least recently used breaker. Zero means 1000.
	MaxHosts int

	// Judge returns the error that a request reports to the breaker, or nil for a success. If the
	// field is nil, the function [Judge] is used.
	Judge func(*http.Response, error) error

	hosts perhost.Table[*breaker.Breaker]
}

// StatusError is the error that the breaker gets for a response that counts as a failure of its
// server. RoundTrip does not return it.
type StatusError struct {
	Status int           // such as 503
	Wait   time.Duration // the Retry-After of the response; zero if it has none
}

// Error returns the status, such as "503 Service Unavailable".
func (e *StatusError) Error() string {
	return fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
}

// RetryAfter returns Wait. A breaker that the response opens stays open for at least that time, or
// for [breaker.Options].MaxHint if that is shorter.
func (e *StatusError) RetryAfter() time.Duration { return e.Wait }

// Judge returns the error to report to the breaker, or nil for a success. If err is not nil, Judge
// returns err. For a status of 500 or above, it returns a *[StatusError]. The exceptions are 501
// and 505, which a healthy server sends, too. All other statuses are successes. This includes 429,
// with which a healthy server protects itself.
func Judge(resp *http.Response, err error) error {
	switch {
	case err != nil:
		return err
	case resp.StatusCode < 500, resp.StatusCode == http.StatusNotImplemented,
		resp.StatusCode == http.StatusHTTPVersionNotSupported:
		return nil
	}
	wait, _ := httpfield.RetryAfter(resp.Header.Get("Retry-After"), time.Now())
	return &StatusError{resp.StatusCode, wait}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	call, err := t.allow(req)
	if err != nil {
		perhost.CloseBody(req)
		return nil, err
	}
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	verdict := errPanic
	defer func() { call.Done(verdict) }()
	resp, err := next.RoundTrip(req)
	judge := t.Judge
	if judge == nil {
		judge = Judge
	}
	verdict = judge(resp, err)
	canceled := errors.Is(req.Context().Err(), context.Canceled)
	if canceled && err != nil && verdict != nil { // err may be only the cause of the cancellation
		verdict = fmt.Errorf("%w: %w", context.Canceled, verdict)
	}
	return resp, err
}

var errPanic = errors.New("the round tripper panicked")

func (t *Transport) allow(req *http.Request) (breaker.Call, error) {
	b := t.Breaker
	if b == nil {
		var err error
		create := func() (*breaker.Breaker, error) { return breaker.New(t.Options) }
		if b, err = t.hosts.Get(perhost.Host(req), t.MaxHosts, create); err != nil {
			return breaker.Call{}, err
		}
	}
	return b.Allow()
}

// State returns the state of the breaker for a host, such as "example.com:8080". A host without a
// breaker is Closed.
func (t *Transport) State(host string) breaker.State {
	b := t.Breaker
	if b == nil {
		var ok bool
		if b, ok = t.hosts.Find(host); !ok {
			return breaker.Closed
		}
	}
	return b.State()
}
