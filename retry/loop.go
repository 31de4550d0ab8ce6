package retry

import (
	"context"
	"iter"
	"sync"
)

// Loop is a retry as a range statement, used like a bufio.Scanner:
//
//	loop := retry.NewLoop(ctx)
//	for a := range loop.Attempts() {
//		a.End(work(a.Context()))
//	}
//	return loop.Err()
//
// A Loop serves one goroutine and one range.
type Loop struct {
	state *loopState // nil once the range has ended
	err   error
}

// NewLoop returns a loop. Nothing happens until its Attempts are ranged over.
func NewLoop(ctx context.Context, opts ...Options) *Loop {
	return &Loop{state: newLoopState(ctx, opts)}
}

// Attempts returns the attempts one by one and waits between them. The range ends after a success:
// an attempt that ended with nil, or that the body left by break or return without End. It also
// ends if no further attempt may follow, and Err returns the reason. A body that leaves after a
// failure, or continues without End, ends the range with ErrAbandoned.
func (l *Loop) Attempts() iter.Seq[Try] {
	return func(yield func(Try) bool) {
		if s := l.state; s != nil {
			l.state = nil
			l.err = s.run(yield)
		}
	}
}

// Err returns nil after a success, and otherwise an *Error with the reason why the range ended.
// Before the range it is nil.
func (l *Loop) Err() error { return l.err }

// loopState is the state of a range while it runs. Later loops reuse it, so a Try holds the number
// of its range.
type loopState struct {
	sequence
	options Options
	invalid error           // options are invalid
	ctx     context.Context // the caller's, during the range
	current context.Context // of the running attempt
	cancel  context.CancelFunc
	ended   bool // the attempt has ended, with failure
	failure error
	use     uint64 // the number of the range
}

var loopStates = sync.Pool{New: func() any { return new(loopState) }}

// newLoopState is apart from NewLoop so that the compiler inlines that, and the Loop stays on the
// caller's stack.
func newLoopState(ctx context.Context, opts []Options) *loopState {
	l := loopStates.Get().(*loopState)
	l.ctx = ctx
	o, err := choose(opts)
	l.options, l.invalid = *o, err
	return l
}

// run makes the attempts. The state returns to the pool unless the body panics.
func (l *loopState) run(yield func(Try) bool) error {
	err := l.all(yield)
	*l = loopState{use: l.use + 1}
	loopStates.Put(l)
	return err
}

func (l *loopState) all(yield func(Try) bool) error {
	o := &l.options
	if l.invalid != nil {
		return &Error{Stop: l.invalid}
	}
	stop := l.begin(l.ctx, o)
	for stop == nil {
		left := !l.attemptOnce(yield)
		switch {
		case !l.ended && !left:
			l.report(o, nil)
			return l.error(o, ErrAbandoned)
		case l.failure == nil:
			return nil
		case left:
			l.failures.add(l.failure)
			l.report(o, l.failure)
			return l.error(o, ErrAbandoned)
		}
		stop = l.failed(l.ctx, o, l.failure)
	}
	return l.error(o, stop)
}

// attemptOnce runs the loop's body once and reports whether the range goes on.
func (l *loopState) attemptOnce(yield func(Try) bool) bool {
	o := &l.options
	l.ended, l.failure, l.current = false, nil, l.sequence.ctx
	if o.AttemptTimeout > 0 {
		l.current, l.cancel = context.WithTimeoutCause(l.current, o.AttemptTimeout, ErrAttemptTimeout)
		defer l.cancel()
	}
	l.start(o)
	defer l.panicked(o)
	goesOn := yield(Try{Attempt: l.attempt, state: l, use: l.use})
	switch {
	case l.ended:
	case goesOn:
		l.leave()
	default:
		l.finish(o, nil)
	}
	return goesOn
}

// Try is one attempt of a Loop, valid until the body of the range ends.
type Try struct {
	Attempt
	state *loopState
	use   uint64
}

// Context returns the attempt's context, which ends with AttemptTimeout.
func (t Try) Context() context.Context { return t.live().current }

// End ends the attempt; a nil err is a success. Only the first call counts.
func (t Try) End(err error) {
	l := t.live()
	if l.ended {
		return
	}
	l.ended, l.failure = true, err
	l.finish(&l.options, err)
}

// live returns the state of the attempt's range. It panics if the range has ended, because the
// state may belong to another loop by now.
func (t Try) live() *loopState {
	if t.state == nil || t.state.use != t.use {
		panic("retry: Try used after its range has ended")
	}
	return t.state
}
