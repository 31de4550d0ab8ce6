package supervise

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/penstock-io/penstock/backoff"
)

// Inbox passes messages of a Resender to one incarnation of its child. It is safe for concurrent
// use. The Resender passes it to [Work]: Next of a zero Inbox panics.
type Inbox[K comparable, M, R any] struct {
	r   *Resender[K, M, R]
	run *run
}

// Message is one attempt of one message. Ack and Nack of a zero Message, which Next returns with an
// error, panic.
type Message[K comparable, M, R any] struct {
	Key     K
	Value   M
	Attempt int // number of the attempt, from 1

	in *Inbox[K, M, R]
	h  *held[K, M, R]
}

// Next takes the oldest ready message. It waits until there is one and the child may take it: a
// child may have at most Limits.Window messages, and fewer after a crash. The error is the cause of
// ctx's end, or ErrStopped after the incarnation has returned.
func (in *Inbox[K, M, R]) Next(ctx context.Context) (Message[K, M, R], error) {
	r := in.r
	if r == nil {
		panic("supervise: zero Inbox; use the one that the Resender passes to Work")
	}
	for {
		r.mu.Lock()
		err := ctx.Err()
		if r.live != in.run || r.returned {
			err = ErrStopped
		}
		if err != nil {
			r.changedLocked() // wakes another caller, in case this one was woken for a message
			r.mu.Unlock()
			if err != ErrStopped {
				err = context.Cause(ctx)
			}
			return Message[K, M, R]{}, err
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
		r.takers = slices.DeleteFunc(r.takers, func(w chan struct{}) bool { return w == turn })
		r.mu.Unlock()
	}
}

// Ack acknowledges the message and passes reply to the waiting Call. It works even after the
// incarnation has crashed. It reports false if the message was settled before.
func (m Message[K, M, R]) Ack(reply R) bool {
	return m.inbox().r.acknowledge(m.h, reply)
}

// inbox returns the Inbox that m is from, or panics if m is a zero Message.
func (m Message[K, M, R]) inbox() *Inbox[K, M, R] {
	if m.in == nil {
		panic("supervise: zero Message; Inbox.Next has returned an error")
	}
	return m.in
}

// Nack returns the message to the Resender after a failure that is not a crash. The message is
// retried after the delay of Options.Retry, or dead-lettered. Nack reports false if this
// incarnation no longer has the message.
func (m Message[K, M, R]) Nack(err error) bool {
	r := m.inbox().r
	r.mu.Lock()
	defer r.mu.Unlock() // also if the policy Retry panics
	ok := r.s.nack(r.now(), m.h, m.in.run.number, err)
	if ok {
		r.changedLocked()
		r.wake()
	}
	return ok
}

// ResenderStatus is a snapshot of a Resender.
type ResenderStatus struct {
	Name string `json:"name"`
	// Child is the name of the running Recipe, or "" if none is running.
	Child    string        `json:"child,omitempty"`
	Starts   uint64        `json:"starts"`
	Held     int           `json:"held"`
	Bytes    int64         `json:"bytes"`
	Out      int           `json:"out"`     // taken by the child
	Delayed  int           `json:"delayed"` // waiting for their next attempt
	Resent   uint64        `json:"resent"`  // attempts except the first of each message
	Streak   int           `json:"streak"`  // crashes since the child last recovered
	Window   int           `json:"window"`  // messages that the child may hold now
	Probing  bool          `json:"probing"` // the child has not recovered from its last crash
	Backoff  backoff.State `json:"backoff"` // state of the child's Backoff
	Fallback bool          `json:"fallback"`
}

// Status returns a snapshot.
func (r *Resender[K, M, R]) Status() ResenderStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := ResenderStatus{
		Name: r.name, Starts: r.s.incarnation, Held: len(r.s.messages), Bytes: r.s.bytes,
		Out: r.s.out.n, Delayed: len(r.s.delayed),
		Resent: r.s.resent, Streak: r.s.streak, Window: r.o.Limits.Window, Probing: r.s.probing,
		Backoff:  r.s.state,
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

// String returns a summary in one line.
func (s ResenderStatus) String() string {
	return fmt.Sprintf("%s: %d held, %d out, %d delayed, %d crashes in a row", s.Name, s.Held,
		s.Out, s.Delayed, s.Streak)
}

// Held is a message in the result of Messages.
type Held[K comparable, M any] struct {
	Key      K
	Value    M
	Out      bool // taken by the child
	Attempts int
	Deaths   int           // crashes while the child had taken only this message
	State    backoff.State // state of Options.Retry: failures and their delays
	Err      error         // error of the last failure
}

// Messages returns a snapshot of the messages held, in no particular order. A program may save them
// before it exits.
func (r *Resender[K, M, R]) Messages() iter.Seq[Held[K, M]] {
	return func(yield func(Held[K, M]) bool) {
		r.mu.Lock()
		list := make([]Held[K, M], 0, len(r.s.messages))
		for _, h := range r.s.messages {
			list = append(list, Held[K, M]{
				Key: h.key, Value: h.value, Out: h.list == out, Attempts: h.attempts,
				Deaths: h.deaths, State: h.state, Err: h.err,
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
