package retry

import (
	"context"
	"iter"
	"sync"
)

// Loop is a retry as a range statement, used like a bufio.Scanner. The zero value is ready to use:
//
//	var loop retry.Loop
//	for ctx := range loop.Attempts(ctx) {
//		loop.End(work(ctx))
//	}
//	return loop.Err()
//
// A Loop serves one goroutine, and one range at a time.
type Loop struct {
	state *loopState // of the running range; nil outside of a range
	err   error
}

// Attempts returns the contexts of the attempts, one by one, and waits between them. The range ends
// after a successful attempt. An attempt is successful if the body calls End(nil), or leaves the
// range by break or return without calling End. If no further attempt may follow, the range ends
// with an error, which Err returns. It also ends with an error if the body leaves the range after
// calling End with a failure, or continues without calling End.
//
// At most one Options may be given. Without Options, the defaults apply. Each range is a new retry.
func (l *Loop) Attempts(ctx context.Context, opts ...Options) iter.Seq[context.Context] {
	return func(yield func(context.Context) bool) {
		if l.state != nil {
			panic("retry: a Loop serves one range at a time")
		}
		s := newLoopState(ctx, opts)
		l.state = s
		defer func() { l.state = nil }() // also if the body panics
		l.err = s.all(yield)
		s.free()
	}
}

// End ends the attempt. A nil err is a success. Only the first call in an attempt has an effect.
// End panics outside of the range.
func (l *Loop) End(err error) {
	if l.state == nil {
		panic("retry: Loop.End outside of the range")
	}
	if s := l.state; !s.ended {
		s.ended, s.failure = true, err
		s.finish(&s.options, err)
	}
}

// Err returns nil after a success, and otherwise an *Error with the reason why the range ended.
// Before the range it is nil.
func (l *Loop) Err() error { return l.err }

// loopState is the state of a range while it runs. Later loops reuse it.
type loopState struct {
	sequence
	options Options
	invalid error           // options are invalid
	ctx     context.Context // the caller's, during the range
	ended   bool            // the body has called End in this attempt
	failure error
}

var loopStates = sync.Pool{New: func() any { return new(loopState) }}

// newLoopState is not part of Attempts so that the compiler inlines Attempts and the Loop stays on
// the caller's stack.
func newLoopState(ctx context.Context, opts []Options) *loopState {
	l := loopStates.Get().(*loopState)
	l.ctx = ctx
	o, err := choose(opts)
	l.options, l.invalid = *o, err
	return l
}

// free returns the state to the pool, for later loops. After a panic of the body, free is not
// called.
func (l *loopState) free() {
	*l = loopState{}
	loopStates.Put(l)
}

func (l *loopState) all(yield func(context.Context) bool) error {
	o := &l.options
	if l.invalid != nil {
		return &Error{Stop: l.invalid}
	}
	defer l.end(o)
	stop := l.begin(l.ctx, o)
	for stop == nil {
		left := !l.attemptOnce(yield)
		switch {
		case !l.ended && !left:
			l.report(o, nil)
			return l.error(o, errAbandoned)
		case l.failure == nil:
			return nil
		case left:
			l.failures.add(l.failure)
			l.report(o, l.failure)
			return l.error(o, errAbandoned)
		}
		stop = l.failed(l.ctx, o, l.failure)
	}
	return l.error(o, stop)
}

// attemptOnce runs the body of the range once, as one attempt. It returns false if the body left
// the range by break or return.
func (l *loopState) attemptOnce(yield func(context.Context) bool) bool {
	o := &l.options
	ctx := l.sequence.ctx
	l.ended, l.failure = false, nil
	if o.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.AttemptTimeout, ErrAttemptTimeout)
		defer cancel()
	}
	l.start(o)
	goesOn := yield(ctx)
	switch {
	case l.ended:
	case goesOn:
		l.leave()
	default:
		l.finish(o, nil)
	}
	return goesOn
}
