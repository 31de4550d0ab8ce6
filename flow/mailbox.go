package flow

import (
	"sync"
	"time"
)

// mailbox is how everybody else talks to the loop, which takes everything at once. It is bounded by what it
// can hold: an answer for each running attempt, one item of the producer's, one burial, and the newest lanes.
type mailbox[T any] struct {
	start time.Time
	wake  chan struct{} // holds one signal

	mu   sync.Mutex // guards mail
	mail mail[T]
}

// mail is what has come in since the last take.
type mail[T any] struct {
	now      time.Duration // of the take, since the start
	signaled bool
	answers  []*attempt[T] // their at never decreases
	offer    Item[T]
	offered  bool  // offer is an item
	ended    error // of the producer; io.EOF: there is no more
	buried   *held[T]
	buryErr  error
	saved    int64
	lanes    []Lane[T]
	relaned  bool // lanes is the whole new list
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{start: time.Now(), wake: make(chan struct{}, 1)}
}

// unlockAndWake ends a put.
func (b *mailbox[T]) unlockAndWake() {
	first := !b.mail.signaled
	b.mail.signaled = true
	b.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default: // one is on its way, and the loop takes all mail after it
		}
	}
}

// answer puts an attempt that has returned, stamped here so that the round trip does not hold the loop's delay.
func (b *mailbox[T]) answer(a *attempt[T]) {
	b.mu.Lock()
	a.at = time.Since(b.start)
	b.mail.answers = append(b.mail.answers, a)
	b.unlockAndWake()
}

func (b *mailbox[T]) putOffer(it Item[T], err error) {
	b.mu.Lock()
	b.mail.ended = err
	if err == nil {
		b.mail.offer, b.mail.offered = it, true
	}
	b.unlockAndWake()
}

func (b *mailbox[T]) putBuried(h *held[T], err error) {
	b.mu.Lock()
	b.mail.buried, b.mail.buryErr = h, err
	b.unlockAndWake()
}

func (b *mailbox[T]) putSaved(n int64) {
	b.mu.Lock()
	b.mail.saved += n
	b.unlockAndWake()
}

func (b *mailbox[T]) putLanes(lanes []Lane[T]) {
	b.mu.Lock()
	b.mail.lanes, b.mail.relaned = lanes, true
	b.unlockAndWake()
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
