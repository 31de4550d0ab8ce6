package flow

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// loop is the event loop of one Run: it feeds events to the state machine and carries out its
// commands. It decides nothing. Its fields belong to the goroutine that runs the loop
// (loop_owner.go), except events, base, the channels and the atomics.
type loop[T any] struct {
	s          *Sender[T]
	o          *Options[T]
	events     *eventQueue[T]
	pending    pendingEvents[T]
	goroutines goroutines[T]

	base   context.Context // parent of the contexts of all callbacks and attempts
	cancel context.CancelCauseFunc

	items   store[T]
	lanes   laneTable[T]
	running attemptTable[T]

	now      time.Duration // time of the last event
	queue    []control.Event
	out      []control.Command
	flushing bool

	// claims is 0 while no goroutine runs the loop. The goroutine that begins to run it adds 1.
	// Each goroutine that queues an event meanwhile also adds 1, so that the goroutine that runs
	// the loop handles this event before it stops.
	claims     atomic.Int64
	handedOver chan struct{} // holds one: the goroutine of Run continues the loop
	alarm      *alarm
	alarmFired atomic.Bool // the alarm has fired since the last round
	done       bool        // everything is done, and the loop has ended
	panicked   *PanicError // panic of a callback; nil if none has panicked

	ask         chan struct{} // holds one: a request for an item
	asked       bool
	ahead       Item[T] // the producer's next item, for which the machine had no room yet
	hasAhead    bool
	produced    bool  // the producer has ended
	finalErr    error // result of Run
	deadLetters deadLetterQueue[T]
	phase       phase

	goroutinesStopped bool
}

// phase is the phase of a loop. It changes at most once.
type phase uint8

const (
	delivering phase = iota
	drained          // everything has settled
	stopping         // running attempts end, and nothing new begins
)

func newLoop[T any](s *Sender[T]) *loop[T] {
	l := &loop[T]{s: s, o: &s.o, events: s.events, ask: make(chan struct{}, 1),
		handedOver: make(chan struct{}, 1)}
	l.items.bySeq = make(map[uint64]*heldItem[T])
	l.goroutines.runners = make(map[*runner[T]]struct{})
	l.running.byID = make(map[uint64]*attempt[T])
	return l
}

// run runs the loop until everything has settled or the Sender stops. It returns when no attempt
// runs any more.
func (l *loop[T]) run(ctx context.Context, p Producer[T]) error {
	l.base, l.cancel = context.WithCancelCause(ctx)
	defer l.stopGoroutines() // also when a callback panics
	defer func() {
		l.pending.answerPing()
		l.events.close()
	}()
	l.alarm = newAlarm()
	defer l.alarm.timer.Stop()
	l.claims.Store(1)
	l.goroutines.produce(p, l)
	l.items.deferred.start(l)
	// Wait for l.base, which is derived from ctx, instead of ctx. ctx may be done a moment before
	// base is.
	done := l.base.Done()
	for over := l.runToEnd(); !over; {
		owner := false
		select {
		case <-l.handedOver:
			owner = true
		case <-l.events.wake:
		case <-l.alarm.timer.C:
			l.alarmFired.Store(true)
		case <-done:
			done = nil
		}
		if owner || l.claims.Add(1) == 1 {
			l.rethrow()
			over = l.runToEnd()
		}
	}
	l.stopGoroutines()
	l.releaseAll()
	return l.finalErr
}

// handleEvents handles all events in the event queue.
func (l *loop[T]) handleEvents() {
	if l.alarmFired.Swap(false) {
		l.alarm.armed = false
	}
	l.events.take(&l.pending)
	m := &l.pending
	if l.base.Err() != nil {
		l.stop(context.Cause(l.base))
	}
	for _, a := range m.answers {
		l.answered(a)
	}
	l.now = max(l.now, m.now)
	if m.lanes != nil && l.phase != stopping {
		l.replaceLanes(m.lanes)
	}
	if m.saved != 0 {
		l.step(control.Event{Kind: control.Saved, Bytes: m.saved})
	}
	if m.offered {
		l.asked = false
		l.ahead, l.hasAhead = m.offer, true
		withdrawAhead(l)
	}
	if m.withdraw {
		withdrawAll(l)
	}
	if m.ended != nil {
		l.produced = true
		if m.ended != io.EOF && l.phase != stopping {
			l.finalErr = m.ended
		}
	}
	if m.deadLettered != nil {
		l.deadLettered(m.deadLettered, m.deadLetterErr)
	}
	l.items.deferred.collect(l)
	l.expire()
	l.pull()
	l.items.deferred.request(l)
	m.answerPing()
}

// pull passes the producer's next item to the state machine if there is room. It also requests the
// item after that one, so that the next item is ready when an attempt returns.
func (l *loop[T]) pull() {
	if l.hasAhead && l.phase != stopping && l.room() {
		it := l.ahead
		l.ahead, l.hasAhead = Item[T]{}, false
		l.offer(it, History{})
	}
	if l.asked || l.produced || l.phase == stopping || l.hasAhead || l.o.MaxBytes > 0 &&
		l.items.bytes >= l.o.MaxBytes {
		return
	}
	l.asked = true
	l.ask <- struct{}{}
}

func (l *loop[T]) room() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.machine.Room()
}

