//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// answer handles an Answer event: a worker's Deliver has returned. It ends the attempt at the lane,
// measures the round trip of a delivery, and applies the outcome. At an Ordered lane, the outcome
// is applied only after those of the earlier attempts in the lane's current run (see [orderedRun]).
func (t *attempts) answer(e *Event, out []Command) []Command {
	a := t.table.find(e.ID)
	if a == nil || e.Outcome < Delivered || e.Outcome > Split {
		return out
	}
	l := a.lane
	full := t.lanes.free == 0
	if t.group.isFull() {
		full, a.groupLimited = true, true
	} else {
		a.limited = a.limited || !a.overdue && l.win.room(t.now) <= 0
	}
	if a.heapIndex >= 0 {
		t.deadlines.removeAt(a.heapIndex)
	}
	taken := 0.0 // cost that was delivered or rejected
	switch e.Outcome {
	case Delivered:
		taken = a.cost
	case Split:
		taken = min(e.Cost, a.cost)
		a.partial = taken > 0 // the worker has processed the whole item
	}
	if a.listed && (l.hanging.ranks != nil || e.Outcome == TimedOut) {
		a.overtaken = l.onTime.overtaken(a)
	}
	if taken > 0 {
		l.onTime.recordDelivery(a, taken)
	}
	l.onTime.drop(a)
	l.running.remove(a.cost)
	t.lanes.inFlightCost -= a.cost
	if a.ofSuspect {
		l.onTime.ofSuspects--
	}
	l.hanging.returned(a)
	shut := t.lanes.shared.full(t.now)
	if l.gates.ended(a); shut && !t.lanes.shared.full(t.now) {
		t.lanes.refreshAll()
	}
	t.backlog.suspects.spent(a, t.now)
	l.lastAnswer = t.now
	a.answered, a.outcome, a.after, a.died = true, e.Outcome, e.After, e.Died
	t.lanes.restarted(l, &e.Report)
	if taken > 0 {
		t.measure(a, taken, &e.Report, full)
	}
	if e.Outcome == Split {
		t.settlement.expectPieces(a, e.Pieces)
	}
	if a.ordered {
		l.run.broken = l.run.broken || e.Outcome != Delivered
		out = t.concludeRun(l, out)
	} else {
		out = t.conclude(a, out)
	}
	l.reorder()
	t.lanes.refresh(l)
	t.lanes.prune(l)
	return out
}

// measure counts a delivery by attempt a, and passes its round trip to the estimator, the window
// and the group. The parameter taken is the cost that was delivered or rejected. The parameter full
// reports whether no lane had room before the answer. The group needs it, because it compares lanes
// under full load.
func (t *attempts) measure(a *attempt, taken float64, r *Report, full bool) {
	l := a.lane
	t.lanes.delivered++
	l.limit.recordDelivery(t.now, a.sent)
	first := !l.est.known
	l.est.known, l.est.missed, l.est.raise = true, 0, 0
	l.stats.delivered++
	l.est.delivered += taken
	t.evidence.confirmFailures(a)
	if a.ofSuspect { // a has no place in the window, so its round trip must not affect the window
		return
	}
	seconds := (t.now - a.sent).Seconds()
	l.est.sample(seconds, a.cost)
	l.onTime.markLost(t.now, &l.est)
	if t.overtakeOverdue(l, a.overdue) {
		l.win.OnUndo(t.now)
	}
	presumedLost := l.onTime.lost.n
	if l.hanging.isRecent() {
		t.giveUpOvertaken(l)
		presumedLost = 0
	}
	t.measureRank(a, taken, seconds)
	l.reportsTimes = l.reportsTimes || r.QueueWait > 0 || r.Service > 0
	sample := t.windowSample(a, r, presumedLost)
	if l.win.starter != nil {
		t.deliveredAtLevel(a)
	}
	t.observe(l, sample.Normal)
	if a.overdue {
		l.stats.late++
		l.est.spurious()
		l.win.OnUndo(t.now)
		l.win.OnSample(sample)
		l.win.refresh()
		return
	}
	l.est.inTime()
	l.est.progress(t.now, seconds, a.cost, a.ahead, l.est.delivered-a.progress)
	// While an experiment pauses lanes (see group), round trips are not typical: keep the windows.
	if t.group.phase <= wholePhase && (first || !a.raised) {
		l.win.OnSample(sample)
		if t.group.phase == noPhase {
			t.lanes.updateWindowProbe(l, a.limited && t.backlog.consecutiveNew >= busySource)
		}
		l.win.refresh()
	}
	if t.cfg.Shared {
		t.group.observe(a, &sample, seconds, full)
	}
}

// windowSample returns the sample of attempt a for the window of its lane. The parameter
// presumedLost is the number of running attempts presumed lost, or 0 if bad data explains them.
func (t *attempts) windowSample(a *attempt, r *Report, presumedLost int) window.Sample {
	l, rtt := a.lane, t.now-a.sent
	return window.Sample{
		Now: t.now, RoundTrip: rtt, Normal: toDuration(l.est.normal(rtt.Seconds(), a.cost)),
		Cost: a.cost, Mean: l.est.mean,
		InFlightAtSend: a.ahead, Lost: a.lostCost, PresumedLost: presumedLost,
		Uncertain: 1 - 1/l.win.widening(),
		Done:      l.est.delivered - a.progress,
		Limited:   a.limited && !a.raised, Late: a.overdue, Epoch: a.epoch,
		Advert: window.Advert{
			Valid: r.Epoch != 0, Credit: r.Credit, Taken: r.Taken, Cost: r.Cost, Batches: r.Batches,
			QueueLen: r.QueueLen, Wait: r.QueueWait,
			WaitKnown: r.Epoch != 0 && l.reportsTimes,
		},
	}
}

