// Package guard holds the parts that the gRPC and Connect interceptors share: how to treat each
// status code, and a call that passes through a breaker and a limiter.
//
// Codes are numbers here, because grpc-go and Connect have different types for the same values.
package guard

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/retry"
)

// The gRPC status codes that this package distinguishes.
const (
	OK                = 0
	Canceled          = 1
	Unknown           = 2
	DeadlineExceeded  = 4
	NotFound          = 5
	ResourceExhausted = 8
	Aborted           = 10
	Internal          = 13
	Unavailable       = 14
	DataLoss          = 15
)

// LimitOutcome returns the outcome that the limiter counts for a call with the given status code: a
// success, an overload, or a timeout. All other codes show nothing about the server's load, and are
// ignored.
func LimitOutcome(code uint32) limit.Outcome {
	switch code {
	case OK, NotFound:
		return limit.Success
	case ResourceExhausted, Unavailable:
		return limit.Overloaded
	case DeadlineExceeded:
		return limit.TimedOut
	}
	return limit.Ignored
}

// serverFailed reports whether a breaker counts the code as a failure of the server.
func serverFailed(code uint32) bool {
	switch code {
	case Unknown, DeadlineExceeded, Internal, Unavailable, DataLoss:
		return true
	}
	return false
}

// Action returns retry.Retry if a call that failed with err and the given code may be retried, and
// otherwise retry.Fail. Unavailable is retried. ResourceExhausted is retried if the call was
// refused before it was sent, or if hinted is true (the server asked the client to send it again
// later). Calls that failed with Unknown, DeadlineExceeded, Aborted or Internal may have had an
// effect, so they are retried only if they are idempotent.
func Action(err error, code uint32, idempotent, hinted bool) retry.Action {
	_, refused := RefusalCode(err)
	switch code {
	case Unavailable:
		return retry.Retry
	case ResourceExhausted:
		if refused || hinted {
			return retry.Retry
		}
	case Unknown, DeadlineExceeded, Aborted, Internal:
		if idempotent {
			return retry.Retry
		}
	}
	return retry.Fail
}

// Hint returns the wait that err requests, or zero.
func Hint(err error) time.Duration {
	if hint, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		return hint.RetryAfter()
	}
	return 0
}

// RefusalCode returns the code of an error with which Begin refused a call, and false for every
// other error.
func RefusalCode(err error) (code uint32, ok bool) {
	if _, open := errors.AsType[*breaker.OpenError](err); open {
		return Unavailable, true
	}
	if _, refused := errors.AsType[*limit.RefusedError](err); refused {
		return ResourceExhausted, true
	}
	return 0, false
}

// ContextCode returns the code for the end of a context, and Unknown for any other error.
func ContextCode(err error) uint32 {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Unknown
}

// Guard is a breaker and a limiter, each optional.
type Guard struct {
	Breaker *breaker.Breaker
	Limit   *limit.Limiter
}

// Call is a call that may run. End must be called once.
type Call struct {
	attempt breaker.Call
	permit  limit.Permit
}

// Begin asks the breaker whether the call may run, and then waits for a permit of the limiter. If
// one of them refuses the call, Begin returns its error.
func (g Guard) Begin(ctx context.Context) (c Call, err error) {
	if g.Breaker != nil {
		if c.attempt, err = g.Breaker.Allow(); err != nil {
			return Call{}, err
		}
	}
	if g.Limit != nil {
		if c.permit, err = g.Limit.Acquire(ctx); err != nil {
			c.attempt.Done(context.Canceled) // it was not made, so it shows nothing about the server
			return Call{}, err
		}
	}
	return c, nil
}

// End reports the end of the call to the breaker and the limiter. The parameter code is the status
// code of err.
func (c Call) End(err error, code uint32) {
	_, refused := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	switch {
	case refused || code == Canceled: // by a limiter or breaker within the call
		c.permit.Done(limit.Ignored)
		c.attempt.Done(context.Canceled)
		return
	case !serverFailed(code):
		err = nil
	}
	c.permit.Done(LimitOutcome(code))
	c.attempt.Done(err)
}

// errPanicked is the error of a call that panicked.
var errPanicked = errors.New("the call panicked")

// Run calls f if the breaker and the limiter of g permit it. If f panics, the breaker counts a
// failure.
func (g Guard) Run(ctx context.Context, f func(context.Context) error,
	codeOf func(error) uint32) error {
	c, err := g.Begin(ctx)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() {
		code := uint32(Internal)
		if err != errPanicked {
			code = codeOf(err)
		}
		c.End(err, code)
	}()
	err = f(ctx)
	return err
}
