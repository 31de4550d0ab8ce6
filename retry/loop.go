package retry

import (
	"context"
	"iter"
)

// Loop is a retry as a range statement, in the manner of bufio.Scanner:
//
//	loop := retry.NewLoop(ctx)
//	for a := range loop.Attempts() {
//		a.End(work(a.Context()))
//	}
//	return loop.Err()
//
// A Loop serves one goroutine and one range.
type Loop struct {
	seq     sequence
	opts    Retrier
	ctx     context.Context // the caller's, for the length of the range
	running context.Context // of the running attempt
	cancel  context.CancelFunc
	ended   bool
	failure error
	err     error
	done    bool
}

// NewLoop prepares a loop; nothing happens before Attempts is ranged over.
func NewLoop(ctx context.Context, opts ...Option) *Loop {
	l := &Loop{ctx: ctx, opts: configure(opts)}
	return l
}

// Loop prepares a loop with these settings.
func (r *Retrier) Loop(ctx context.Context) *Loop { return &Loop{ctx: ctx, opts: *r} }

// Attempts gives the attempts one by one and waits in between. The range ends when an attempt has ended with nil, or
// when there is no further one; Err tells which. An attempt that the body leaves without [Try.End], by break or
// otherwise, ends the range with ErrAbandoned.
func (l *Loop) Attempts() iter.Seq[Try] {
	return func(yield func(Try) bool) {
		if l.done {
			return
		}
		l.done = true
		l.err = l.run(yield)
	}
}

func (l *Loop) run(yield func(Try) bool) error {
	s := &l.seq
	s.r = &l.opts
	var stop error
	if l.opts.watched() || l.ctx.Err() != nil {
		stop = s.begin(l.ctx)
	} else {
		s.mark = first(l.ctx, "")
	}
	for stop == nil {
		goOn := l.attempt(yield)
		if !l.ended {
			return s.error(ErrAbandoned)
		}
		if l.failure == nil {
			return nil
		}
		if !goOn {
			// The body reported the failure and left: it wants no further attempt.
			s.failures.add(l.failure)
			return s.error(ErrAbandoned)
		}
		stop = s.failed(l.ctx, l.failure)
	}
	return s.error(stop)
}

// attempt lets the body make one attempt.
func (l *Loop) attempt(yield func(Try) bool) (goOn bool) {
	s := &l.seq
	l.ended, l.failure, l.running = false, nil, s.mark
	if l.opts.AttemptTimeout > 0 {
		l.running, l.cancel = context.WithTimeoutCause(s.mark, l.opts.AttemptTimeout, ErrAttemptTimeout)
		defer l.cancel()
	}
	s.starts()
	defer func() {
		if !l.ended {
			s.give(s.tries, Failed)
		}
	}()
	return yield(Try{loop: l})
}

// Err returns nil after a success, and an *Error that tells why the range ended otherwise. Before the range it is nil.
func (l *Loop) Err() error { return l.err }

// Try is one attempt of a Loop, valid for one turn of the range.
type Try struct{ loop *Loop }

// Context is the attempt's context: with the caller's deadline, AttemptTimeout, number and key.
func (t Try) Context() context.Context { return t.loop.running }

// Number counts from 1.
func (t Try) Number() int { return t.loop.seq.mark.number }

// Target is the service to use, from 0; see Retrier.Targets.
func (t Try) Target() int { return t.loop.seq.mark.target }

// Key is the sequence's key.
func (t Try) Key() string { return t.loop.seq.mark.key }

// End says how the attempt ended; nil is success. The first call counts.
func (t Try) End(err error) {
	l := t.loop
	if l.ended {
		return
	}
	l.ended, l.failure = true, err
	l.seq.ends(err)
}
