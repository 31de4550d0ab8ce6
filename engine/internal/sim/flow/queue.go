//penstock:pure

package flow

import "time"

// occurrence is something that is due. Those of one instant come in the order in which they were scheduled, but ticks
// of machines last: an owner that has answers at hand steps them before.
type occurrence struct {
	at   time.Duration
	n    uint64
	kind occurs
	gen  uint32
	num  int32 // worker or sender
	a    *attempt
	job  *job
}

type occurs uint8

const (
	arrives  occurs = iota // batches, by the load
	reaches                // an attempt at its worker
	served                 // a job is done
	answers                // the answer is back at the sender
	gaveUp                 // the oldest attempt's time is up
	changes                // an event or pause begins or ends
	joins                  // a sender begins
	bursts                 // the load's burst
	watches                // the watermark's age is taken
	observed               // the plot's figures are taken
	wakes                  // a machine wants a tick
)

const tickLast = 1 << 63

func (o *occurrence) before(x *occurrence) bool {
	if o.at != x.at {
		return o.at < x.at
	}
	return o.n < x.n
}

// agenda is a binary heap of what is due.
type agenda struct {
	s []occurrence
	n uint64
}

func (h *agenda) add(o occurrence) {
	h.n++
	o.n = h.n
	if o.kind == wakes {
		o.n |= tickLast
	}
	h.s = append(h.s, o)
	i := len(h.s) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !o.before(&h.s[p]) {
			break
		}
		h.s[i] = h.s[p]
		i = p
	}
	h.s[i] = o
}

func (h *agenda) next() occurrence {
	first := h.s[0]
	n := len(h.s) - 1
	o := h.s[n]
	h.s[n] = occurrence{}
	h.s = h.s[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h.s[c+1].before(&h.s[c]) {
			c++
		}
		if !h.s[c].before(&o) {
			break
		}
		h.s[i] = h.s[c]
		i = c
	}
	h.s[i] = o
	return first
}

// fifo is a queue that keeps its memory.
type fifo[T any] struct {
	s    []T
	head int
}

func (q *fifo[T]) len() int  { return len(q.s) - q.head }
func (q *fifo[T]) first() *T { return &q.s[q.head] }
func (q *fifo[T]) all() []T  { return q.s[q.head:] }
func (q *fifo[T]) add(x T)   { q.s = append(q.s, x) }
func (q *fifo[T]) empty()    { clear(q.s); q.s, q.head = q.s[:0], 0 }
func (q *fifo[T]) take() (x T) {
	var none T
	x, q.s[q.head] = q.s[q.head], none
	if q.head++; q.head == len(q.s) {
		q.s, q.head = q.s[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.s) {
		n := copy(q.s, q.s[q.head:])
		clear(q.s[n:])
		q.s, q.head = q.s[:n], 0
	}
	return x
}
