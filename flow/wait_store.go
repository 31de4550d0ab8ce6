package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// History is the past of a waiting item: its attempts, and the state of its retry policy.
type History = control.History

// Wait is the wait of an item for its next attempt.
type Wait struct {
	After   time.Duration // time from now until the attempt is due
	History History
}

// WaitStore stores items that wait long for their next attempt: outside of the Sender's memory, and
// perhaps across restarts. The Sender counts them towards Control.Waiting. The store keeps its
// record of an item until the item is settled (Options.Settled) or waits again.
//
// All methods but Next are called on the loop, and must not block.
type WaitStore[T any] interface {
	// Note notes that an item waits, so that after a restart the item continues its wait instead
	// of beginning it again. Note does not take the item: the Sender keeps it.
	Note(it Item[T], w Wait)
	// Take moves a waiting item into the store, and reports whether it did so. If it did, the
	// Sender releases the item. For a wait of a second or more, the Sender first calls Note. A
	// moment later it calls Take, if a second or more is left and no attempt of the item runs. For
	// an item with Keys it calls neither.
	Take(it Item[T], w Wait) bool
	// Next blocks until an item of the store is due, removes it and returns it with its history. If
	// suspect is true, Next returns only suspects, which are items that failed at workers that
	// deliver other items (see History). If suspect is false, it returns only items that are no
	// suspects. Each kind has a goroutine of its own, so two calls may run at the same time.
	//
	// io.EOF means that the Sender should end without the items that are still in the store.
	// ErrNoItem means that Next has removed items and returns none of them. Any other error stops
	// the Sender. When ctx is done, Next must soon return its error, and must not remove an item.
	Next(ctx context.Context, suspect bool) (Item[T], History, error)
	// Held returns the number of items that Take has moved into the store and Next has not returned
	// yet, and the sums of their Cost and Bytes.
	Held() (n int, cost float64, bytes int64)
}

// ErrNoItem is returned by [WaitStore].Next if it has removed items that need no delivery any more,
// for example because their data was deleted. The Sender then calls Held, and Next again if the
// store still has items.
var ErrNoItem = errors.New("flow: the removed items need no delivery")

// The kinds of items that WaitStore.Next returns. Each kind has a goroutine that calls Next.
const (
	retries = iota
	suspects
	waitKinds
)

// deferredItems is the loop's state for the items that a WaitStore keeps.
type deferredItems[T any] struct {
	ask    [waitKinds]chan context.Context // holds one: a request for an item; nil without a store
	asked  [waitKinds]bool
	ctx    context.Context // context of the requests
	cancel context.CancelFunc
	n      int  // result of the last Held
	ended  bool // Next has returned io.EOF
}

// nextResult is the result of WaitStore.Next.
type nextResult[T any] struct {
	item    Item[T]
	history History
	err     error
}

// start starts the goroutines that call WaitStore.Next, and reports the content of the store to the
// state machine.
func (w *deferredItems[T]) start(l *loop[T]) {
	if l.o.Waiting == nil {
		return
	}
	for i := range w.ask {
		w.ask[i] = make(chan context.Context, 1)
		l.goroutines.fetchDeferred(l, w.ask[i], i)
	}
	l.step(w.heldEvent(l, 0))
}

// heldEvent returns the event that reports the content of the store to the state machine.
func (w *deferredItems[T]) heldEvent(l *loop[T], seq uint64) control.Event {
	n, cost, bytes := l.o.Waiting.Held()
	w.n = n
	return control.Event{Kind: control.Held, Now: l.now, Seq: seq, Pieces: uint32(min(n, 1<<31)),
		Cost: cost, Bytes: bytes}
}

// take carries out a Defer command, and returns the event with its result.
func (w *deferredItems[T]) take(l *loop[T], c control.Command) control.Event {
	h := l.items.bySeq[c.Seq]
	if l.phase == stopping || h == nil || h.done || h.running > 0 ||
		!l.o.Waiting.Take(h.Item, l.waitOf(c)) {
		e := w.heldEvent(l, c.Seq)
		e.Outcome = control.Rejected
		return e
	}
	l.items.finish(h)
	l.release(h)
	return w.heldEvent(l, c.Seq)
}

func (l *loop[T]) waitOf(c control.Command) Wait {
	return Wait{After: max(0, c.Expect-l.now), History: c.History}
}

// request requests one suspect and one other item from the store, each only if the state machine
// has room for it.
func (w *deferredItems[T]) request(l *loop[T]) {
	if w.n == 0 || w.ended || l.phase == stopping {
		return
	}
	for i := range w.ask {
		if w.asked[i] || !w.room(l, i) {
			continue
		}
		if w.cancel == nil {
			w.ctx, w.cancel = context.WithCancel(l.base)
		}
		w.asked[i] = true
		w.ask[i] <- w.ctx
	}
}

func (w *deferredItems[T]) room(l *loop[T], i int) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.machine.Returns(i == suspects)
}

// collect handles the results of WaitStore.Next in the pending events.
func (w *deferredItems[T]) collect(l *loop[T]) {
	for i, r := range l.pending.returned {
		if r != nil {
			w.offerAgain(l, i, r)
		}
	}
}

// offerAgain handles the result of one call of WaitStore.Next: it passes the item to the state
// machine, records the end of the store, or stops the loop after an error.
func (w *deferredItems[T]) offerAgain(l *loop[T], i int, r *nextResult[T]) {
	w.asked[i] = false
	switch {
	case r.err == nil && l.phase == stopping:
		_, _ = l.items.add(r.item) // releaseAll releases it
		return
	case r.err == nil:
		l.offer(r.item, r.history)
	case errors.Is(r.err, io.EOF):
		w.ended = true
	case errors.Is(r.err, ErrNoItem):
	case l.base.Err() == nil && (w.ctx == nil || w.ctx.Err() == nil):
		l.stop(fmt.Errorf("flow: items that wait: %w", r.err))
		return
	}
	if l.phase != stopping {
		l.step(w.heldEvent(l, 0))
	}
}

// done reports whether no more items will come back. If the store is empty or has ended, done first
// cancels the running calls of Next. It returns false until they have returned, because one of them
// may already have taken an item out of the store.
func (w *deferredItems[T]) done() bool {
	if w.n > 0 && !w.ended {
		return false
	}
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
	return !slices.Contains(w.asked[:], true)
}

// stop ends the goroutines.
func (w *deferredItems[T]) stop() {
	if w.cancel != nil {
		w.cancel()
	}
	for i := range w.ask {
		if w.ask[i] != nil {
			close(w.ask[i])
		}
	}
}
