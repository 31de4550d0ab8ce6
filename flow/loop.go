package flow

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// loop is one Run: it feeds the machine what happens and carries out what it says. Nothing here decides. What follows belongs to
// whoever turns it (turning.go), but for box, base, the channels and the atomics.
type loop[T any] struct {
	s    *Sender[T]
	o    *Options[T]
	box  *mailbox[T]
	mail mail[T]
	crew crew[T]

	base   context.Context // of the producer, the undertaker and every attempt, which outlive the call that starts them
	cancel context.CancelCauseFunc

	items   store[T]
	lanes   roster[T]
	running flight[T]

	now      time.Duration // of the last event
	queue    []control.Event
	out      []control.Command
	flushing bool

	turns  atomic.Int64  // 0: nobody turns; else somebody does, and more than when it last looked: there is mail
	handed chan struct{} // holds one: the goroutine of Run turns on
	alarm  *alarm
	rang   atomic.Bool // the alarm has, since the last turn
	over   bool        // everything is done, and nobody turns any more
	fallen *PanicError // how a turn ended that did not return; nil: all did

	ask      chan struct{} // holds one: produce an item
	asked    bool
	ahead    Item[T] // the producer's next, which the machine has no room for yet
	hasAhead bool
	produced bool // the producer has ended
	finalErr error
	graves   chan *held[T] // holds one; nil until the first burial
	refused  []*held[T]    // wait for the undertaker; bounded by the items held
	digging  bool
	stopping bool
	drained  bool // everything has settled

	dismissed bool
}

func newLoop[T any](s *Sender[T]) *loop[T] {
	l := &loop[T]{s: s, o: &s.o, box: s.box, ask: make(chan struct{}, 1), handed: make(chan struct{}, 1)}
	l.items.bySeq = make(map[uint64]*held[T])
	l.running.byID = make(map[uint64]*attempt[T])
	return l
}

// run turns until everything has settled, or until it stops and nothing runs any more.
func (l *loop[T]) run(ctx context.Context, p Producer[T]) error {
	l.base, l.cancel = context.WithCancelCause(ctx)
	defer l.dismiss() // also when a callback panics
	l.alarm = newAlarm()
	defer l.alarm.timer.Stop()
	l.turns.Store(1)
	l.crew.produce(p, l)
	done := ctx.Done()
	for over := l.keepOn(); !over; {
		mine := false
		select {
		case <-l.handed:
			mine = true
		case <-l.box.wake:
		case <-l.alarm.timer.C:
			l.rang.Store(true)
		case <-done:
			done = nil
		}
		if mine || l.turns.Add(1) == 1 {
			l.fall()
			over = l.keepOn()
		}
	}
	l.dismiss()
	l.leave()
	return l.finalErr
}

// turn takes the mail, tells the machine and does what it says.
func (l *loop[T]) turn() {
	if l.rang.Swap(false) {
		l.alarm.armed = false
	}
	l.box.take(&l.mail)
	m := &l.mail
	if l.base.Err() != nil {
		l.stop(context.Cause(l.base))
	}
	for _, a := range m.answers {
		l.answered(a)
	}
	l.now = max(l.now, m.now)
	if m.relaned && !l.stopping {
		l.relane(m.lanes)
	}
	if m.saved != 0 {
		l.step(control.Event{Kind: control.Saved, Bytes: m.saved})
	}
	if m.offered {
		l.asked = false
		l.ahead, l.hasAhead = m.offer, true
	}
	if m.ended != nil {
		l.produced = true
		if m.ended != io.EOF && !l.stopping {
			l.finalErr = m.ended
		}
	}
	if m.buried != nil {
		l.buried(m.buried, m.buryErr)
	}
	l.expire()
	l.pull()
}

