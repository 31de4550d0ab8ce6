//penstock:pure

package control

import "time"

// deadlines is a heap of the attempts that can become overdue, the first of them at 0. Each attempt
// knows its index, so that any can be removed. It is asked at every delivery, so that it keeps the
// times beside each other and has four children to a node.
type deadlines []deadline

type deadline struct {
	at time.Duration
	a  *attempt
}

const fanout = 4

func (d deadline) before(o deadline) bool {
	return d.at < o.at || d.at == o.at && d.a.id < o.a.id
}

func (h *deadlines) push(a *attempt) {
	*h = append(*h, deadline{})
	at := a.deadline
	if a.soon > 0 {
		at = min(at, a.soon)
	}
	h.up(len(*h)-1, deadline{at, a})
}

// removeAt takes the ith out. The hole goes down to a leaf, since the last one nearly always
// belongs there.
func (h *deadlines) removeAt(i int) {
	s := *h
	n := len(s) - 1
	last := s[n]
	s[i].a.at = -1
	s[n] = deadline{}
	s = s[:n]
	*h = s
	if i == n {
		return
	}
	for {
		child := fanout*i + 1
		if child >= n {
			break
		}
		first, d := child, s[child]
		for c, o := range s[child+1 : min(child+fanout, n)] {
			if o.before(d) {
				first, d = child+1+c, o
			}
		}
		s[i] = d
		d.a.at = i
		i = first
	}
	h.up(i, last)
}

// up moves the hole at i to where d belongs.
func (h *deadlines) up(i int, d deadline) {
	s := *h
	for i > 0 {
		parent := (i - 1) / fanout
		if !d.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		s[i].a.at = i
		i = parent
	}
	s[i] = d
	d.a.at = i
}

// excuse extends attempts that became overdue while the process was held up, because their answers
// may be queued. Each is extended by the same time again, once, and by at most a second. After a
// long delay the current round-trip samples are discarded.
func (t *attempts) excuse(late time.Duration) {
	t.lateAt = t.now
	late = min(late, time.Second)
	if late > heldUp {
		for _, l := range t.lanes.up {
			l.win.discard(t.now)
		}
	}
	for len(t.overdue) > 0 && t.overdue[0].at <= t.now && !t.overdue[0].a.excused {
		a := t.overdue[0].a
		t.overdue.removeAt(0)
		if a.deadline > t.now { // it only takes long
			a.soon = 0
			t.overdue.push(a)
			continue
		}
		a.excused, a.soon = true, 0
		a.deadline = t.now + late
		t.overdue.push(a)
	}
}

// expire times out the attempts that have reached their deadlines.
func (t *attempts) expire() {
	for len(t.overdue) > 0 && t.overdue[0].at <= t.now {
		a := t.overdue[0].a
		t.overdue.removeAt(0)
		if a.deadline > t.now {
			a.soon = 0
			t.overdue.push(a)
			t.takesLong(a)
			continue
		}
		// the machine is known to be busy only since then
		if d := a.sent + t.leastRTO(); t.cfg.Timeout == 0 && d > t.now {
			a.deadline = d
			t.overdue.push(a)
			continue
		}
		t.timeout(a)
		t.lanes.refresh(a.lane)
	}
}

// leastRTO is the shortest timeout now.
func (t *attempts) leastRTO() time.Duration {
	if t.lateAt > 0 && t.now-t.lateAt < heldUpFor {
		return leastBusyRTO
	}
	return leastRTO
}

// rto is the timeout now of an item of mean cost at l; 0: none.
func (t *attempts) rto(l *lane) time.Duration {
	if t.cfg.Timeout != 0 {
		return max(0, t.cfg.Timeout)
	}
	return l.est.rto(l.est.mean, t.leastRTO())
}

// patience is how long a, just sent, may take. In a start-up the window may have gone beyond the
// worker's slots by its own step: items that wait for that are not overdue. Where attempts hang,
// round trips may be few and old. There the time is scaled to the queue now, if that is shorter
// than it was.
func (t *attempts) patience(l *lane, a *attempt) time.Duration {
	least := t.leastRTO()
	d := l.est.rto(a.cost, least)
	if l.stuck.sure() && l.est.shift == 0 {
		d = max(min(d, least), time.Duration(float64(d)*l.est.lighter(a.ahead)))
	}
	if l.win.said.starting {
		d = min(startPatience*d, max(d, maxRTO))
	}
	return d
}

// timeout takes an attempt as overdue: its worker is BUSY, and another one is tried, unless the
// order of keys forbids it while the attempt runs.
func (t *attempts) timeout(a *attempt) {
	l, it := a.lane, a.item
	a.overdue = true
	l.outs.drop(a)
	l.win.ended(a)
	overtaken := a.sent < l.outs.delivered
	l.stuck.overdue(a, overtaken)
	l.stats.timedOut++
	if l.br.trial == a {
		l.br.trial = nil
	}
	if a.canceled {
		return
	}
	window, breaker := t.evidence.faults(a, TimedOut)
	if window && !overtaken {
		l.win.OnTimeout(t.now, a.cost)
		l.win.hear()
		if a != l.br.probe && a != t.lanes.global.probe && !l.stuck.sure() {
			l.est.double(t.now, a.sent) // a probe's wait is doubled by the breaker
		}
	}
	if breaker {
		t.breakers.failed(l, a, TimedOut)
	}
	t.backlog.hold(it)
	t.backlog.requeue(it, l)
}

// A Tick that comes late says that this process was held up: by others on its machine, a garbage
// collection, suspension.
const (
	// lateTick is from when on answers may be waiting behind.
	lateTick = time.Millisecond
	// heldUp is the delay from which every current round trip is discarded: it is longer by that
	// delay and gives no information about the workers.
	heldUp = 50 * time.Millisecond
	// heldUpFor is how long after a late Tick the computer is assumed to be busy, perhaps with
	// workers on the same computer: short round trips grow suddenly there.
	heldUpFor = time.Minute
)

// Minimum timeouts of a worker with a known round trip: Linux's value instead of the RFC's second,
// and the value on a busy machine.
const (
	leastRTO     = 200 * time.Millisecond
	leastBusyRTO = 800 * time.Millisecond
)

// startPatience is about the step of a window's start-up.
const startPatience = 2
