// Package httpclient returns an http.Client that handles slow, failing and overloaded servers.
//
//	client, err := httpclient.New(httpclient.Options{
//		Timeout: 30 * time.Second,
//		Retry:   retry.Options{AttemptTimeout: 2 * time.Second},
//		Hedge:   retry.HedgeOptions{Delay: 200 * time.Millisecond},
//	})
//
// The client composes the transports of packages retry, breaker, rate and limit in the order that
// is right for most programs. The first layer is the outermost:
//
//	timeout    bounds the whole call, with its waits and the reading of the body
//	fallback   provides a response when the retry has given up
//	retry      waits between attempts; a waiting call holds no permit of the layers below
//	breaker    counts each attempt, and refuses before the call queues for anything
//	hedge      sends another request while a slow one runs; the breaker counts them as one call
//	rate       waits for the host's rate limit, before the request takes a permit
//	limit      permits as many requests in flight as the server bears; each request of a hedge needs a permit
//	base       sends the request
//
// Breaker, rate and limit keep one state for each host. Programs that need another order, or access
// to that state, nest the transports themselves: each has a field Next.
//
// Only hedging starts goroutines: one for each request that it sends. Everything runs under
// testing/synctest.
package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/breaker/breakerhttp"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/limit/limithttp"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/rate/ratehttp"
	"github.com/penstock-io/penstock/retry"
)

// Options are the settings of a client. The zero value works: the client retries, opens circuit
// breakers, follows rate limits that servers state, and limits concurrency, each with the defaults
// of its package. It has no timeouts and does not hedge.
type Options struct {
	// Timeout bounds a call, including waits between attempts and the reading of the body. Zero
	// means no limit.
	Timeout time.Duration

	// Retry are the settings of retries. AttemptTimeout bounds each attempt.
	Retry retry.Options

	// Idempotent reports whether a request that is not idempotent by its method or header may
	// nevertheless be sent twice. Such a request is retried but not hedged. See
	// retry.Transport.Idempotent.
	Idempotent func(req *http.Request) bool

	// Prepare, if not nil, is called before each attempt and may change req, for example to set a
	// fresh token. See retry.Transport.Prepare.
	Prepare func(req *http.Request, a retry.Attempt) error

	// Breaker has the settings of the circuit breaker of each host.
	Breaker breaker.Options

	// Hedge has the settings of hedging. A Delay of zero means no hedging.
	Hedge retry.HedgeOptions

	// Rate is the client's own rate limit for each host. Zero Events means that only limits stated
	// by servers apply.
	Rate rate.Options

	// Limit has the settings of the concurrency limit of each host.
	Limit limit.Options

	// Fallback, if not nil, provides a response when the retry has given up. See
	// retry.Transport.Fallback.
	Fallback func(req *http.Request, err error) (*http.Response, error)

	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper
}

// Validate returns an error that names the invalid option.
func (o Options) Validate() error {
	if o.Timeout < 0 {
		return fmt.Errorf("httpclient: Timeout is %v, want 0 or more", o.Timeout)
	}
	return errors.Join(o.Retry.Validate(), o.Hedge.Validate(), o.Breaker.Validate(),
		o.Rate.Validate(), o.Limit.Validate())
}

// New returns a client with all layers. The client is safe for concurrent use. It needs no Close:
// idle connections belong to Base.
func New(o Options) (*http.Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var next http.RoundTripper = &limithttp.Transport{Next: o.Base, Options: o.Limit}
	next = &ratehttp.Transport{Next: next, Options: o.Rate}
	if o.Hedge.Delay != 0 {
		next = &retry.HedgeTransport{Next: next, Options: o.Hedge}
	}
	next = &breakerhttp.Transport{Next: next, Options: o.Breaker}
	return &http.Client{
		Timeout: o.Timeout,
		Transport: &retry.Transport{
			Next: next, Options: o.Retry,
			Idempotent: o.Idempotent, Prepare: o.Prepare, Fallback: o.Fallback,
		},
	}, nil
}