// pull gives the machine the producer's next item when there is room for it, and asks for the one behind it: so that it is at hand
// when the next answer comes.
func (l *loop[T]) pull() {
	if l.hasAhead && !l.stopping && l.room() {
		it := l.ahead
		l.ahead, l.hasAhead = Item[T]{}, false
		l.offer(it)
	}
	if l.asked || l.produced || l.stopping || l.hasAhead || l.o.MaxBytes > 0 && l.items.bytes >= l.o.MaxBytes {
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

// offer tells the machine of an item.
func (l *loop[T]) offer(it Item[T]) {
	h, err := l.items.add(it)
	if err != nil {
		l.stop(err)
		return
	}
	l.step(control.Event{Kind: control.Offer, Seq: h.seq, Cost: h.Cost, Bytes: h.Bytes, Keys: h.keys})
}

// expire ends the attempts that have taken too long and lets the machine see that time has passed.
func (l *loop[T]) expire() {
	if l.stopping {
		return
	}
	for a := l.running.first; a != nil && a.abandon <= l.now; a = l.running.first {
		l.running.end(a, ErrAbandoned)
	}
	if at, ok := l.wake(); ok && at <= l.now {
		l.step(control.Event{Kind: control.Tick})
	}
}

// nextWake is when expire has something to do.
func (l *loop[T]) nextWake() (at time.Duration, ok bool) {
	if l.stopping {
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

// step tells the machine one thing.
func (l *loop[T]) step(e control.Event) {
	l.put(e)
	l.flush()
}

// put lines e up behind what the machine will be told first.
func (l *loop[T]) put(e control.Event) {
	e.Now = l.now
	l.queue = append(l.queue, e)
}

// flush tells the machine everything that is lined up. What a command puts comes behind.
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
		for _, c := range l.out {
			l.carryOut(c)
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
			l.running.end(a, ErrSuperseded)
		}
	case control.Start, control.Bisect, control.Bury:
		if l.stopping {
			return // nothing new is begun
		}
		h := l.items.bySeq[c.Seq]
		if h == nil || h.done {
			panic(fmt.Sprintf("flow: BUG: command %d for item %d, which is not held", c.Kind, c.Seq))
		}
		switch c.Kind {
		case control.Start:
			l.start(h, c)
		case control.Bisect:
			l.blame(h, c)
			l.bisect(h)
		case control.Bury:
			l.blame(h, c)
			l.bury(h)
		}
	}
}

// stop begins the end: no lane takes anything more, and what runs is told to return.
func (l *loop[T]) stop(cause error) {
	if l.stopping || l.drained {
		return
	}
	l.stopping, l.finalErr = true, cause
	l.cancel(cause)
	for l.running.first != nil {
		l.running.end(l.running.first, cause)
	}
	for _, ln := range l.lanes.byNumber {
		if ln != nil && ln.up {
			ln.up = false
			l.put(control.Event{Kind: control.LaneDown, Lane: ln.number})
		}
	}
	l.flush()
}

// ended says whether the loop is over: nothing runs, and nothing is to be done or the sender stops.
func (l *loop[T]) ended() bool {
	if !l.stopping && !l.drained {
		if !l.produced || l.hasAhead || l.items.open > 0 {
			return false
		}
		l.drained = true
		for l.running.first != nil { // second attempts of items that have settled
			l.running.end(l.running.first, ErrSuperseded)
		}
	}
	return len(l.running.byID) == 0 && !l.digging
}

// dismiss ends every goroutine and waits for it. It may be called twice.
func (l *loop[T]) dismiss() {
	if l.dismissed {
		return
	}
	l.dismissed = true
	l.cancel(nil)
	close(l.ask)
	if l.graves != nil {
		close(l.graves)
	}
	l.crew.dismiss()
}

// leave releases what is left over.
func (l *loop[T]) leave() {
	l.box.take(&l.mail)
	if l.mail.offered {
		l.ahead, l.hasAhead = l.mail.offer, true
	}
	if l.hasAhead {
		_, _ = l.items.add(l.ahead) // it came too late to be wrong
	}
	for _, h := range l.items.all() {
		l.release(h)
	}
}
