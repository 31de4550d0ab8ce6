package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Resender keeps every message until a child that may die at any moment has acked it, and hands the answer to who waits
// for it. It is the BackOffSender of R. Roestenburg (Akka) without its faults: what it holds is bounded, an ack costs the
// same however much is held, a crash resends only what the child had in hand and begins with one message, a message that
// kills its child is found, and the waits begin anew only when the child has proved itself.
//
// A message is delivered at least once: a child that dies between its work and its ack gets it again. Methods may be
// called by any number of goroutines, Send and Call also before Serve. A Resender is a [Service]: as a supervisor's
// child it is made once, outside of New, and keeps what it holds when Serve begins again.
type Resender[K comparable, M, R any] struct {
	name   string
	o      Options[K, M, R]
	epoch  time.Time
	wakeUp chan struct{} // holds one

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	s       resends[K, M, R]
	detour  detour
	live    *run // the incarnation that has not returned
	home    bool // it has, of err
	err     error
	serving bool
	closed  bool
	takers  []chan struct{} // who waits in Next, first come first
	senders []chan struct{} // who waits for room
}

// run is one incarnation of the child.
type run struct {
	name     string
	number   uint64
	begun    time.Duration
	cancel   context.CancelCauseFunc
	over     chan struct{} // closed when it has returned
	fallback bool
	cut      bool // told to stop because it stalled
}

// answer is where a Call waits.
type answer[R any] struct {
	done  chan struct{}
	reply R
	err   error
}

// NewResender checks o and starts nothing: Serve does.
func NewResender[K comparable, M, R any](name string, o Options[K, M, R]) (*Resender[K, M, R], error) {
	if name == "" || hasSlash(name) {
		return nil, fmt.Errorf("resender %q: want a name without a slash", name)
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("resender %q: %w", name, err)
	}
	r := &Resender[K, M, R]{name: name, o: o, epoch: time.Now(), wakeUp: make(chan struct{}, 1)}
	r.s = resends[K, M, R]{limits: o.Limits, backoff: o.Backoff, retry: o.Retry, src: o.Rand, messages: map[K]*held[K, M, R]{}}
	r.detour = detour{after: o.FallbackAfter, back: o.FallbackFor}
	return r, nil
}

func (r *Resender[K, M, R]) now() time.Duration { return time.Since(r.epoch) }

// Send takes a message on, for which key must be free. When it returns nil the message is held until it is settled. ctx
// bounds the wait for room only.
func (r *Resender[K, M, R]) Send(ctx context.Context, key K, value M) error {
	_, err := r.send(ctx, key, value, nil)
	return err
}

// Call sends a message and waits for the child's answer, over any number of crashes. When ctx ends first its cause is
// returned, and the message is still held: an answer that nobody wants any more must not be lost work. A message that was
// given up returns a *DeadError, one that was spilled ErrSpilled, and Close ErrStopped.
func (r *Resender[K, M, R]) Call(ctx context.Context, key K, value M) (reply R, err error) {
	a := &answer[R]{done: make(chan struct{})}
	spilled, err := r.send(ctx, key, value, a)
	if err == nil && spilled {
		err = ErrSpilled
	}
	if err != nil {
		return reply, err
	}
	select {
	case <-a.done:
		return a.reply, a.err
	case <-ctx.Done():
		return reply, fmt.Errorf("resender %q: wait for an answer: %w", r.name, context.Cause(ctx))
	}
}

func (r *Resender[K, M, R]) send(ctx context.Context, key K, value M, a *answer[R]) (spilled bool, err error) {
	size := r.o.Size(value)
	for {
		r.mu.Lock()
		switch {
		case r.closed:
			err = ErrStopped
		case r.s.messages[key] != nil:
			err = ErrHeld
		case r.s.fits(size):
			r.s.accept(r.now(), key, value, size, a)
			r.changedLocked()
			r.mu.Unlock()
			if r.o.Limits.MaxAge > 0 {
				r.wake()
			}
			return false, nil
		case r.o.Limits.Overflow == Reject:
			err = ErrFull
		}
		if err != nil {
			r.changedLocked() // room that it does not use
			r.mu.Unlock()
			return false, fmt.Errorf("resender %q: send: %w", r.name, err)
		}
		if spilled, err = r.makeRoom(ctx, key, value); err != nil || spilled {
			return spilled, err
		}
	}
}

