package flow

import (
	"sync"
	"time"
)

// mailbox is how everybody else talks to the loop, which takes everything at once. It is bounded by
// what it can hold: an answer for each running attempt, one item of the producer's, one burial, and
// the newest lanes.
type mailbox[T any] struct {
	start time.Time
	wake  chan struct{} // holds one: there is mail, and whoever put it does not turn

	mu   sync.Mutex // guards mail
	mail mail[T]
}

// mail is what has come in since the last take.
type mail[T any] struct {
	now     time.Duration // of the take, since the start
	answers []*attempt[T] // their at never decreases
	offer   Item[T]
	offered bool  // offer is an item
	ended   error // of the producer; io.EOF: there is no more
	buried  *held[T]
	buryErr error
	saved   int64
	lanes   []Lane[T] // the whole new list; nil if it has not changed

	withdraw bool // Options.Withdrawn may have changed
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{start: time.Now(), wake: make(chan struct{}, 1)}
}

// ring has the goroutine of Run see to the mail.
func (b *mailbox[T]) ring() {
	select {
	case b.wake <- struct{}{}:
	default: // it rings already, and all mail is taken after it
	}
}

// answer puts an attempt that has returned, stamped here so that the round trip does not hold the
// loop's delay.
func (b *mailbox[T]) answer(a *attempt[T]) {
	b.mu.Lock()
	a.at = time.Since(b.start)
	b.mail.answers = append(b.mail.answers, a)
	b.mu.Unlock()
}

func (b *mailbox[T]) putOffer(it Item[T], err error) {
	b.mu.Lock()
	b.mail.ended = err
	if err == nil {
		b.mail.offer, b.mail.offered = it, true
	}
	b.mu.Unlock()
}

func (b *mailbox[T]) putBuried(h *held[T], err error) {
	b.mu.Lock()
	b.mail.buried, b.mail.buryErr = h, err
	b.mu.Unlock()
}

// putSaved and putLanes ring: their callers may hold locks that a callback takes.
func (b *mailbox[T]) putSaved(n int64) {
	b.mu.Lock()
	b.mail.saved += n
	b.mu.Unlock()
	b.ring()
}

func (b *mailbox[T]) putLanes(lanes []Lane[T]) {
	b.mu.Lock()
	b.mail.lanes = append([]Lane[T]{}, lanes...)
	b.mu.Unlock()
	b.ring()
}

// putWithdraw rings like putSaved.
func (b *mailbox[T]) putWithdraw() {
	b.mu.Lock()
	b.mail.withdraw = true
	b.mu.Unlock()
	b.ring()
}

// take exchanges the mail for m, whose memory is used again.
func (b *mailbox[T]) take(m *mail[T]) {
	clear(m.answers)
	*m = mail[T]{answers: m.answers[:0]}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mail, *m = *m, b.mail
	m.now = time.Since(b.start)
}
