//penstock:pure

package limit

import "time"

// waiter is one caller that waits in the queue for a permit.
type waiter struct {
	priority   Priority
	startBy    time.Duration // its call must start before this time; zero means any time
	wake       func()        // called once it is granted or refused; must not block
	state      waiterState
	permit     handle // if granted
	refusal    Reason // if refused
	prev, next *waiter
}

// waiterState is the state of a waiter.
//
//	from     to       when
//	idle     waiting  it enters the queue
//	waiting  granted  a slot is free
//	waiting  refused  its turn comes after startBy, or a caller of higher priority displaces it
//	waiting  idle     its context ends, or Options.MaxWait has passed
type waiterState uint8

const (
	idle waiterState = iota
	waiting
	granted
	refused
)

// queue holds waiters by priority, each class in order of arrival.
type queue struct {
	classes [priorities]struct {
		first, last *waiter
		n           int
	}
	n int
}

// ahead returns the number of waiters that go before a new one of priority p.
func (q *queue) ahead(p Priority) int {
	n := 0
	for i := range p.class() + 1 {
		n += q.classes[i].n
	}
	return n
}

func (q *queue) push(w *waiter) {
	c := &q.classes[w.priority.class()]
	w.state, w.prev, w.next = waiting, c.last, nil
	if c.last == nil {
		c.first = w
	} else {
		c.last.next = w
	}
	c.last = w
	c.n++
	q.n++
}

func (q *queue) remove(w *waiter) {
	c := &q.classes[w.priority.class()]
	if w.prev == nil {
		c.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		c.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.state, w.prev, w.next = idle, nil, nil
	c.n--
	q.n--
}

// pop removes and returns the next waiter, or nil if there is none.
func (q *queue) pop() *waiter {
	for i := range q.classes {
		if w := q.classes[i].first; w != nil {
			q.remove(w)
			return w
		}
	}
	return nil
}

// displaceable returns the newest waiter of the lowest priority below p, or nil if there is none.
func (q *queue) displaceable(p Priority) *waiter {
	for i := priorities - 1; i > p.class(); i-- {
		if w := q.classes[i].last; w != nil {
			return w
		}
	}
	return nil
}
