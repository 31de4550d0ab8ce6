//penstock:pure

package supervise

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// place is where a held message is.
type place uint8

const (
	gone    place = iota // no longer held
	ready                // may be taken
	out                  // taken by the child and not settled
	delayed              // until its due
	burying              // handed over to become a dead letter
)

// held is a message that the Resender has taken on and not yet settled.
type held[K comparable, M, R any] struct {
	key      K
	value    M
	size     int64
	seq      uint64
	accepted time.Duration
	answer   *answer[R] // nil: nobody waits

	place       place
	prev, next  *held[K, M, R] // in ready or out
	pos         int            // in delayed
	due         time.Duration
	incarnation uint64 // that took it last
	attempts    int
	deaths      int
	suspect     bool // out at a crash, and not settled since
	state       backoff.State
	err         error // of the last failure
	reason      error // why it is a dead letter
}

// chain is an intrusive list, so that taking a message out of the middle costs the same for any length.
type chain[K comparable, M, R any] struct {
	first, last *held[K, M, R]
	n           int
}

// insert puts h in its place by seq. What comes back is older than nearly all that is there, so it looks from the front;
// what is new is the newest.
func (l *chain[K, M, R]) insert(h *held[K, M, R]) {
	l.n++
	if l.last == nil || l.last.seq < h.seq {
		h.prev, h.next = l.last, nil
		if l.last == nil {
			l.first = h
		} else {
			l.last.next = h
		}
		l.last = h
		return
	}
	at := l.first
	for at.seq < h.seq {
		at = at.next
	}
	h.prev, h.next = at.prev, at
	if at.prev == nil {
		l.first = h
	} else {
		at.prev.next = h
	}
	at.prev = h
}

func (l *chain[K, M, R]) drop(h *held[K, M, R]) {
	l.n--
	if h.prev == nil {
		l.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		l.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
}

// later holds the delayed messages by their due.
type later[K comparable, M, R any] []*held[K, M, R]

// Len implements heap.Interface, as do the next four.
func (q later[K, M, R]) Len() int { return len(q) }

// Less compares the dues, then the ages.
func (q later[K, M, R]) Less(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].seq < q[j].seq
}

// Swap keeps each message's place.
func (q later[K, M, R]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i, j
}

// Push appends.
func (q *later[K, M, R]) Push(h any) {
	x := h.(*held[K, M, R])
	x.pos = len(*q)
	*q = append(*q, x)
}

// Pop takes the last.
func (q *later[K, M, R]) Pop() any {
	old := *q
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return h
}

// resends decides what a Resender's child may take, what comes back after a crash and what is given up.
//
// After a crash it is on probation: it is given the oldest message alone, and when that is settled 2, then 4, and so on,
// each round only when the one before it is settled. It has recovered, and its waits begin anew, when a round was acked
// in full and nothing is left of what was out at the crash. So a message that kills its child ends up alone with it
// after a few crashes, however many were out at first, and is known by that.
type resends[K comparable, M, R any] struct {
	limits  Limits
	backoff backoff.Policy // of the child
	retry   backoff.Policy // of a nacked message
	src     rand.Source

	messages    map[K]*held[K, M, R]
	bytes       int64
	seq         uint64
	ready, out  chain[K, M, R]
	delayed     later[K, M, R]
	dead        []*held[K, M, R] // to be buried by the runtime
	incarnation uint64

	probing  bool
	window   int // of this round
	taken    int // in this round
	failed   bool
	suspects int
	state    backoff.State // of the child
	streak   int           // crashes since it last recovered
	progress time.Duration // of the last take or settle
	resent   uint64        // attempts after a message's first
}

// fits says whether one more of that size may be held. One is always allowed.
func (s *resends[K, M, R]) fits(size int64) bool {
	n := len(s.messages)
	return n == 0 || n < s.limits.Items && s.bytes+size <= s.limits.Bytes
}

// accept takes a message on. The caller has asked fits and that the key is free.
func (s *resends[K, M, R]) accept(now time.Duration, key K, value M, size int64, a *answer[R]) {
	s.seq++
	h := &held[K, M, R]{key: key, value: value, size: size, seq: s.seq, accepted: now, answer: a, place: ready}
	s.messages[key] = h
	s.bytes += size
	s.ready.insert(h)
}

// room says whether the child may take one more.
func (s *resends[K, M, R]) room() bool {
	if s.probing {
		return s.taken < s.window
	}
	return s.out.n < s.limits.Window
}

// take gives the oldest message to the child; nil: none, or no room.
func (s *resends[K, M, R]) take(now time.Duration) *held[K, M, R] {
	h := s.ready.first
	if h == nil || !s.room() {
		return nil
	}
	s.ready.drop(h)
	h.place, h.incarnation = out, s.incarnation
	s.out.insert(h)
	if h.attempts++; h.attempts > 1 {
		s.resent++
	}
	s.taken++
	s.progress = now
	return h
}

