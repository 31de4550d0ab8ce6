//penstock:pure

package control

import (
	"math"
	"slices"
	"time"
)

// hanging handles attempts of a lane that hang while later ones are delivered. The cause is not the
// worker's queue, but usually bad data: its attempts return late or never. So such attempts do not
// count as load of the worker, and their timeouts do not narrow the window.
//
// If attempts hung recently, later ones give up their places in the window (they no longer count
// against its limit) long before they are overdue. An attempt does so when three attempts sent
// later have been delivered. It also does so when it takes twice as long as the queue before it
// explains. While the worker's pace is unknown, it does so when it takes longer than nearly all
// others.
//
// Attempts that were overtaken always give up their places. Attempts that were not overtaken do so
// as well, because bad data may have taken all places of a lane that delivers nothing. But their
// number is limited to that of bad items that may occur in a row. Otherwise a worker that hangs
// would get more and more attempts.
type hanging struct {
	// running attempts that do not count as load of the worker: those that hang, and those
	// of suspect items
	excluded      load
	notOvertaken  []*attempt // overdue, and not overtaken yet
	recent        float64    // attempts that were overdue and overtaken, decayed with each delivery
	sinceDelivery int        // places given up since the last delivery
	ranks         *hangRanks // nil if no attempt has hung
	overtakers    float64    // mean cost that overtakes a delivered attempt
}

const (
	hangingMemory  = 0.99             // decay of recent, for each delivery
	minHanging     = 0.3              // least value of recent: one in the last 120 deliveries
	hangingTimes   = 2                // multiple of the expected round trip that counts as long
	minHangingTime = time.Millisecond // minimum time that counts as long
)

// isRecent reports whether attempts hung recently.
func (s *hanging) isRecent() bool { return s.recent >= minHanging }

// exclude notes that attempt a runs but does not count as load of the worker.
func (s *hanging) exclude(a *attempt) {
	if a.excluded {
		return
	}
	a.excluded = true
	s.excluded.add(a.cost)
	if a.ofSuspect {
		return
	}
	if s.ranks == nil {
		s.ranks = &hangRanks{}
	}
	if a.ranked {
		a.hungIn = s.ranks
		s.ranks.observe(a, true, a.heldFor)
		s.ranks.overdue += float64(one(a.overdue))
	}
}

// countDelivered counts attempt a as delivered in ranks.
func (s *hanging) countDelivered(a *attempt, seconds float64) {
	switch {
	case !s.isRecent() && s.ranks.level == 0:
		s.ranks = nil
	case a.hungIn == s.ranks:
		s.ranks.undo(a)
	case a.ranked:
		s.ranks.observe(a, false, seconds)
	}
}

// assessHanging evaluates the attempts of l that hang. If they hang only above a certain number in
// flight (see [hangRanks]), it limits l to that number. It also widens the window of l, to make up
// for the time for which attempts that hang have places in it.
func (t *attempts) assessHanging(l *lane) {
	h := l.hanging.ranks
	if h == nil || l.win.starter == nil {
		l.win.widen = 1
		return
	}
	if h.level > 0 && (l.level.from == 0 || h.refuted()) {
		h.dropLevel()
		l.level.drop()
	}
	h.count(l.onTime.firstPlaced)
	l.win.widen = h.widening(2 * l.est.smoothed().Seconds())
	l.win.probe.widen = h.drainedWidening()
	if rank, found := h.findLevel(); found {
		l.level.assume(t.now, rank+1, untestedRounds*l.est.smoothed())
		l.level.beyond = h.above.hung
		l.win.starter.Refused(t.now, float64(rank))
		l.win.refresh()
	}
}

// returned stops counting attempt a, which has been answered.
func (s *hanging) returned(a *attempt) {
	if i := slices.Index(s.notOvertaken, a); i >= 0 {
		s.notOvertaken = slices.Delete(s.notOvertaken, i, i+1)
	}
	if a.excluded {
		s.excluded.remove(a.cost)
	}
}

// hangingAfter returns the time that attempt a may take before it counts as hanging and gives up
// its place in the window. The attempt was just sent to a lane with the estimates e.
func hangingAfter(a *attempt, e *estimator) time.Duration {
	d := e.overdueSoon()
	if rate := e.rate(); rate > 0 && e.service > 0 {
		d = toDuration(hangingTimes * (e.service + a.ahead/rate))
	}
	return max(d, minHangingTime)
}

