package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Resender keeps each message until a child, which may crash at any time, has acknowledged it. It
// passes the child's reply to the caller of Call.
//
// Delivery is at least once: a child that crashes between its work and its ack gets the message
// again. After a crash, only the messages that the child had taken are sent again. If
// Limits.MaxDeaths is set, a message that crashes its child is detected and dead-lettered. The
// delays between incarnations start from the beginning when the child has recovered. The number of
// held messages is limited, and an ack by the child costs O(1). The model is the BackOffSender of
// R. Roestenburg (Akka), which has no such limits.
//
// Methods are safe for concurrent use. Send and Call work before Serve, too. A Resender is a
// [Service]: as a supervisor's child it is the Child.Service, and keeps its messages when Serve is
// called again.
//
// Make one with [NewResender]: Send, Call and Serve of a zero Resender panic.
type Resender[K comparable, M, R any] struct {
	name   string
	o      Options[K, M, R]
	epoch  time.Time
	wakeUp chan struct{} // holds one

	// mu guards the fields below. Of the options, only the policies and Rand are called while it is
	// held, so they must not call the Resender.
	mu       sync.Mutex
	s        resends[K, M, R]
	detour   detour
	live     *run  // the current incarnation
	returned bool  // live has returned err
	err      error // error that live has returned
	serving  bool
	closed   bool
	takers   []chan struct{} // callers of Next that wait, in order
	senders  []sender        // callers of Send and Call that wait for room, in order
}

// sender is a caller of Send or Call that waits for room.
type sender struct {
	room chan struct{} // closed when the caller is woken
	size int64
}

// run is one incarnation of the child, from the start of its goroutine until its return.
type run struct {
	name     string
	number   uint64
	begun    time.Duration
	cancel   context.CancelCauseFunc
	over     chan struct{} // closed when it has returned
	fallback bool
	cut      bool // it was told to stop because it stalled
}

// answer is the reply that a Call waits for.
type answer[R any] struct {
	done  chan struct{}
	reply R
	err   error
}

// NewResender returns a Resender, or an error if an option or the name is invalid. It starts
// nothing. The name must not be empty or contain a slash.
func NewResender[K comparable, M, R any](name string,
	o Options[K, M, R]) (*Resender[K, M, R], error) {
	if name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("resender %q: want a name without a slash", name)
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("resender %q: %w", name, err)
	}
	r := &Resender[K, M, R]{name: name, o: o, epoch: time.Now(), wakeUp: make(chan struct{}, 1)}
	r.s = resends[K, M, R]{limits: o.Limits, backoff: o.Backoff, retry: o.Retry, src: o.Rand,
		drops: o.DeadLetter != nil, messages: map[K]*held[K, M, R]{}}
	r.detour = detour{after: o.FallbackAfter, back: o.FallbackFor}
	return r, nil
}

// refuseZero panics if r is a zero Resender.
func (r *Resender[K, M, R]) refuseZero() {
	if r.wakeUp == nil {
		panic("supervise: zero Resender; make one with supervise.NewResender")
	}
}

func (r *Resender[K, M, R]) now() time.Duration { return time.Since(r.epoch) }

// Send accepts a message. If it returns nil, the message either is held until it is acknowledged or
// dead-lettered, or was passed to Options.Spill. If a held message has the same key, Send returns
// ErrHeld. If the limits allow no further message, Limits.Overflow decides. With Block, the
// default, Send waits until there is room or ctx ends. Waiting callers continue in the order of
// their calls, so a small message can wait behind a large one. A child that sends to its own
// Resender must bound ctx, or acknowledge its message first. Otherwise, it may wait forever for
// room that only its own ack would make.
func (r *Resender[K, M, R]) Send(ctx context.Context, key K, value M) error {
	_, err := r.send(ctx, key, value, nil)
	return err
}

// Call sends a message and waits for the child's reply, even if the child crashes meanwhile. If ctx
// ends during this wait, Call returns the cause and the message stays held. The error wraps a
// *DeadError if the message was dead-lettered, ErrSpilled if it was spilled, and ErrStopped after
// Close. Until the message is held, Call does the same as Send.
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
		return reply, fmt.Errorf("resender %q: wait for a reply: %w", r.name, context.Cause(ctx))
	}
}

func (r *Resender[K, M, R]) send(ctx context.Context, key K, value M,
	a *answer[R]) (spilled bool, err error) {
	r.refuseZero()
	size := r.o.Size(value)
	for first := false; ; first = true { // a caller that was woken waits at the front
		r.mu.Lock()
		switch {
		case r.closed:
			err = ErrStopped
		case r.s.messages[key] != nil:
			err = ErrHeld
		case r.s.fits(size) && (first || len(r.senders) == 0):
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
			r.changedLocked() // wakes another sender, in case this one was woken by free room
			r.mu.Unlock()
			return false, fmt.Errorf("resender %q: send: %w", r.name, err)
		}
		if spilled, err = r.makeRoom(ctx, key, value, size, first); err != nil || spilled {
			return spilled, err
		}
	}
}

