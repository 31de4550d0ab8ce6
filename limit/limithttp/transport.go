// Package limithttp limits the calls of an http.Client and of an http.Handler with package limit.
//
//	client := &http.Client{Transport: &limithttp.Transport{}}
//
// This client limits its requests in flight to each host. It finds the limit by itself, from the
// round trips. Further requests wait in a bounded queue. A request fails at once if the queue is
// full or its deadline cannot be met.
//
//	http.ListenAndServe(addr, &limithttp.Handler{Next: mux})
//
// This server limits the number of requests that it serves at once. Further requests wait in a
// bounded queue. Requests that find the queue full get a 503 with a Retry-After.
//
// The package starts no goroutine and runs under testing/synctest.
package limithttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/penstock-io/penstock/internal/perhost"
	"github.com/penstock-io/penstock/limit"
)

// Transport is an http.RoundTripper that limits the requests in flight to each host. A request
// counts until its response body has been read to the end or closed. A refused request is not sent
// and fails with a *limit.RefusedError.
//
// The zero value works. The fields must not change once the Transport is in use. A Transport is
// safe for concurrent use.
type Transport struct {
	// Next sends the requests. Nil means http.DefaultTransport.
	Next http.RoundTripper

	// Limiter limits the requests to all hosts together. Nil means a limiter for each host, made
	// from Options.
	Limiter *limit.Limiter
	Options limit.Options

	// MaxHosts bounds the number of hosts with a limiter. When it is exceeded, the Transport drops
	// the least recently used limiter. Zero means 1000.
	MaxHosts int

	// Priority returns the priority of a request. Nil means limit.Normal for all.
	Priority func(*http.Request) limit.Priority

	// Outcome returns the outcome of a request with this response or this error. Nil means
	// [OutcomeOf].
	Outcome func(*http.Response, error) limit.Outcome

	hosts perhost.Table[*limit.Limiter]
}

// OutcomeOf returns the outcome of a request. If err is not nil, the outcome is that of
// [limit.OutcomeOf]. Otherwise the status of the response decides. The outcome is Success only if
// the duration of the request tells something about the server's load:
//
//	below 400, 404, 410, 412   Success
//	429, 503                   Overloaded
//	504                        TimedOut
//	every other status         Ignored: fast failures would look like a fast server
func OutcomeOf(resp *http.Response, err error) limit.Outcome {
	if err != nil {
		return limit.OutcomeOf(err)
	}
	return statusOutcome(resp.StatusCode)
}

func statusOutcome(status int) limit.Outcome {
	switch status {
	case http.StatusNotFound, http.StatusGone, http.StatusPreconditionFailed:
		return limit.Success
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return limit.Overloaded
	case http.StatusGatewayTimeout:
		return limit.TimedOut
	}
	if status < http.StatusBadRequest {
		return limit.Success
	}
	return limit.Ignored
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	permit, err := t.acquire(req)
	if err != nil {
		perhost.CloseBody(req)
		return nil, err
	}
	ended := false
	defer func() {
		if !ended { // Next panicked
			permit.Done(limit.Ignored)
		}
	}()
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(req)
	judge := t.Outcome
	if judge == nil {
		judge = OutcomeOf
	}
	outcome := judge(resp, timedOut(req.Context(), err))
	ended = true
	if err != nil || resp.Body == nil || resp.Body == http.NoBody ||
		resp.StatusCode == http.StatusSwitchingProtocols {
		permit.Done(outcome)
		return resp, err
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: req.Context(), permit: permit, outcome: outcome}
	return resp, nil
}

// timedOut returns err, marked as context.DeadlineExceeded if the deadline of ctx has passed.
// Without the mark, an error that wraps only the cause of the end would not count as a timeout.
func timedOut(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

func (t *Transport) acquire(req *http.Request) (limit.Permit, error) {
	limiter := t.Limiter
	if limiter == nil {
		var err error
		create := func() (*limit.Limiter, error) { return limit.New(t.Options) }
		limiter, err = t.hosts.Get(perhost.Host(req), t.MaxHosts, create)
		if err != nil {
			return limit.Permit{}, err
		}
	}
	priority := limit.Normal
	if t.Priority != nil {
		priority = t.Priority(req)
	}
	return limiter.AcquirePriority(req.Context(), priority)
}

// Status returns a snapshot of the limiter for a host, such as "example.com:8080", or false if the
// host has no limiter yet. If the field Limiter is set, it is the limiter for every host.
func (t *Transport) Status(host string) (limit.Status, bool) {
	limiter := t.Limiter
	if limiter == nil {
		var ok bool
		if limiter, ok = t.hosts.Find(host); !ok {
			return limit.Status{}, false
		}
	}
	return limiter.Status(), true
}

// body releases the permit when it has been read to the end or closed.
type body struct {
	io.ReadCloser
	ctx     context.Context // of the request
	permit  limit.Permit
	outcome limit.Outcome
	once    sync.Once
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.end(b.outcome)
	case err != nil:
		b.end(limit.OutcomeOf(timedOut(b.ctx, err)))
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.end(b.outcome)
	return b.ReadCloser.Close()
}

func (b *body) end(o limit.Outcome) { b.once.Do(func() { b.permit.Done(o) }) }
