package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/flow/control"
)

// start starts the attempt of h that command c describes.
func (l *loop[T]) start(h *heldItem[T], c control.Command) {
	ln := l.lanes.byNumber[c.Lane]
	a := l.running.newAttempt()
	a.Attempt = Attempt[T]{Value: h.Value, ID: c.ID, Number: int(c.Number), Run: c.Run,
		Index: c.Index}
	if c.Expect != 0 {
		a.Expect = l.events.start.Add(c.Expect)
	}
	a.item, a.lane, a.worker = h, ln, ln.Worker
	a.abandon = l.now + l.o.Abandon
	h.running++
	h.sent = true
	ln.running++
	l.running.add(a)
	if ln.Inline {
		a.ctx, a.cancel = l.base, func(error) {}
		a.deliver(l.events)
		l.claims.Add(1) // the result is in the event queue
		return
	}
	a.ctx, a.cancel = context.WithCancelCause(l.base)
	l.goroutines.deliver(a, l)
}

// answered handles the return of an attempt.
func (l *loop[T]) answered(a *attempt[T]) {
	l.now = max(l.now, a.returnedAt)
	h, ln, err := a.item, a.lane, a.err
	l.running.remove(a)
	if a.runner != nil {
		l.goroutines.returnRunner(a.runner, a.exited)
	}
	h.running--
	ln.running--
	e := control.Event{Kind: control.Answer, Outcome: a.outcome, Lane: ln.number, Seq: h.seq,
		ID: a.ID, Report: a.report}
	if e.Outcome == control.Retryable && a.ended != nil {
		e.Outcome = control.TimedOut
	}
	if e.Outcome == control.Retryable || e.Outcome == control.TimedOut {
		e.Died, h.failure = died[T](err), err
	}
	ln.fault = nil
	if e.Outcome == control.Misconfigured {
		ln.fault = err
	}
	isFailure := e.Outcome != control.Delivered && (a.ended == nil || a.ended == ErrAbandoned)
	if isFailure && l.o.Failed != nil {
		l.o.Failed(l.base, h.Item, a.failure(&e))
	}
	l.running.reuse(a)
	l.putAnswer(h, e, err)
	last := h.done && h.running == 0
	l.flush()
	if last {
		l.release(h)
	}
	if ln.fault != nil && !l.o.AwaitRepair && l.lanes.allFaulty() {
		l.stop(fmt.Errorf("flow: no lane can deliver: lane %q: %w", ln.Name, ln.fault))
	}
	l.freeNumber(ln)
}

// failure returns the description of an attempt that did not deliver. e is its answer.
func (a *attempt[T]) failure(e *control.Event) Failure {
	f := Failure{Lane: a.lane.Name, Number: a.Number, Outcome: e.Outcome, Err: a.err, Died: e.Died}
	if e.Outcome == control.Split {
		f.Died = typed[T](a.err).(*Split[T]).diedAt() >= 0
	}
	if a.ended == ErrAbandoned && !errors.Is(a.err, ErrAbandoned) {
		f.Err = fmt.Errorf("%w: %w", ErrAbandoned, a.err)
	}
	return f
}

// putAnswer queues e, the answer of an attempt of h that returned err.
func (l *loop[T]) putAnswer(h *heldItem[T], e control.Event, err error) {
	switch e.Outcome {
	case control.Delivered:
		if e.Report.ResumeToken != "" && !h.done {
			h.tokens = append(h.tokens, deliveredToken{e.ID, e.Report.ResumeToken})
		}
	case control.Throttled:
		e.After = max(0, typed[T](err).(*Throttled).After)
	case control.Rejected:
		h.refusal = err
	case control.Split:
		l.split(h, e, err)
		return
	}
	l.put(e)
}

// split passes e, the answer of an attempt that delivered only a part of item h, to the state
// machine. err has the pieces that replace h. If h was settled or replaced before, the pieces are
// not needed, and are dropped.
func (l *loop[T]) split(h *heldItem[T], e control.Event, err error) {
	s := typed[T](err).(*Split[T])
	all := slices.Concat(s.Done, s.Rest, s.Refused)
	if h.done {
		l.put(e)
		for _, it := range all {
			l.released(it)
		}
		return
	}
	e.Pieces = uint32(len(all))
	for _, it := range slices.Concat(s.Done, s.Refused) {
		e.Cost += costOf(it.Cost)
	}
	l.put(e)
	fatal := -1
	if at := s.diedAt(); at >= 0 {
		fatal = len(s.Done) + at
	}
	l.replace(h, all, fatal, func(i int, piece *heldItem[T]) control.Outcome {
		switch {
		case i < len(s.Done):
			piece.tokens = append(piece.tokens, deliveredToken{e.ID, e.Report.ResumeToken})
			return control.Delivered
		case i < len(s.Done)+len(s.Rest):
			return control.Retryable
		}
		if piece.refusal = err; s.Err != nil { // without the numbers of the other pieces
			piece.refusal = &Rejected{Err: s.Err}
		}
		if n := i - len(s.Done) - len(s.Rest); n < len(s.Refusals) && s.Refusals[n] != nil {
			piece.refusal = s.Refusals[n]
		}
		return control.Rejected
	})
}