// makeRoom does what Overflow says. The caller has locked mu; makeRoom unlocks it.
func (r *Resender[K, M, R]) makeRoom(ctx context.Context, key K, value M) (spilled bool, err error) {
	switch r.o.Limits.Overflow {
	case Spill:
		r.mu.Unlock()
		if err := r.o.Spill(ctx, key, value); err != nil {
			return false, fmt.Errorf("resender %q: spill: %w", r.name, err)
		}
		return true, nil
	case DropOldest:
		h := r.s.oldest()
		r.mu.Unlock()
		if h == nil {
			return false, fmt.Errorf("resender %q: send, all messages are out: %w", r.name, ErrFull)
		}
		if err := r.bury(ctx, h); err != nil {
			return false, fmt.Errorf("resender %q: drop the oldest: %w", r.name, err)
		}
		return false, nil
	}
	room := make(chan struct{})
	r.senders = append(r.senders, room)
	r.mu.Unlock()
	select {
	case <-room:
		return false, nil
	case <-ctx.Done():
		r.mu.Lock()
		r.forget(&r.senders, room)
		r.changedLocked() // its turn may have come meanwhile
		r.mu.Unlock()
		return false, fmt.Errorf("resender %q: wait for room: %w", r.name, context.Cause(ctx))
	}
}

// forget takes a waiter out of a queue. The caller holds mu.
func (r *Resender[K, M, R]) forget(queue *[]chan struct{}, waiter chan struct{}) {
	for i, w := range *queue {
		if w == waiter {
			*queue = append((*queue)[:i], (*queue)[i+1:]...)
			return
		}
	}
}

// changedLocked lets one of those go on who wait for a message, and one of those who wait for room: whoever goes on calls
// it again.
func (r *Resender[K, M, R]) changedLocked() {
	if len(r.takers) > 0 && r.s.ready.n > 0 && r.s.room() {
		close(r.takers[0])
		r.takers = r.takers[1:]
	}
	if len(r.senders) > 0 && (r.closed || r.s.fits(0)) {
		close(r.senders[0])
		r.senders = r.senders[1:]
	}
}

func (r *Resender[K, M, R]) wake() {
	select {
	case r.wakeUp <- struct{}{}:
	default: // it will look anyway
	}
}

// Ack settles the message with that key, from outside of the child or late; false: it is not held.
func (r *Resender[K, M, R]) Ack(key K, reply R) bool {
	r.mu.Lock()
	h := r.s.messages[key]
	ok := h != nil && r.s.settle(r.now(), h)
	if ok {
		r.changedLocked()
	}
	r.mu.Unlock()
	if ok {
		h.give(reply, nil)
	}
	return ok
}

// give answers who waits for h, which has been settled, so that it happens once.
func (h *held[K, M, R]) give(reply R, err error) {
	if h.answer != nil {
		h.answer.reply, h.answer.err = reply, err
		close(h.answer.done)
	}
}

// bury gives h to DeadLetter and, when that has it, answers.
func (r *Resender[K, M, R]) bury(ctx context.Context, h *held[K, M, R]) error {
	d := Dead[K, M]{
		Key: h.key, Value: h.value, Reason: h.reason, Err: h.err, Attempts: h.attempts, Deaths: h.deaths,
		Age: r.now() - h.accepted, State: h.state,
	}
	var err error
	if r.o.DeadLetter != nil {
		err = r.o.DeadLetter(ctx, d)
	}
	r.mu.Lock()
	done := r.s.buried(r.now(), h, err)
	r.changedLocked()
	r.mu.Unlock()
	if done {
		var none R
		h.give(none, fmt.Errorf("resender %q: %w", r.name, &DeadError{Reason: d.Reason, Err: d.Err, Attempts: d.Attempts}))
	}
	return err
}

// Close refuses what is sent from now on, answers every Call that waits with ErrStopped and forgets the messages. Serve,
// if it runs, must have been stopped before. It may be called twice.
func (r *Resender[K, M, R]) Close() error {
	r.mu.Lock()
	r.closed = true
	all := r.s.messages
	r.s.messages, r.s.bytes, r.s.suspects = map[K]*held[K, M, R]{}, 0, 0
	r.s.ready, r.s.out, r.s.delayed, r.s.dead = chain[K, M, R]{}, chain[K, M, R]{}, nil, nil
	var waiting []*held[K, M, R]
	for _, h := range all {
		h.place = gone
		waiting = append(waiting, h)
	}
	for len(r.senders) > 0 {
		r.changedLocked()
	}
	r.mu.Unlock()
	for _, h := range waiting {
		var none R
		h.give(none, ErrStopped)
	}
	return nil
}
