//penstock:pure

package control

import (
	"cmp"
	"container/heap"
	"time"
)

// suspects holds the suspects: items that fail although their workers deliver others. Each waits as
// configured by Config.Retry before each further attempt, and its attempts do not count against the
// limit of a window.
//
// Attempts of suspects take at most about 5 % of the time that all attempts take, so a slow failure
// costs more than a quick one. One may always run while no other item is in flight. Every second
// attempt is for the suspect with the least evidence against it, so that a good item that became a
// suspect by mistake is delivered soon. The other attempts are for the suspects in the order of
// their due times.
type suspects struct {
	waiting       [suspectClasses]delays // by number of failures, at most 15
	n             int
	allowed       float64 // seconds that attempts of suspects may still take
	typical       float64 // mean seconds of an attempt
	running       int
	leastEvidence bool // the next attempt is for the item with the least evidence
	toGiveUp      []itemRef
	unsettled     int // suspects that have not settled
}

const (
	suspectClasses     = 16
	suspectShare       = 0.05
	maxSuspectSeconds  = 10.0 // maximum of allowed, in seconds
	suspectWeight      = 0.25 // of the newest attempt in typical
	maxSuspectsPerLane = 2    // maximum attempts of suspects in flight at a lane
)

func (q *suspects) add(it *item) {
	it.account.class = uint8(min(it.account.failures, suspectClasses-1))
	heap.Push(&q.waiting[it.account.class], it)
	q.n++
}

func (q *suspects) remove(it *item) {
	heap.Remove(&q.waiting[it.account.class], it.heapIndex)
	q.n--
}

// next returns the earliest time after now at which a suspect becomes due. For each number of
// failures, it considers only the suspect that is due first. It returns false if there is no such
// time.
func (q *suspects) next(now time.Duration) (at time.Duration, ok bool) {
	if q.n == 0 {
		return 0, false
	}
	for i := range q.waiting {
		if s := q.waiting[i]; len(s) > 0 && s[0].due > now && (!ok || s[0].due < at) {
			at, ok = s[0].due, true
		}
	}
	return at, ok
}

// pick returns the suspect that has been due longest or, if fewest is true, a due one with the
// least evidence against it. It returns nil if none is due.
func (q *suspects) pick(now time.Duration, fewest bool) (it *item) {
	for i := range q.waiting {
		s := q.waiting[i]
		if len(s) == 0 || s[0].due > now || it != nil && s[0].due >= it.due {
			continue
		}
		if it = s[0]; fewest {
			return it
		}
	}
	return it
}

// affords reports whether one more attempt of a suspect may start: the time allowed covers the
// expected time of those that run already. If idle is true, no other item is in flight, and one
// suspect may always run.
func (q *suspects) affords(idle bool) bool {
	return q.allowed-float64(q.running)*q.typical >= 0 || q.running == 0 && idle
}

// spent accounts for the duration of an attempt that has ended. An attempt of a suspect reduces the
// time allowed for suspects, and any other attempt adds to it. At a lane with a rate limit, an
// attempt counts at least as long as the interval between two attempts.
func (q *suspects) spent(a *attempt, now time.Duration) {
	limit := max(maxSuspectSeconds, 2*q.typical)
	if !a.ofSuspect && q.allowed >= limit {
		q.allowed = limit
		return
	}
	seconds := (now - a.sent).Seconds()
	if rate := a.lane.limit.paced(now); rate > 0 {
		seconds = max(seconds, 1/rate)
	}
	if !a.ofSuspect {
		q.allowed = min(q.allowed+seconds*suspectShare/(1-suspectShare), limit)
		return
	}
	q.running--
	q.allowed -= seconds
	q.typical += suspectWeight * (seconds - q.typical)
}

// waitAsSuspect makes the item, which is a suspect, wait until the time due before its next
// attempt.
func (b *backlog) waitAsSuspect(it *item, due time.Duration) {
	it.state, it.due = inSuspects, due
	b.suspects.add(it)
	b.retrying.add(it)
	b.retrying.deferred.addWait(b, it)
}

// sendSuspects starts attempts of suspects, or refuses the suspects if Poison.Refuse is true.
func (d *dispatcher) sendSuspects(out []Command) []Command {
	if d.cfg.Poison.Refuse {
		return d.refuseSuspects(out)
	}
	q := &d.backlog.suspects
	for q.n > 0 && q.affords(d.lanes.load.n == 0) {
		it, l := d.dueSuspect(q.leastEvidence)
		if l == nil {
			it, l = d.dueSuspect(!q.leastEvidence)
		}
		if l == nil {
			break
		}
		q.leastEvidence = !q.leastEvidence
		d.backlog.leave(it)
		out = d.attempts.start(it, l, SuspectAttempt, out)
	}
	return out
}

func (d *dispatcher) refuseSuspects(out []Command) []Command {
	q := &d.backlog.suspects
	for i := range q.waiting {
		for len(q.waiting[i]) > 0 {
			it := q.waiting[i][0]
			out = d.settlement.carryOutDecision(it, d.settlement.refuseAsPoison(it, out))
		}
	}
	return out
}

// dueSuspect returns a suspect that is due (see [suspects.pick]) and the lane for its attempt. The
// lane is nil if none is due, or if no lane may take it now.
func (d *dispatcher) dueSuspect(fewest bool) (*item, *lane) {
	it := d.backlog.suspects.pick(d.now, fewest)
	if it == nil {
		return nil, nil
	}
	return it, d.suspectLane(it)
}

// suspectLane returns the lane for an attempt of a suspect, preferably one that has not failed it.
// It returns nil if no lane may take it now.
func (d *dispatcher) suspectLane(it *item) (best *lane) {
	only, ok := it.mayStart()
	if !ok {
		return nil
	}
	for _, l := range d.lanes.up {
		if !l.available || l.gates.shut(d.now, forSuspect) ||
			l.onTime.ofSuspects >= maxSuspectsPerLane || it.runsAt(l) ||
			only != nil && only != l || d.lanes.policy.binds && !d.lanes.wouldPick(it, l) {
			continue
		}
		if best == nil || it.compareLanes(l, best) < 0 {
			best = l
		}
	}
	return best
}

// compareLanes orders lanes for an attempt of a suspect: those that have not failed it first, then
// those with fewer attempts of suspects, then those to which nothing was sent for longer.
func (it *item) compareLanes(l, o *lane) int {
	return cmp.Or(one(it.failedAt(l))-one(it.failedAt(o)),
		cmp.Compare(l.onTime.ofSuspects, o.onTime.ofSuspects),
		cmp.Compare(l.lastStart, o.lastStart))
}
