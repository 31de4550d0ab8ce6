package supervise

import (
	"context"
	"fmt"
	"iter"

	"github.com/penstock-io/penstock/backoff"
)

// Inbox is where one incarnation of a Resender's child takes its messages from. Any of its goroutines may.
type Inbox[K comparable, M, R any] struct {
	r   *Resender[K, M, R]
	run *run
}

// Message is one attempt of one message.
type Message[K comparable, M, R any] struct {
	Key     K
	Value   M
	Attempt int // the first is 1

	in *Inbox[K, M, R]
	h  *held[K, M, R]
}

// Next returns the oldest message that is not out, and waits for one, or for the child's share of them to grow: it has at
// most Limits.Window in hand, and fewer after a crash. It returns the cause of ctx's end, and ErrStopped when this
// incarnation has returned.
func (in *Inbox[K, M, R]) Next(ctx context.Context) (Message[K, M, R], error) {
	r := in.r
	for {
		r.mu.Lock()
		if r.live != in.run || r.home {
			r.changedLocked() // a turn that it does not use
			r.mu.Unlock()
			return Message[K, M, R]{}, ErrStopped
		}
		if ctx.Err() != nil {
			r.changedLocked() // a turn that it does not use
			r.mu.Unlock()
			return Message[K, M, R]{}, context.Cause(ctx)
		}
		if h := r.s.take(r.now()); h != nil {
			m := Message[K, M, R]{Key: h.key, Value: h.value, Attempt: h.attempts, in: in, h: h}
			r.changedLocked()
			r.mu.Unlock()
			if r.o.Limits.Stall > 0 {
				r.wake()
			}
			return m, nil
		}
		turn := make(chan struct{})
		r.takers = append(r.takers, turn)
		r.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
		case <-in.run.over:
		}
		r.mu.Lock()
		r.forget(&r.takers, turn)
		r.mu.Unlock()
	}
}

// Ack settles the message and gives reply to who waits for it; false: it was settled before. It also counts when this
// incarnation has died meanwhile.
func (m Message[K, M, R]) Ack(reply R) bool {
	r := m.in.r
	r.mu.Lock()
	ok := r.s.settle(r.now(), m.h)
	if ok {
		r.changedLocked()
	}
	r.mu.Unlock()
	if ok {
		m.h.give(reply, nil)
	}
	return ok
}

// Nack gives the message back: the child lives, but could not do it. It comes again after a wait of its own, or becomes a
// dead letter. false: it is not out with this incarnation any more.
func (m Message[K, M, R]) Nack(err error) bool {
	r := m.in.r
	r.mu.Lock()
	ok := r.s.nack(r.now(), m.h, m.in.run.number, err)
	if ok {
		r.changedLocked()
	}
	r.mu.Unlock()
	if ok {
		r.wake()
	}
	return ok
}

// ResenderStatus is what a Resender holds at one moment.
type ResenderStatus struct {
	Name     string        `json:"name"`
	Child    string        `json:"child,omitempty"` // the recipe of the running incarnation
	Starts   uint64        `json:"starts"`
	Held     int           `json:"held"`
	Bytes    int64         `json:"bytes"`
	Out      int           `json:"out"`     // with the child
	Delayed  int           `json:"delayed"` // until their own wait is over
	Resent   uint64        `json:"resent"`  // attempts after a message's first
	Streak   int           `json:"streak"`  // crashes since the child last recovered
	Window   int           `json:"window"`  // how many it may have in hand now
	Probing  bool          `json:"probing"` // it has not recovered from its last crash
	Backoff  backoff.State `json:"backoff"` // of the child
	Fallback bool          `json:"fallback"`
}

// Status returns the numbers.
func (r *Resender[K, M, R]) Status() ResenderStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := ResenderStatus{
		Name: r.name, Starts: r.s.incarnation, Held: len(r.s.messages), Bytes: r.s.bytes, Out: r.s.out.n, Delayed: len(r.s.delayed),
		Resent: r.s.resent, Streak: r.s.streak, Window: r.o.Limits.Window, Probing: r.s.probing, Backoff: r.s.state,
		Fallback: r.detour.fallback,
	}
	if r.s.probing {
		s.Window = r.s.window
	}
	if r.live != nil {
		s.Child = r.live.name
	}
	return s
}

// String is one line for people.
func (s ResenderStatus) String() string {
	return fmt.Sprintf("%s: %d held, %d out, %d delayed, %d crashes in a row", s.Name, s.Held, s.Out, s.Delayed, s.Streak)
}

// Held is a message as Messages shows it.
type Held[K comparable, M any] struct {
	Key      K
	Value    M
	Out      bool
	Attempts int
	Deaths   int
	State    backoff.State // failures and the waits that followed them, for the log
	Err      error         // of the last failure
}

// Messages returns what is held, in no order, as it was when the loop began: what a program saves before it ends.
func (r *Resender[K, M, R]) Messages() iter.Seq[Held[K, M]] {
	return func(yield func(Held[K, M]) bool) {
		r.mu.Lock()
		list := make([]Held[K, M], 0, len(r.s.messages))
		for _, h := range r.s.messages {
			list = append(list, Held[K, M]{
				Key: h.key, Value: h.value, Out: h.place == out, Attempts: h.attempts, Deaths: h.deaths, State: h.state, Err: h.err,
			})
		}
		r.mu.Unlock()
		for _, h := range list {
			if !yield(h) {
				return
			}
		}
	}
}
