//penstock:pure

package supervise

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/minheap"
)

// resendList is the list that holds a message.
type resendList uint8

const (
	removed       resendList = iota // no longer held
	ready                           // may be taken
	out                             // taken by the child, and not acknowledged yet
	delayed                         // waits until its due time
	deadLettering                   // passed to Options.DeadLetter
)

// held is a message that is neither acknowledged nor dead-lettered.
type held[K comparable, M, R any] struct {
	key      K
	value    M
	size     int64
	seq      uint64
	accepted time.Duration
	answer   *answer[R] // nil if no Call waits

	list        resendList
	prev, next  *held[K, M, R] // neighbors in ready or out
	pos         int            // index in delayed
	due         time.Duration
	incarnation uint64 // the last incarnation that took it
	attempts    int
	deaths      int
	suspect     bool // it was taken at a crash, and has not been settled since
	state       backoff.State
	err         error // error of the last failure
	reason      error // why it is dead-lettered
}

// chain is a linked list of messages, ordered by seq. The links are fields of the messages, so
// removing one costs O(1).
type chain[K comparable, M, R any] struct {
	first, last *held[K, M, R]
	n           int
}

// insert inserts h by its seq. A new message belongs at the end, a returning one near the front.
// Only these two cases are fast.
func (l *chain[K, M, R]) insert(h *held[K, M, R]) {
	l.n++
	var next *held[K, M, R]
	if l.last != nil && l.last.seq >= h.seq {
		for next = l.first; next.seq < h.seq; {
			next = next.next
		}
	}
	h.prev, h.next = l.last, next
	if next == nil {
		l.last = h
	} else {
		h.prev, next.prev = next.prev, h
	}
	if h.prev == nil {
		l.first = h
	} else {
		h.prev.next = h
	}
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

// Before implements minheap.Element, for delayed messages: it compares the due times, then the
// ages.
func (h *held[K, M, R]) Before(other *held[K, M, R]) bool {
	return h.due < other.due || h.due == other.due && h.seq < other.seq
}

// SetIndex implements minheap.Element.
func (h *held[K, M, R]) SetIndex(i int) { h.pos = i }

// resends decides which messages a Resender's child may take, which ones are sent again after a
// crash, and which ones are dead-lettered.
//
// After a crash the child is on probation: it gets messages in rounds. The first round is the
// oldest message alone. Each later round has twice as many messages: 2, 4, 8, ... A round begins
// when the child has no message of the previous round. If there was a Nack in a round, the next
// round is no larger.
//
// The child has recovered when two conditions hold: it has acknowledged a whole round, and all
// messages that it had at crashes are acknowledged or dead-lettered. Its delays then start from the
// beginning.
//
// Probation finds a message that crashes the child. This takes few crashes, because each further
// crash at least halves the number of messages that the child gets before the bad one. Example,
// with the number of messages that the child has:
//
//	1024: crash   1: ack   2: ack   4: crash   1: ack   2: crash   1: crash, so it is this one
type resends[K comparable, M, R any] struct {
	limits  Limits
	backoff backoff.Policy // policy of the child
	retry   backoff.Policy // policy of a nacked message
	drops   bool           // there is an Options.DeadLetter
	src     rand.Source

	messages    map[K]*held[K, M, R]
	bytes       int64
	seq         uint64
	ready, out  chain[K, M, R]
	delayed     minheap.Heap[*held[K, M, R]] // ordered by their due times
	dead        []*held[K, M, R]             // to be passed to Options.DeadLetter
	incarnation uint64

	probing  bool
	window   int  // size of this round
	taken    int  // messages taken in this round
	failed   bool // a message of this round was nacked
	suspects int
	state    backoff.State // state of the policy of the child
	streak   int           // crashes since it last recovered
	progress time.Duration // time of the last take or settle
	resent   uint64        // attempts after a message's first
}

// fits reports whether a message of the given size may be added. One message is always allowed.
func (s *resends[K, M, R]) fits(size int64) bool {
	n := len(s.messages)
	return n == 0 || n < s.limits.Items && size <= s.limits.Bytes-s.bytes
}

// accept adds a message. The caller has checked that it fits and that the key is free.
func (s *resends[K, M, R]) accept(now time.Duration, key K, value M, size int64, a *answer[R]) {
	s.seq++
	h := &held[K, M, R]{key: key, value: value, size: size, seq: s.seq, accepted: now, answer: a,
		list: ready}
	s.messages[key] = h
	s.bytes += size
	s.ready.insert(h)
}

// hasRoom reports whether the child may take one more message.
func (s *resends[K, M, R]) hasRoom() bool {
	if s.probing {
		return s.taken < s.window
	}
	return s.out.n < s.limits.Window
}

// take gives the oldest ready message to the child. It returns nil if no message is ready, or if
// the child may not have another one.
func (s *resends[K, M, R]) take(now time.Duration) *held[K, M, R] {
	h := s.ready.first
	if h == nil || !s.hasRoom() {
		return nil
	}
	s.ready.drop(h)
	h.list, h.incarnation = out, s.incarnation
	s.out.insert(h)
	if h.attempts++; h.attempts > 1 {
		s.resent++
	}
	s.taken++
	s.progress = now
	return h
}

// settle removes an acknowledged message. It reports false if the message was settled before.
func (s *resends[K, M, R]) settle(now time.Duration, h *held[K, M, R]) bool {
	if h.list == removed {
		return false
	}
	was := h.list
	s.leave(h)
	s.forget(h)
	if was == out {
		s.round(now)
	}
	return true
}

// leave removes h from the list that holds it.
func (s *resends[K, M, R]) leave(h *held[K, M, R]) {
	switch h.list {
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
	h.list = removed
	delete(s.messages, h.key)
	s.bytes -= h.size
}

func (s *resends[K, M, R]) clear(h *held[K, M, R]) {
	if h.suspect {
		h.suspect = false
		s.suspects--
	}
}

// round ends a round of the probation if the child has no message any more. If a message of this
// round was nacked, the next round is no larger. Otherwise the whole probation ends if no message
// is left that the child had at a crash. If some are left, the next round is twice as large.
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

// nack delays or dead-letters h after a failure. It reports false if that incarnation no longer has
// h.
func (s *resends[K, M, R]) nack(now time.Duration, h *held[K, M, R], incarnation uint64,
	err error) bool {
	if h.list != out || h.incarnation != incarnation {
		return false
	}
	d, next, ok := s.retry.Next(h.state, s.src) // first, because it may panic
	s.leave(h)
	h.err = err
	s.failed = true
	switch reason := s.giveUpReason(now, h); {
	case reason != nil:
		s.deadLetter(h, reason)
	case ok:
		h.state = next
		s.put(now, h, plus(now, d))
	case s.drops:
		s.deadLetter(h, errors.New("supervise: the backoff of the message has given up"))
	default:
		s.put(now, h, plus(now, h.lastDelay()))
	}
	s.round(now)
	return true
}

// put delays h until due, or until h reaches MaxAge if that is earlier.
func (s *resends[K, M, R]) put(now time.Duration, h *held[K, M, R], due time.Duration) {
	if s.limits.MaxAge > 0 && h.reason == nil {
		due = max(now, min(due, plus(h.accepted, s.limits.MaxAge)))
	}
	h.list, h.due = delayed, due
	heap.Push(&s.delayed, h)
}

// plus adds two durations and saturates. A negative one counts as 0: some policies of package
// compat have negative delays, which mean no delay.
func plus(a, b time.Duration) time.Duration {
	if c := max(a, 0) + max(b, 0); c >= 0 {
		return c
	}
	return math.MaxInt64
}

// giveUpReason returns the reason why h gets no further attempt, or nil if h gets one.
func (s *resends[K, M, R]) giveUpReason(now time.Duration, h *held[K, M, R]) error {
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

// deadLetter adds h, which is in no list, to the messages to be passed to Options.DeadLetter.
func (s *resends[K, M, R]) deadLetter(h *held[K, M, R], reason error) {
	s.clear(h)
	h.list, h.reason = deadLettering, reason
	s.dead = append(s.dead, h)
}

// deadLettered handles the result of DeadLetter: it removes h, or delays h after an error. It
// reports whether h was removed.
func (s *resends[K, M, R]) deadLettered(now time.Duration, h *held[K, M, R],
	err error) (done bool) {
	if h.list != deadLettering { // acknowledged meanwhile
		return false
	}
	if err == nil {
		s.forget(h)
		return true
	}
	h.err = errors.Join(h.err, err)
	s.put(now, h, plus(now, h.lastDelay())) // first, because the policy may panic
	if d, next, ok := s.retry.Next(h.state, s.src); ok {
		h.state, h.due = next, plus(now, d)
		heap.Fix(&s.delayed, h.pos)
	}
	return false
}

// lastDelay returns the delay of h after its policy has given up: the last one, at least 1 s.
func (h *held[K, M, R]) lastDelay() time.Duration {
	return max(h.state.Prev, time.Second)
}

// oldest removes a message that the child has not taken, to make room: the oldest ready one or, if
// there is none, the first of the delayed ones. It returns nil if there is neither a ready nor a
// delayed message. It also returns nil if the first delayed message only waits for another call of
// DeadLetter, after the last call has failed.
func (s *resends[K, M, R]) oldest() *held[K, M, R] {
	h := cmp.Or(s.ready.first, s.delayed.First())
	if h == nil || h.reason != nil {
		return nil
	}
	s.leave(h)
	s.clear(h)
	h.list, h.reason = deadLettering, ErrFull
	return h
}