// overdue notes that attempt a is overdue, and whether later attempts have overtaken it.
func (s *hanging) overdue(a *attempt, overtaken bool) {
	if a.hungIn != nil && a.hungIn == s.ranks {
		s.ranks.overdue++
	}
	if overtaken {
		s.recent++
		s.exclude(a)
	} else {
		s.notOvertaken = append(s.notOvertaken, a)
	}
}

// overtakeOverdue is called at a delivery by l. Overdue attempts sent before the latest delivered
// attempt have now been overtaken, so the worker's queue does not explain them: they count as
// hanging. The result reports whether there were any new ones.
func (t *attempts) overtakeOverdue(l *lane, late bool) bool {
	s := &l.hanging
	s.sinceDelivery = 0
	t.evidence.blame.hangs.recordDelivery(late)
	if s.recent *= hangingMemory; late {
		s.recent = max(0, s.recent-1) // the attempt was only slow
	}
	before := len(s.notOvertaken)
	s.notOvertaken = slices.DeleteFunc(s.notOvertaken, func(b *attempt) bool {
		if b.id > l.onTime.newest {
			return false
		}
		s.recent++
		t.evidence.blame.hangs.hung++
		s.exclude(b)
		t.hung(b)
		return true
	})
	return len(s.notOvertaken) < before
}

// giveUpOvertaken makes attempts of l give up their places in the window. Three later ones must
// have been delivered, and the attempt must have run for at least 1.5 round trips (minLostAge).
// Three is the number of duplicate acknowledgments in RFC 5681.
func (t *attempts) giveUpOvertaken(l *lane) {
	old := time.Duration(minLostAge * float64(l.est.smoothed()))
	a := l.onTime.firstPlaced
	if a == nil || t.now-a.sent < old {
		return
	}
	later := l.onTime.overtaken(a)
	for ; a != nil && later > 0 && t.now-a.sent >= old; a = a.later {
		if a.placed && overtakenThrice(a, later) {
			t.giveUpPlace(a)
		}
		later -= a.overtakers
	}
}

// giveUpPlace makes attempt a, which probably hangs, give up its place in the window, within the
// limit that [hanging] describes. If it is a probe, the next one may follow, as after a failed probe.
func (t *attempts) giveUpPlace(a *attempt) {
	l := a.lane
	if !a.placed {
		return
	}
	if !l.est.known {
		if l.est.missed >= t.explainable(l) { // only a timeout counts against the worker
			return
		}
		t.miss(a)
	} else if a.id > l.onTime.newest {
		if l.hanging.sinceDelivery >= t.evidence.blame.streakLimit(t.cfg.Breaker.Failures)-1 {
			return
		}
		l.hanging.sinceDelivery++
	}
	t.endPlace(a)
	l.hanging.exclude(a)
	t.hung(a)
	if !a.canceled {
		t.breakers.planNextProbe(a, TimedOut)
	}
	t.lanes.refresh(l)
}

// endPlace frees the place of attempt a in the window, if it has one. It also determines the rank
// of a, the number of attempts that the worker held when a was sent.
func (t *attempts) endPlace(a *attempt) {
	l := a.lane
	if !overtakenThrice(a, a.overtaken) {
		a.overtaken = l.onTime.overtaken(a)
	}
	if a.placed {
		a.heldFor = (t.now - a.sent).Seconds()
		l.rank(a, 0)
		l.win.ended(a)
		l.onTime.endPlace(a)
	}
}

// rank sets the rank of attempt a: the number of attempts that the worker held when a was sent.
// These are the attempts that were sent before a and have been delivered since. rank returns their
// cost. It does not count the delivered cost of a itself, which is the parameter taken.
func (l *lane) rank(a *attempt, taken float64) (held float64) {
	held = max(0, l.est.delivered-a.progress-taken-a.overtaken) // 0 if the worker has restarted
	if l.est.mean > 0 && a.hungIn == nil {
		a.rank = int(math.Round(held / l.est.mean))
	}
	return held
}

// hung handles an attempt that is counted as hanging.
func (t *attempts) hung(a *attempt) {
	l := a.lane
	if v := &l.level; v.trial == a {
		v.trial = nil
		if h := l.hanging.ranks; h != nil && h.level > 0 {
			v.trialRefused(t.now, a, l.est.smoothed())
		} else { // bad data that hangs is no evidence for a level of refusals
			v.since = t.now
		}
	}
	t.assessHanging(l)
}
