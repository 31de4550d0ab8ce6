//penstock:pure

package control

import "time"

// deadlines is a heap of the attempts that can become overdue, with the earliest at index 0. Each
// attempt knows its index, so that any can be removed. The heap is used at every delivery. To be
// fast, it stores the times next to each other and has four children per node.
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
	if a.earlyDeadline > 0 {
		at = min(at, a.earlyDeadline)
	}
	h.up(len(*h)-1, deadline{at, a})
}

// removeAt removes the ith deadline. It moves the hole down to a leaf, since the last deadline,
// which fills it, nearly always belongs there.
func (h *deadlines) removeAt(i int) {
	s := *h
	n := len(s) - 1
	last := s[n]
	s[i].a.heapIndex = -1
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
		d.a.heapIndex = i
		i = first
	}
	h.up(i, last)
}

// up moves the hole at index i towards the root until d may fill it, and stores d there.
func (h *deadlines) up(i int, d deadline) {
	s := *h
	for i > 0 {
		parent := (i - 1) / fanout
		if !d.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		s[i].a.heapIndex = i
		i = parent
	}
	s[i] = d
	d.a.heapIndex = i
}

// excuse is called after this process was held up, for example by a suspension. Answers may have
// arrived in the meantime without having been read. So each attempt that is past its deadline gets
// a new one, but only once: now plus the delay of the process (late, at most a second). After a
// long delay, the windows also discard their current round-trip samples.
func (t *attempts) excuse(late time.Duration) {
	t.lateAt = t.now
	late = min(late, time.Second)
	if late > processDelay {
		for _, l := range t.lanes.up {
			l.win.discard(t.now)
		}
	}
	for len(t.deadlines) > 0 && t.deadlines[0].at <= t.now && !t.deadlines[0].a.excused {
		a := t.deadlines[0].a
		t.deadlines.removeAt(0)
		a.earlyDeadline = 0
		if a.deadline <= t.now {
			a.excused, a.deadline = true, t.now+late
		}
		t.deadlines.push(a)
	}
}

// expire makes the attempts that have reached their deadlines overdue, see [attempts.timeout].
// Attempts that have reached only their early deadlines may give up their places in the window, see
// [hanging].
func (t *attempts) expire() {
	for len(t.deadlines) > 0 && t.deadlines[0].at <= t.now {
		a := t.deadlines[0].a
		t.deadlines.removeAt(0)
		if a.deadline > t.now {
			a.earlyDeadline = 0
			t.deadlines.push(a)
			t.giveUpPlace(a)
			continue
		}
		// The minimum timeout may have grown since attempt a was sent, because the process was held
		// up.
		if d := a.sent + t.minRTO(); t.cfg.Timeout == 0 && d > t.now {
			a.deadline = d
			t.deadlines.push(a)
			continue
		}
		t.timeout(a)
		t.lanes.refresh(a.lane)
	}
}

// minRTO returns the current minimum timeout.
func (t *attempts) minRTO() time.Duration {
	if t.lateAt > 0 && t.now-t.lateAt < busyAfterDelay {
		return minBusyRTO
	}
	return minRTO
}

// rto returns the current timeout of an item of mean cost at l, or 0 for none.
func (t *attempts) rto(l *lane) time.Duration {
	if t.cfg.Timeout != 0 {
		return max(0, t.cfg.Timeout)
	}
	return l.est.rto(l.est.mean, t.minRTO())
}

// timeoutOf returns the timeout of attempt a, which was just sent. During a start-up, the window
// may exceed the worker's capacity. So the timeout is longer, to allow for items that wait at the
// worker.
func (t *attempts) timeoutOf(l *lane, a *attempt) time.Duration {
	d := l.est.rto(a.cost, t.minRTO())
	if l.win.cached.starting {
		d = min(startupTimeoutFactor*d, max(d, maxRTO))
	}
	return d
}

// startTimeouts is the usual number of timeouts in a row, before the first delivery of a worker,
// that do not count against the worker. The number is lower if fewer failures open the breaker, and
// higher if bad data explains more timeouts (see explainable).
const startTimeouts = 8

