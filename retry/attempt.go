package retry

import (
	"context"
	"sync/atomic"
)

// Attempt describes one attempt of a call.
type Attempt struct {
	Number int    // counts from 1
	Target int    // the service to use, from 0; see Options.Targets
	Key    string // the idempotency key of the call; empty if none was given
	Err    error  // the failure of the previous attempt; nil in the first attempt and in a hedge
}

// FromContext returns the attempt to which ctx belongs. Call it in an operation, a Budget or a
// hook, with the context that was passed there. For any other context, FromContext returns an
// Attempt with Number 1 and no key.
func FromContext(ctx context.Context) Attempt {
	if c, ok := ctx.Value(attemptKey{}).(*attemptContext); ok {
		return c.attempt
	}
	return Attempt{Number: 1}
}

type attemptKey struct{}

// attemptContext is the context of an attempt. It never changes, so an operation may keep it after
// the attempt. A first attempt has one only in Hedge, and if the call is nested in another attempt,
// has a key or suppresses nested retries.
type attemptContext struct {
	context.Context // the caller's context
	attempt         Attempt
}

// Value implements context.Context.
func (c *attemptContext) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return c
	}
	return c.Context.Value(key)
}

type suppressorKey struct{}

// suppressor prevents retries inside an attempt of an outer retry, while that attempt runs
// (Options.SuppressNested). The inner retries find it in the context of the attempt.
type suppressor struct{ over atomic.Bool }

// active reports whether s suppresses retries now.
func (s *suppressor) active() bool { return s != nil && !s.over.Load() }