// deliveredAtLevel notes the delivery of attempt a in the level of its lane. It drops a level that
// the delivery refutes, or that the window makes superfluous.
func (t *attempts) deliveredAtLevel(a *attempt) {
	l := a.lane
	if l.level.trial == a && l.hanging.ranks != nil {
		l.hanging.ranks.dropLevel()
	}
	l.level.delivered(t.now, a)
	if !l.win.probe.on { // while a measurement narrows the window, the level stays
		l.level.dropIfAbove(l.win.cached.limit)
	}
}

// conclude applies the outcome of attempt a to the lane (its breaker, and after a failure its
// window) and to the item: the item is settled, refused, replaced by pieces or sent again.
func (t *attempts) conclude(a *attempt, out []Command) []Command {
	l, it := a.lane, a.item
	t.detach(a)
	switch a.outcome {
	case Delivered:
		t.breakers.recordSuccess(l, a)
		out = t.settlement.deliver(it, a, out)
	case Throttled:
		t.breakers.throttle(a)
		t.backlog.budget.refund(a, t.now)
		t.backlog.requeueAnswered(it, nil)
		it.waited = it.waited || it.state == inRetry // the throttle gate makes the item wait
	case Retryable, TimedOut:
		if t.settlement.countDeath(a) {
			t.breakers.recordSuccess(l, a)
			out = t.settlement.refuseAsPoison(it, out)
			break
		}
		t.nack(a)
		t.backlog.requeueAnswered(it, l)
	case Rejected:
		t.breakers.recordSuccess(l, a)
		out = t.settlement.reject(it, out)
	case Misconfigured:
		if !a.canceled {
			l.stats.failed++
			t.breakers.recordFailure(l, a, Misconfigured)
		}
		t.backlog.budget.refund(a, t.now)
		t.backlog.requeueAnswered(it, nil)
	case Split:
		if a.partial {
			t.breakers.recordSuccess(l, a)
		} else {
			t.nack(a)
		}
		out = t.settlement.settlePieces(a, out)
		t.backlog.requeueAnswered(it, l) // does nothing if pieces follow
	}
	out = t.settlement.carryOutDecision(it, out)
	t.breakers.releaseProbe(a)
	t.table.remove(a)
	t.backlog.release(it)
	return out
}

// detach removes the attempt from the running attempts of its item. It also decrements the
// in-flight counts of the item's keys.
func (t *attempts) detach(a *attempt) {
	a.item.drop(a)
	t.backlog.countInFlight(a.item, a.lane, -1)
}

// nack counts a failed attempt (retryable or timed out) against the window and the breaker of its
// lane, unless the item is to blame. It ignores attempts that were canceled, and those that were
// overdue, since they were already counted as timeouts.
func (t *attempts) nack(a *attempt) {
	l := a.lane
	if a.overdue || a.canceled {
		return
	}
	l.stats.failed++
	window, breaker := t.evidence.countFailure(a, a.outcome)
	switch {
	case !window:
	case a.outcome == TimedOut:
		l.win.OnTimeout(t.now, a.cost)
	case l.win.starter == nil:
		l.win.OnNack(t.now, a.cost)
	default:
		t.countRefusal(l, a)
	}
	l.win.refresh()
	if breaker {
		why := a.outcome
		if why == Split { // which settled nothing
			why = Retryable
		}
		t.breakers.recordFailure(l, a, why)
	}
}

// countRefusal handles a retryable answer, which has three possible causes. The worker refuses
// above a certain number of attempts in flight (its level), or refuses at any number because it is
// overloaded or defective, or the failure is random. In the first case, the window is narrowed to
// the level when the level is found. In the second case, each refusal narrows the window: each
// failure causes one more attempt, so an unchanged window would send the worker more attempts than
// before. A random failure does not narrow the window.
func (t *attempts) countRefusal(l *lane, a *attempt) {
	l.level.usual = t.evidence.usualChance()
	switch l.level.refused(t.now, a, l.est.smoothed()) {
	case newLevel:
		l.win.starter.Refused(t.now, float64(l.level.from-1))
	case noLevel:
		if l.level.isDistressed() || t.evidence.failsMore(l) {
			l.win.OnNack(t.now, a.cost)
		}
	}
}

// maxThrottle bounds the time for which one answer of a worker may close its gate.
const maxThrottle = 5 * time.Minute

// measureRank handles the delivery of attempt a if attempts of the lane have hung. It records the
// delivery in the hangRanks, which find out why attempts hang. It also corrects a.ahead, the load
// of the worker when a was sent: attempts that hang are no load, unless they are merely slow.
func (t *attempts) measureRank(a *attempt, taken, seconds float64) {
	l := a.lane
	if l.hanging.ranks == nil {
		return
	}
	if a.ranked && !a.overdue {
		held := l.rank(a, taken)
		l.hanging.overtakers += 0.05 * (a.overtaken - l.hanging.overtakers)
		a.lostCost = 0
		if held > 1e-6 { // not a rounding error
			held += l.hanging.overtakers
		}
		// Attempts that seem to hang are load of the worker if they are only slow.
		a.ahead += l.hanging.ranks.hungShare() * (held + a.cost - a.ahead)
	}
	l.hanging.countDelivered(a, seconds)
	t.assessHanging(l)
}