// explainable returns the number of timeouts in a row at l that bad data explains. Such timeouts
// say nothing about the worker, so they neither narrow its window nor lengthen its timeout.
func (t *attempts) explainable(l *lane) int {
	n := t.evidence.blame.hangs.inARow()
	if l.est.known {
		return n
	}
	start := startTimeouts
	if opens := t.evidence.blame.streakLimit(t.cfg.Breaker.Failures); opens > 0 {
		start = min(start, opens) // that many failures open the breaker
	}
	return max(n, start)
}

// miss notes that attempt a has timed out, or that it has run for firstWait and its lane has not
// delivered yet. It reports whether bad data explains this.
func (t *attempts) miss(a *attempt) (explained bool) {
	e, most := &a.lane.est, t.explainable(a.lane)
	if !a.missed || e.known {
		a.missed = true
		e.missed++
	}
	if explained = e.missed <= most; explained {
		e.raise = e.missed
	}
	return explained
}

// firstWaitRounds is the wait before a lane without a delivery gets one more attempt, in round trips
// of the slowest lane that has delivered.
const firstWaitRounds = 4

// firstWait returns the time after which an unanswered attempt at l gives up its place in the
// window, so that l gets another attempt, although l has not delivered yet. It is at most the first
// timeout of RFC 6298. It is 0 (no such time) if l has delivered, if its window has no start-up, or
// if bad data does not explain more timeouts.
func (t *attempts) firstWait(l *lane) time.Duration {
	if l.est.known || l.win.starter == nil || l.est.missed >= t.explainable(l) {
		return 0
	}
	var slowest time.Duration
	for _, o := range t.lanes.up {
		if o.est.known {
			slowest = max(slowest, o.est.smoothed())
		}
	}
	if slowest == 0 {
		return initialRTO
	}
	return min(initialRTO, max(minRTO, firstWaitRounds*slowest))
}

// timeout handles an attempt that has become overdue: it counts against its worker, unless the data
// is to blame, and the item is sent to another worker. An item with keys waits until the attempt
// has returned.
func (t *attempts) timeout(a *attempt) {
	l, it := a.lane, a.item
	a.overdue = true
	t.endPlace(a)
	l.onTime.drop(a)
	overtaken := a.id < l.onTime.newest
	l.hanging.overdue(a, overtaken)
	t.evidence.blame.hangs.hung += float64(one(overtaken))
	if a.excluded {
		t.hung(a)
	}
	l.stats.timedOut++
	if l.br.trial == a {
		l.br.trial = nil
	}
	if a.canceled {
		return
	}
	window, breaker := t.evidence.countFailure(a, TimedOut)
	explained := t.miss(a)
	if window && !explained && !overtaken && !l.hanging.isRecent() {
		l.win.OnTimeout(t.now, a.cost)
		l.win.refresh()
		if !t.evidence.isProbe(a) {
			l.est.double(t.now, a.sent) // for a probe, the breaker doubles the wait
		}
	}
	if breaker {
		t.breakers.recordFailure(l, a, TimedOut)
	}
	t.backlog.markBlocking(it)
	t.backlog.requeueOverdue(it, l)
}

// A late Tick shows that this process was held up, for example by other processes, a garbage
// collection or a suspension.
const (
	// lateTick is the least delay of a Tick after which answers may be queued behind it.
	lateTick = time.Millisecond
	// processDelay is the delay above which all current round trips are discarded, because they
	// include the delay and so say nothing about the workers.
	processDelay = 50 * time.Millisecond
	// busyAfterDelay is the time after a late Tick for which the computer is assumed to be busy. If
	// workers run on the same computer, short round trips may suddenly grow.
	busyAfterDelay = time.Minute
)

// Minimum timeouts of a worker with a known round trip. minRTO is the value of Linux; RFC 6298
// recommends one second. minBusyRTO applies on a busy computer.
const (
	minRTO     = 200 * time.Millisecond
	minBusyRTO = 800 * time.Millisecond
)

// startupTimeoutFactor multiplies the timeout during the start-up of a window. The start-up may widen
// the window beyond the capacity of the worker, and then round trips grow.
const startupTimeoutFactor = 2
