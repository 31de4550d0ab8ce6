package retry

import (
	"context"
	"iter"
	"sync"
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
	turns *turns // nil once the range has ended
	err   error
}

// NewLoop prepares a loop; nothing happens before Attempts is ranged over.
func NewLoop(ctx context.Context, opts ...Option) *Loop {
	return &Loop{turns: newTurns(ctx, nil, opts)}
}

// Loop prepares a loop with these settings.
func (r *Retrier) Loop(ctx context.Context) *Loop { return &Loop{turns: newTurns(ctx, r, nil)} }

// Attempts gives the attempts one by one and waits in between. The range ends when an attempt has ended with nil, or
// when there is no further one; Err tells which. An attempt that the body leaves without [Try.End], by break or
// otherwise, ends the range with ErrAbandoned; so does a body that leaves after a failure.
func (l *Loop) Attempts() iter.Seq[Try] {
	return func(yield func(Try) bool) {
		if t := l.turns; t != nil {
			l.turns = nil
			l.err = t.run(yield)
		}
	}
}

// Err returns nil after a success, and an *Error that tells why the range ended otherwise. Before the range it is nil.
func (l *Loop) Err() error { return l.err }

// turns is what a range needs while it runs. It is used again by later loops, so a Try holds the number of the range
// for which it is valid.
type turns struct {
	sequence
	settings Retrier
	ctx      context.Context // the caller's, for the length of the range
	running  context.Context // of the running attempt
	cancel   context.CancelFunc
	ended    bool
	failure  error
	use      uint64
}

var turnsPool = sync.Pool{New: func() any { return new(turns) }}

func newTurns(ctx context.Context, r *Retrier, opts []Option) *turns {
	t := turnsPool.Get().(*turns)
	t.ctx = ctx
	if r != nil {
		t.settings = *r
	} else {
		t.settings = configure(opts)
	}
	return t
}

// run makes the attempts. What it needed goes back to the pool unless the body panics.
func (t *turns) run(yield func(Try) bool) error {
	err := t.all(yield)
	*t = turns{use: t.use + 1}
	turnsPool.Put(t)
	return err
}

func (t *turns) all(yield func(Try) bool) error {
	r := &t.settings
	var stop error
	if r.watched() || t.ctx.Err() != nil {
		stop = t.begin(t.ctx, r)
	} else {
		t.mark = first(t.ctx)
	}
	for stop == nil {
		goOn := t.turn(yield)
		switch {
		case !t.ended:
			return t.error(r, ErrAbandoned)
		case t.failure == nil:
			return nil
		case !goOn:
			t.failures.add(t.failure)
			return t.error(r, ErrAbandoned)
		}
		stop = t.failed(t.ctx, r, t.failure)
	}
	return t.error(r, stop)
}

// turn lets the body make one attempt.
func (t *turns) turn(yield func(Try) bool) (goOn bool) {
	r := &t.settings
	t.ended, t.failure, t.running = false, nil, t.mark
	if r.AttemptTimeout > 0 {
		t.running, t.cancel = context.WithTimeoutCause(t.mark, r.AttemptTimeout, ErrAttemptTimeout)
		defer t.cancel()
	}
	t.starts(r)
	defer func() {
		if !t.ended {
			t.give(r, t.tries, Failed)
		}
	}()
	return yield(Try{turns: t, use: t.use})
}

// Try is one attempt of a Loop, valid for one turn of the range.
type Try struct {
	turns *turns
	use   uint64
}

// Context is the attempt's context: with the caller's deadline, AttemptTimeout, number, target and key.
func (t Try) Context() context.Context { return t.live().running }

// Number counts from 1.
func (t Try) Number() int { return t.live().mark.number }

// Target is the service to use, from 0; see Retrier.Targets.
func (t Try) Target() int { return t.live().mark.target }

// Key is the sequence's key.
func (t Try) Key() string { return t.live().mark.key }

// End says how the attempt ended; nil is success. The first call counts.
func (t Try) End(err error) {
	turns := t.live()
	if turns.ended {
		return
	}
	turns.ended, turns.failure = true, err
	turns.ends(&turns.settings, err)
}

// live returns what the attempt belongs to. Using a Try after its range has ended is a mistake in the program.
func (t Try) live() *turns {
	if t.turns == nil || t.turns.use != t.use {
		panic("retry: a Try was used after its range had ended")
	}
	return t.turns
}