// offer passes an item to the state machine.
func (l *loop[T]) offer(it Item[T], past History) {
	h, err := l.items.add(it)
	if err != nil {
		l.stop(err)
		return
	}
	h.sent = past.Attempts > 0
	if withdrawalOf(l, it, h.sent) != NotWithdrawn {
		l.settled(h, Settlement{Withdrawn: true})
		return
	}
	l.step(control.Event{Kind: control.Offer, Seq: h.seq, Cost: h.Cost, Bytes: h.Bytes,
		Keys: h.keys, History: past})
}

// expire ends the attempts that have taken longer than Options.Abandon. It also passes a Tick to
// the state machine if one is due.
func (l *loop[T]) expire() {
	if l.phase == stopping {
		return
	}
	for a := l.running.first; a != nil && a.abandon <= l.now; a = l.running.first {
		l.running.cancel(a, ErrAbandoned)
	}
	if at, ok := l.wake(); ok && at <= l.now {
		l.step(control.Event{Kind: control.Tick})
	}
}

// nextWake returns the time of the next expire, and false if none is needed.
func (l *loop[T]) nextWake() (at time.Duration, ok bool) {
	if l.phase == stopping {
		return 0, false
	}
	at, ok = l.wake()
	if a := l.running.first; a != nil && (!ok || a.abandon < at) {
		return a.abandon, true
	}
	return at, ok
}

func (l *loop[T]) wake() (at time.Duration, ok bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.machine.Wake()
}

// step passes one event to the state machine, and carries out the resulting commands.
func (l *loop[T]) step(e control.Event) {
	l.put(e)
	l.flush()
}

// put queues an event for flush, with the time of the loop.
func (l *loop[T]) put(e control.Event) {
	e.Now = l.now
	l.queue = append(l.queue, e)
}

// flush passes the queued events to the state machine and carries out its commands. It does the
// same for the events that the commands queue.
func (l *loop[T]) flush() {
	if l.flushing {
		return
	}
	l.flushing = true
	for i := 0; i < len(l.queue); i++ {
		l.s.mu.Lock()
		l.out = l.s.machine.Step(l.queue[i], l.out[:0])
		l.s.mu.Unlock()
		if l.o.Trace != nil {
			l.o.Trace(&l.queue[i], l.out)
		}
		next := i + 1
		for _, c := range l.out {
			if c.Kind != control.Defer {
				l.carryOut(c)
				continue
			}
			// The state machine must see the result of the Defer before other events of the item.
			l.queue = slices.Insert(l.queue, next, l.items.deferred.take(l, c))
			next++
		}
	}
	clear(l.queue)
	l.queue = l.queue[:0]
	l.flushing = false
}

func (l *loop[T]) carryOut(c control.Command) {
	switch c.Kind {
	case control.Settle:
		l.settle(c)
	case control.Cancel:
		if a := l.running.byID[c.ID]; a != nil {
			l.running.cancel(a, cancelCause(c.Reason))
		}
	case control.Start, control.Bisect, control.DeadLetter, control.Wait:
		if l.phase == stopping {
			return // no new work
		}
		h := l.items.bySeq[c.Seq]
		if h == nil || h.done {
			panic(fmt.Sprintf("flow: BUG: command %v for item %d, which is not held", c.Kind,
				c.Seq))
		}
		switch c.Kind {
		case control.Start:
			l.start(h, c)
		case control.Bisect:
			l.recordRefusal(h, c)
			l.bisect(h)
		case control.DeadLetter:
			l.recordRefusal(h, c)
			l.deadLetter(h)
		case control.Wait:
			l.o.Waiting.Note(h.Item, l.waitOf(c))
		}
	}
}

// stop ends all attempts and takes down all lanes. The first cause is the result of Run.
func (l *loop[T]) stop(cause error) {
	if l.phase != delivering {
		return
	}
	l.phase, l.finalErr = stopping, cause
	l.cancel(cause)
	for l.running.first != nil {
		l.running.cancel(l.running.first, cause)
	}
	for _, ln := range l.lanes.byNumber {
		if ln != nil && ln.up {
			ln.up = false
			l.put(control.Event{Kind: control.LaneDown, Lane: ln.number})
		}
	}
	l.flush()
}

// ended reports whether the loop is over: no attempt runs, and everything has settled or the Sender
// stops.
func (l *loop[T]) ended() bool {
	if l.phase == delivering {
		if !l.produced || l.hasAhead || l.items.open > 0 || !l.items.deferred.done() {
			return false
		}
		l.phase = drained
		for l.running.first != nil { // other attempts of items that have settled
			l.running.cancel(l.running.first, ErrSuperseded)
		}
	}
	return len(l.running.byID) == 0 && !l.deadLetters.active
}

// stopGoroutines ends all goroutines and waits for them. It may be called twice.
func (l *loop[T]) stopGoroutines() {
	if l.goroutinesStopped {
		return
	}
	l.goroutinesStopped = true
	l.cancel(nil)
	close(l.ask)
	if l.deadLetters.next != nil {
		close(l.deadLetters.next)
	}
	l.items.deferred.stop()
	l.goroutines.stop()
}

// releaseAll releases the items that the loop still holds.
func (l *loop[T]) releaseAll() {
	l.events.take(&l.pending)
	if l.pending.offered {
		l.ahead, l.hasAhead = l.pending.offer, true
	}
	if l.hasAhead {
		_, _ = l.items.add(l.ahead) // an invalid item is released like the others
	}
	l.items.deferred.collect(l)
	for _, h := range l.items.all() {
		l.release(h)
	}
}