// replace replaces h by items, its pieces. The parameter fatal is the index of the piece that has
// killed a worker, or -1 if none has.
func (l *loop[T]) replace(h *heldItem[T], items []Item[T], fatal int,
	outcome func(i int, piece *heldItem[T]) control.Outcome) {
	l.items.finish(h)
	var wrong error
	for i, it := range items {
		piece, err := l.items.add(it)
		if err != nil {
			wrong = fmt.Errorf("piece of item %d: %w", h.seq, err)
		}
		piece.sent = h.sent
		l.put(control.Event{
			Kind: control.Piece, Outcome: outcome(i, piece), Seq: piece.seq, Parent: h.seq,
			Cost: piece.Cost, Bytes: piece.Bytes, Keys: piece.keys, Died: i == fatal,
		})
	}
	if wrong != nil {
		l.stop(wrong)
	}
}

// settle carries out a Settle command.
func (l *loop[T]) settle(c control.Command) {
	h := l.items.bySeq[c.Seq]
	if h == nil || h.done {
		panic(fmt.Sprintf("flow: BUG: item %d is settled a second time", c.Seq))
	}
	s := Settlement{Attempts: int(c.Number), Withdrawn: c.Reason == control.Withdrawn}
	s.DeadLettered = c.Lane < 0 && !s.Withdrawn
	if c.Lane >= 0 && c.ID != 0 {
		s.ResumeToken = h.token(c.ID)
		if ln := l.lanes.byNumber[c.Lane]; ln != nil {
			s.Lane = ln.Name
		}
	}
	l.settled(h, s)
}

// settled counts an item as settled, and reports it to Options.Settled.
func (l *loop[T]) settled(h *heldItem[T], s Settlement) {
	l.items.finish(h)
	if l.o.Settled != nil {
		l.o.Settled(h.Item, s)
	}
	if h.running == 0 {
		l.release(h)
	}
}

// recordRefusal notes why the state machine refuses h. If a worker refused h, h.refusal is
// already the worker's error.
func (l *loop[T]) recordRefusal(h *heldItem[T], c control.Command) {
	var words string
	switch {
	case c.Reason == control.Deadly && c.Count == 1:
		words = "1 worker died of it"
	case c.Reason == control.Deadly:
		words = fmt.Sprintf("%d workers died of it", c.Count)
	case c.Reason == control.Exhausted:
		words = fmt.Sprintf("given up after %d failures at workers that delivered other items "+
			"meanwhile", c.Count)
	case c.Reason == control.Failing:
		words = fmt.Sprintf("it failed %d times at workers that delivered other items meanwhile",
			c.Count)
	default:
		return
	}
	h.refusal = &Rejected{Err: fmt.Errorf("%s; last failure: %w", words, h.failure)}
}

// bisect cuts h, or reports that it cannot be cut.
func (l *loop[T]) bisect(h *heldItem[T]) {
	var pieces []Item[T]
	if l.o.Bisect != nil {
		pieces = l.o.Bisect(h.Item, h.refusal)
	}
	if len(pieces) < 2 {
		l.put(control.Event{Kind: control.Cut, Seq: h.seq})
		return
	}
	l.put(control.Event{Kind: control.Cut, Seq: h.seq, Pieces: uint32(len(pieces))})
	l.replace(h, pieces, -1, func(int, *heldItem[T]) control.Outcome { return control.Retryable })
	if h.running == 0 {
		l.release(h)
	}
}

// deadLetter queues h for Options.DeadLetter.
func (l *loop[T]) deadLetter(h *heldItem[T]) {
	if l.o.DeadLetter == nil {
		l.stop(fmt.Errorf("flow: an item was refused; "+
			"set Options.DeadLetter to keep such items: %w",
			h.refusal))
		return
	}
	l.deadLetters.waiting = append(l.deadLetters.waiting, h)
	l.deadLetterNext()
}

func (l *loop[T]) deadLetterNext() {
	b := &l.deadLetters
	if b.active || len(b.waiting) == 0 || l.phase == stopping {
		return
	}
	if b.next == nil {
		b.next = make(chan *heldItem[T], 1)
		l.goroutines.writeDeadLetters(b.next, l)
	}
	b.active = true
	b.next <- b.take()
}

// deadLetterQueue holds the refused items that have not been passed to Options.DeadLetter yet.
type deadLetterQueue[T any] struct {
	next    chan *heldItem[T] // holds one; nil until the first item is refused
	waiting []*heldItem[T]    // bounded by the items held
	active  bool              // a call of DeadLetter runs
}

// take returns the item that has waited longest.
func (b *deadLetterQueue[T]) take() *heldItem[T] {
	h := b.waiting[0]
	b.waiting[0] = nil
	b.waiting = b.waiting[1:]
	return h
}

// deadLettered handles the result of Options.DeadLetter.
func (l *loop[T]) deadLettered(h *heldItem[T], err error) {
	l.deadLetters.active = false
	if err != nil {
		l.stop(fmt.Errorf("flow: store a dead letter: %w", errors.Join(err, h.refusal)))
		return
	}
	l.step(control.Event{Kind: control.DeadLettered, Seq: h.seq})
	l.deadLetterNext()
}

// release drops an item, and reports it to Options.Released, which lists the occasions.
func (l *loop[T]) release(h *heldItem[T]) {
	it := h.Item
	l.items.drop(h)
	l.released(it)
}

func (l *loop[T]) released(it Item[T]) {
	if l.o.Released != nil {
		l.o.Released(it)
	}
}