// makeRoom handles a message for which there is no room, according to Limits.Overflow. It spills
// the message (spilled is true), dead-letters the oldest one, or waits for room. In the last two
// cases the caller must try again. The caller holds mu, and makeRoom unlocks it.
func (r *Resender[K, M, R]) makeRoom(ctx context.Context, key K, value M, size int64,
	first bool) (spilled bool, err error) {
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
			return false, fmt.Errorf("resender %q: send: the child has taken all messages: %w",
				r.name, ErrFull)
		}
		if err := r.deadLetter(ctx, h); err != nil {
			return false, fmt.Errorf("resender %q: drop the oldest: %w", r.name, err)
		}
		return false, nil
	}
	s, at := sender{make(chan struct{}), size}, len(r.senders)
	if first {
		at = 0
	}
	r.senders = slices.Insert(r.senders, at, s)
	r.mu.Unlock()
	select {
	case <-s.room:
		return false, nil
	case <-ctx.Done():
		r.mu.Lock()
		r.senders = slices.DeleteFunc(r.senders, func(w sender) bool { return w == s })
		r.changedLocked() // this caller may have been woken meanwhile
		r.mu.Unlock()
		return false, fmt.Errorf("resender %q: wait for room: %w", r.name, context.Cause(ctx))
	}
}

// changedLocked wakes one waiting Next and one waiting sender if they can continue. Each of them
// calls changedLocked again, so that all are woken one after the other. The caller holds mu.
func (r *Resender[K, M, R]) changedLocked() {
	if len(r.takers) > 0 && r.s.ready.n > 0 && r.s.hasRoom() {
		close(r.takers[0])
		r.takers = r.takers[1:]
	}
	if len(r.senders) > 0 && (r.closed || r.s.fits(r.senders[0].size)) {
		close(r.senders[0].room)
		r.senders = r.senders[1:]
	}
}

func (r *Resender[K, M, R]) wake() {
	select {
	case r.wakeUp <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Ack acknowledges the message with that key, for callers outside the child. It reports whether the
// message was held.
func (r *Resender[K, M, R]) Ack(key K, reply R) bool {
	r.mu.Lock()
	h := r.s.messages[key]
	r.mu.Unlock()
	return h != nil && r.acknowledge(h, reply)
}

// acknowledge removes h and passes reply to the Call that waits for it. It reports false if h was
// settled before.
func (r *Resender[K, M, R]) acknowledge(h *held[K, M, R], reply R) bool {
	r.mu.Lock()
	ok := r.s.settle(r.now(), h)
	if ok {
		r.changedLocked()
	}
	r.mu.Unlock()
	if ok {
		h.give(reply, nil)
	}
	return ok
}

// give passes the result to the Call that waits for h. h has been settled, so this happens once.
func (h *held[K, M, R]) give(reply R, err error) {
	if h.answer != nil {
		h.answer.reply, h.answer.err = reply, err
		close(h.answer.done)
	}
}

// deadLetter passes h to DeadLetter. If that removes h, the waiting Call gets a *DeadError.
func (r *Resender[K, M, R]) deadLetter(ctx context.Context, h *held[K, M, R]) (err error) {
	d := Dead[K, M]{
		Key: h.key, Value: h.value, Reason: h.reason, Err: h.err, Attempts: h.attempts,
		Deaths: h.deaths,
		Age:    r.now() - h.accepted, State: h.state,
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.wake() // Serve must call DeadLetter again later, also if this is a caller of Send
		}
		if r.s.deadLettered(r.now(), h, err) {
			var none R
			h.give(none, fmt.Errorf("resender %q: %w", r.name,
				&DeadError{Reason: d.Reason, Err: d.Err, Attempts: d.Attempts}))
		}
		r.changedLocked()
	}()
	if r.o.DeadLetter != nil {
		err = errDeadLetterPanic
		err = r.o.DeadLetter(ctx, d)
	}
	return err
}

var errDeadLetterPanic = errors.New("supervise: DeadLetter panicked")

// Close refuses further messages, drops those held and makes each waiting Call return ErrStopped.
// Serve must have returned. Close may be called twice. It returns nil.
func (r *Resender[K, M, R]) Close() error {
	r.mu.Lock()
	r.closed = true
	all := r.s.messages
	r.s.messages, r.s.bytes, r.s.suspects = map[K]*held[K, M, R]{}, 0, 0
	r.s.ready, r.s.out, r.s.delayed, r.s.dead = chain[K, M, R]{}, chain[K, M, R]{}, nil, nil
	for _, h := range all {
		h.list = removed
	}
	for len(r.senders) > 0 {
		r.changedLocked()
	}
	r.mu.Unlock()
	for _, h := range all {
		var none R
		h.give(none, ErrStopped)
	}
	return nil
}
