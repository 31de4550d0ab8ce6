package retry

import (
	"context"
	"fmt"
)

// defaults are the settings of calls without options.
var defaults Options

// Do runs op until it returns nil, and waits between the attempts. At most one Options may be
// given. Without Options, the defaults apply. The error is an *Error that holds the reason for the
// stop and the failures of op. errors.Is and errors.AsType find both, the last failure first.
//
// Op is never called with a context that has ended. If AttemptTimeout is set, the context of op
// ends when op returns.
func Do(ctx context.Context, op func(context.Context) error, opts ...Options) error {
	// In this common case, the first attempt needs neither the clock nor a context of its own.
	if len(opts) == 0 && ctx.Err() == nil && ctx.Value(attemptKey{}) == nil {
		if err := op(ctx); err != nil {
			return resume(ctx, &defaults, op, err)
		}
		return nil
	}
	return do(ctx, op, opts)
}

// do handles all cases of Do. It is not inlined, to keep the stack frame of Do small.
//
//go:noinline
func do(ctx context.Context, op func(context.Context) error, opts []Options) error {
	o, err := choose(opts)
	if err != nil {
		return &Error{Stop: err}
	}
	if !o.plain() || ctx.Err() != nil || ctx.Value(attemptKey{}) != nil {
		return run(ctx, o, op)
	}
	if err := op(ctx); err != nil {
		return resume(ctx, o, op, err)
	}
	return nil
}

// choose returns the settings of a call.
func choose(opts []Options) (*Options, error) {
	switch len(opts) {
	case 0:
		return &defaults, nil
	case 1:
		return &opts[0], opts[0].check()
	}
	return &defaults, fmt.Errorf("%w: %d were given, want at most one", ErrOptions, len(opts))
}

// run makes all attempts of a call.
func run(ctx context.Context, o *Options, op func(context.Context) error) error {
	var s sequence
	defer s.end(o)
	return s.repeat(ctx, o, op, s.begin(ctx, o))
}

// resume continues a call with plain options whose first attempt failed with err.
func resume(ctx context.Context, o *Options, op func(context.Context) error, err error) error {
	s := sequence{ctx: ctx, attempt: Attempt{Number: 1}, attempts: 1, plan: plan{row: 1}}
	return s.repeat(ctx, o, op, s.failed(ctx, o, err))
}

// repeat makes attempts until one succeeds, or until there is a reason to stop. The parameter stop
// is the reason why even the next attempt must not run, or nil.
func (s *sequence) repeat(ctx context.Context, o *Options, op func(context.Context) error,
	stop error) error {
	for stop == nil {
		err := s.run(o, op)
		if err == nil {
			return nil
		}
		stop = s.failed(ctx, o, err)
	}
	return s.error(o, stop)
}

// Value is Do for an operation that returns a value. If the error is not nil, the value is zero.
//
// If T is *http.Response or io.ReadCloser, AttemptTimeout covers the body too: the attempt's
// context lives until the body is closed or read to its end.
func Value[T any](
	ctx context.Context, op func(context.Context) (T, error), opts ...Options,
) (T, error) {
	var v, zero T
	if len(opts) == 1 && opts[0].AttemptTimeout > 0 && hasBody[T]() {
		o := opts[0]
		op = limitBody(op, o.AttemptTimeout)
		o.AttemptTimeout, o.timed = 0, true
		opts = []Options{o}
	}
	err := Do(ctx, func(ctx context.Context) (err error) {
		v, err = op(ctx)
		return err
	}, opts...)
	if err != nil {
		return zero, err
	}
	return v, nil
}

// Fallback is Value with an alternative: if the retry of op stops, Fallback calls alternative once
// with the error and returns its result. It does not call alternative if ctx has ended, if the
// options are invalid, or if an outer retry will try op again. If alternative fails as well, the
// error holds both failures, and errors.As finds the failure of alternative first.
//
// To let attempts alternate between services, see Options.Targets and the action Failover.
func Fallback[T any](
	ctx context.Context, op func(context.Context) (T, error),
	alternative func(context.Context, error) (T, error), opts ...Options,
) (T, error) {
	v, err := Value(ctx, op, opts...)
	if err == nil || ctx.Err() != nil || stoppedBy(err, ErrNested, ErrOptions) {
		return v, err
	}
	v, failed := alternative(ctx, err)
	if failed != nil {
		var zero T
		return zero, &fallbackError{err, failed}
	}
	return v, nil
}
