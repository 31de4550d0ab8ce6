//penstock:pure

package supervise

import (
	"cmp"
	"container/heap"
	"fmt"
	"time"
)

// stops reports whether err asks for no further restart.
func stops(err error) bool { return asks(err, ErrStop) }

// mayTake returns the time that c may take to stop.
func (c *child) mayTake() time.Duration {
	return cmp.Or(c.Shutdown, c.patience, defaultChildShutdown)
}

// bound returns the longest time that stopping all children and detecting the stuck ones can take.
func (m *machine) bound() time.Duration {
	most := time.Duration(0)
	for c := m.first; c != nil; c = c.next {
		most = max(most, c.mayTake())
	}
	// The extra second is for supervisors below this one, which report their stuck children.
	return plus(m.spec.Shutdown, plus(most, time.Second))
}

// cancel tells the running incarnation of c to stop, with cause as the cause of its context's end.
func (m *machine) cancel(now time.Duration, c *child, cause error) {
	c.state, c.at = Halting, plus(now, c.mayTake())
	heap.Push(&m.stops, c)
	m.out = append(m.out, command{kind: commandCancel, child: c, cause: cause})
	m.report(Event{Kind: Stopping, Child: c.Name, Incarnation: c.incarnation, Err: cause})
}

// hang handles a child that has not stopped in time. If the child was to be restarted, the
// supervisor gives up, because a child must never have two incarnations at once.
func (m *machine) hang(now time.Duration, c *child) {
	heap.Remove(&m.stops, c.pos)
	c.state = Hanging
	m.report(Event{Kind: Stuck, Child: c.Name, Incarnation: c.incarnation, Ran: now - c.since})
	if m.phase < ending && c.afterEnd != thenRemove {
		m.escalate(now, c, "it did not stop in time, so it cannot be restarted")
	}
	m.advance(now)
}

// regroup restarts all children with a number (child.seq) of at least mark. It stops them in
// reverse order, and then starts them in order. They start at due, or later if stopping takes
// longer.
func (m *machine) regroup(now time.Duration, mark uint64, due time.Duration) {
	if m.phase == regrouping && mark >= m.mark {
		m.due = max(m.due, due)
		return
	}
	if m.phase != regrouping {
		m.phase, m.mark, m.due, m.cursor = regrouping, mark, due, m.last
	}
	m.mark, m.due = min(m.mark, mark), max(m.due, due)
	for c := m.last; c != nil && c.seq >= m.mark; c = c.prev {
		m.unwait(c)
	}
}

func (m *machine) unwait(c *child) {
	if c.state == Waiting {
		heap.Remove(&m.waits, c.pos)
		c.state = Idle
	}
}

// escalate makes the supervisor give up because of child c: it stops all children, and Serve
// returns an *EscalatedError.
func (m *machine) escalate(now time.Duration, c *child, reason string) {
	err := &EscalatedError{Supervisor: m.path, Child: c.Name, Reason: reason, Errs: m.errs}
	m.report(Event{Kind: Escalated, Child: c.Name, Err: err})
	m.stop(now, err, err)
}

// stop ends the children's contexts with cause, one by one. Serve then returns result.
func (m *machine) stop(now time.Duration, cause, result error) {
	if m.phase >= ending {
		return
	}
	m.phase, m.cursor, m.deadline = ending, m.last, plus(now, m.spec.Shutdown)
	m.cause, m.result = cause, result
	for len(m.waits) > 0 {
		m.unwait(m.waits[len(m.waits)-1])
	}
	m.advance(now)
}

// advance stops the next child, beginning with the last. In phase regrouping, it stops only the
// children from m.mark on. Once overdue is set, it stops all that remain at once. The phase ends
// when each of them has returned or is stuck.
func (m *machine) advance(now time.Duration) {
	if m.phase != regrouping && m.phase != ending {
		return
	}
	for c := m.cursor; c != nil && (m.phase == ending || c.seq >= m.mark); c = m.cursor {
		if c.state == Running {
			m.cancel(now, c, m.reason())
		}
		if c.state == Halting && !m.overdue {
			return
		}
		m.cursor = c.prev
	}
	switch {
	case m.phase == regrouping:
		m.release(now)
	case len(m.stops) == 0:
		m.phase = over
	}
}

func (m *machine) reason() error {
	if m.phase == regrouping {
		return ErrRestarting
	}
	return m.cause
}

// release schedules the start of a group that has stopped.
func (m *machine) release(now time.Duration) {
	m.phase = keeping
	for c := m.first; c != nil; c = c.next {
		if c.seq >= m.mark && c.state == Idle {
			m.wait(c, max(now, m.due))
		}
	}
}

// unlink removes a child that is not alive from the list.
func (m *machine) unlink(c *child) {
	if m.cursor == c {
		m.cursor = c.prev
	}
	if c.prev == nil {
		m.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		m.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	delete(m.names, c.Name)
	m.out = append(m.out, command{kind: commandRemoved, child: c})
}

// remove stops a child and then unlinks it.
func (m *machine) remove(now time.Duration, name string) error {
	c := m.names[name]
	if c == nil {
		return fmt.Errorf("child %q: no child has that name", name)
	}
	c.afterEnd = thenRemove
	switch {
	case c.state == Running:
		m.cancel(now, c, ErrRemoved)
	case !c.alive:
		m.unwait(c)
		m.unlink(c)
	}
	return nil
}

// restart stops a running child and starts it again. A waiting or finished child is only started.
// The start skips Backoff.
func (m *machine) restart(now time.Duration, name string) error {
	c := m.names[name]
	switch {
	case c == nil:
		return fmt.Errorf("child %q: no child has that name", name)
	case m.phase == notStarted || m.phase >= ending:
		return fmt.Errorf("child %q: %w", name, ErrStopped)
	case c.afterEnd == thenRemove:
		return fmt.Errorf("child %q: %w", name, ErrRemoved)
	case m.inGroup(c):
		if c.state == Finished {
			c.state = Idle
		}
		return nil // it is about to be restarted
	}
	switch c.state {
	case Running:
		c.afterEnd = thenRestart
		m.cancel(now, c, ErrRestarting)
	case Waiting:
		m.unwait(c)
		m.wait(c, now)
	case Finished, Idle:
		m.wait(c, now)
	}
	return nil
}

// stuck lists the children that have not returned, in the order in which they were told to stop.
func (m *machine) stuck() (list []*child) {
	for c := m.last; c != nil; c = c.prev {
		if c.alive {
			list = append(list, c)
		}
	}
	return list
}