// settle forgets an acked message; false: it was settled before.
func (s *resends[K, M, R]) settle(now time.Duration, h *held[K, M, R]) bool {
	if h.place == gone {
		return false
	}
	was := h.place
	s.leave(h)
	s.forget(h)
	if was == out {
		s.round(now)
	}
	return true
}

// leave takes h out of the list it is in.
func (s *resends[K, M, R]) leave(h *held[K, M, R]) {
	switch h.place {
	case ready:
		s.ready.drop(h)
	case out:
		s.out.drop(h)
	case delayed:
		heap.Remove(&s.delayed, h.pos)
	}
}

func (s *resends[K, M, R]) forget(h *held[K, M, R]) {
	s.clear(h)
	h.place = gone
	delete(s.messages, h.key)
	s.bytes -= h.size
}

func (s *resends[K, M, R]) clear(h *held[K, M, R]) {
	if h.suspect {
		h.suspect = false
		s.suspects--
	}
}

// round looks, when a message that was out has left, whether a round of the probation is over.
func (s *resends[K, M, R]) round(now time.Duration) {
	s.progress = now
	if !s.probing || s.out.n > 0 {
		return
	}
	switch {
	case s.failed:
	case s.suspects == 0:
		s.probing, s.state, s.streak = false, backoff.State{}, 0
	default:
		s.window = min(s.window*2, s.limits.Window)
	}
	s.taken, s.failed = 0, false
}

// nack brings h back because the child could not do it; false: it is not out with that incarnation.
func (s *resends[K, M, R]) nack(now time.Duration, h *held[K, M, R], incarnation uint64, err error) bool {
	if h.place != out || h.incarnation != incarnation {
		return false
	}
	s.leave(h)
	h.err = err
	s.failed = true
	d, next, ok := s.retry.Next(h.state, s.src)
	switch reason := s.verdict(now, h); {
	case reason != nil:
		s.bury(h, reason)
	case !ok:
		s.bury(h, errors.New("its backoff has no further wait"))
	default:
		h.state = next
		s.put(now, h, plus(now, d))
	}
	s.round(now)
	return true
}

// put delays h, at most until it is too old.
func (s *resends[K, M, R]) put(now time.Duration, h *held[K, M, R], due time.Duration) {
	if s.limits.MaxAge > 0 && h.reason == nil {
		due = max(now, min(due, plus(h.accepted, s.limits.MaxAge)))
	}
	h.place, h.due = delayed, due
	heap.Push(&s.delayed, h)
}

// plus adds and saturates; neither is negative.
func plus(a, b time.Duration) time.Duration {
	if c := a + b; c >= 0 {
		return c
	}
	return math.MaxInt64
}

// verdict says why h gets no further attempt; nil: it does.
func (s *resends[K, M, R]) verdict(now time.Duration, h *held[K, M, R]) error {
	l := s.limits
	switch {
	case l.MaxDeaths > 0 && h.deaths >= l.MaxDeaths:
		return fmt.Errorf("%w %d times", ErrPoison, h.deaths)
	case l.MaxAttempts > 0 && h.attempts >= l.MaxAttempts:
		return fmt.Errorf("%w: %d", ErrAttempts, h.attempts)
	case l.MaxAge > 0 && now-h.accepted >= l.MaxAge:
		return fmt.Errorf("%w: %v", ErrAge, now-h.accepted)
	}
	return nil
}

// bury hands h, which is in no list, over to become a dead letter.
func (s *resends[K, M, R]) bury(h *held[K, M, R], reason error) {
	s.clear(h)
	h.place, h.reason = burying, reason
	s.dead = append(s.dead, h)
}

// buried is the end of a dead letter, or, with an error, a wait before it is tried again.
func (s *resends[K, M, R]) buried(now time.Duration, h *held[K, M, R], err error) (done bool) {
	if h.place != burying { // acked meanwhile
		return false
	}
	if err == nil {
		s.forget(h)
		return true
	}
	h.err = errors.Join(h.err, err)
	d, next, ok := s.retry.Next(h.state, s.src)
	if ok {
		h.state = next
	} else {
		d = max(h.state.Prev, time.Second)
	}
	s.put(now, h, plus(now, d))
	return false
}

// oldest takes the oldest message that is not out, to make room; nil: all are.
func (s *resends[K, M, R]) oldest() *held[K, M, R] {
	h := s.ready.first
	if h == nil && len(s.delayed) > 0 && s.delayed[0].reason == nil {
		h = s.delayed[0]
	}
	if h == nil {
		return nil
	}
	s.leave(h)
	s.clear(h)
	h.place, h.reason = burying, ErrFull
	return h
}
