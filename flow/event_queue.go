package flow

import (
	"sync"
	"time"
)

// eventQueue passes events from other goroutines to the event loop (loop.go), which takes all of
// them at once. It holds at most one response for each running attempt, one item of the producer,
// one dead letter, one result of each WaitStore.Next, and the newest lanes. So its size is bounded.
type eventQueue[T any] struct {
	start time.Time
	// wake makes the goroutine of Run run the loop. A goroutine that has queued events, and does
	// not run the loop itself, sends to wake. The capacity is one.
	wake chan struct{}

	mu      sync.Mutex // guards the fields below
	pending pendingEvents[T]
	closed  bool // the loop has ended and takes no further events
}

// pendingEvents are the events since the last take.
type pendingEvents[T any] struct {
	now           time.Duration // time of the take, since the start
	answers       []*attempt[T] // in the order of returnedAt
	offer         Item[T]
	offered       bool  // offer is an item
	ended         error // error of the producer; io.EOF at its end
	deadLettered  *heldItem[T]
	deadLetterErr error
	returned      [waitKinds]*nextResult[T] // results of WaitStore.Next; nil if there is none
	saved         int64
	lanes         []Lane[T] // the whole new list; nil if it has not changed

	withdraw bool // Options.Withdrawn may have changed

	pinged chan struct{} // closed when the loop has handled these events; nil if there was no Ping
}

func newEventQueue[T any]() *eventQueue[T] {
	return &eventQueue[T]{start: time.Now(), wake: make(chan struct{}, 1)}
}

// wakeRun wakes the goroutine of Run.
func (b *eventQueue[T]) wakeRun() {
	select {
	case b.wake <- struct{}{}:
	default: // a wakeup is pending, and all events are taken after it
	}
}

// answer queues an attempt that has returned. It records the time here, so that the round trip does
// not include the loop's delay.
func (b *eventQueue[T]) answer(a *attempt[T]) {
	b.mu.Lock()
	a.returnedAt = time.Since(b.start)
	b.pending.answers = append(b.pending.answers, a)
	b.mu.Unlock()
}

// put changes the pending events under the lock.
func (b *eventQueue[T]) put(change func(*pendingEvents[T])) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.pending)
}

// putAndWake is like put, and wakes the goroutine of Run. It is for methods of Sender, which must
// not run the loop themselves: their callers may hold locks that a callback takes.
func (b *eventQueue[T]) putAndWake(change func(*pendingEvents[T])) {
	b.put(change)
	b.wakeRun()
}

// putPing returns a channel that is closed when the loop has handled the events queued so far, or
// has ended.
func (b *eventQueue[T]) putPing() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending.pinged == nil {
		b.pending.pinged = make(chan struct{})
		if b.closed {
			close(b.pending.pinged)
		} else {
			b.wakeRun()
		}
	}
	return b.pending.pinged
}

// close ends the event queue. It closes the channels that putPing returned, and later calls of
// putPing return a closed channel.
func (b *eventQueue[T]) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.pending.answerPing()
}

// answerPing closes the channel of the pings in m, if there are any.
func (m *pendingEvents[T]) answerPing() {
	if m.pinged != nil {
		close(m.pinged)
		m.pinged = nil
	}
}

// take moves the queued events to m. The queue reuses the memory of the old m.
func (b *eventQueue[T]) take(m *pendingEvents[T]) {
	clear(m.answers)
	*m = pendingEvents[T]{answers: m.answers[:0]}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending, *m = *m, b.pending
	m.now = time.Since(b.start)
}
