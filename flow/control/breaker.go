//penstock:pure

package control

import (
	"cmp"
	"time"
)

// breaker pauses a failing lane (it opens), and then probes the lane with one item at a time until
// the lane delivers again (it closes).
type breaker struct {
	streak int // consecutive failures, at most one per round trip
	// time of the first failure of the streak: a delivery of an attempt sent later ends the streak
	began  time.Duration
	failed time.Duration // time of the last failure: a failed attempt sent earlier does not count
	served time.Duration // time of the last delivery of an attempt sent before the streak; 0: none
	// no trial starts before this time, unless such an attempt is delivered
	awaits time.Duration
	level  int    // least number in flight at a refusal of the streak
	since  uint64 // lanes.delivered when the streak began, or at the last probe
	probes int    // consecutive failed probes since the last wait
	alive  bool   // the worker has answered since the breaker last closed
	state  breakerState
	fault  Outcome // the failure that opened the breaker
	// deliveries in the second before the breaker opened
	rateBefore float64
	opened     time.Duration
	until      time.Duration
	outage     outage
	probe      *attempt
	trial      *attempt // the only attempt allowed while the next failure would open the breaker
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen                // counted in lanes.openBreakers
	// The lane is paused for a short time, because no further breaker may open now. Other lanes
	// deliver, or this one is misconfigured.
	breakerPaused
)

// breakerGate is shut while the lane's breaker is open or pauses the lane briefly, and during the
// global backoff. While the next failure would open the breaker, it allows one attempt at a time. If
// earlier attempts are in flight, this attempt waits for up to a round trip until one of them is
// delivered.
type breakerGate struct {
	lanes *lanes
	lane  *lane
}

func newBreakerGate(ls *lanes, l *lane) gate { return &breakerGate{lanes: ls, lane: l} }

func (g *breakerGate) room(now time.Duration) int {
	b := &g.lane.br
	switch {
	case b.shut() || g.lanes.global.active:
		return 0
	case !g.lanes.isCautious(b):
		return unlimited
	}
	return one(b.trial == nil && now >= b.awaits)
}

func (g *breakerGate) next(now time.Duration) (time.Duration, bool) {
	b := &g.lane.br
	if !b.shut() && now < b.awaits {
		return b.awaits, true
	}
	return b.until, b.shut()
}

// isCautious reports whether the next failure would open the breaker b of a lane.
func (ls *lanes) isCautious(b *breaker) bool {
	if b.streak == 0 || b.shut() {
		return false
	}
	limit := ls.blame.streakLimit(ls.cfg.Breaker.Failures)
	return limit > 0 && b.streak >= limit-1
}

// shut reports whether the lane gets only probes.
func (b *breaker) shut() bool { return b.state != breakerClosed }

// isProbe reports whether attempt a is a probe that was sent since the lane was paused. It need not
// be the last one: the next probe may follow while one hangs.
func (b *breaker) isProbe(a *attempt) bool {
	return b.shut() && a.isProbe && a.sent >= b.opened
}

const (
	defaultFailures = 3
	// share of bad data from which failures among deliveries are weak evidence against a lane
	minBadShare    = 0.02
	massFailureFor = 3 * time.Second // duration of a mass failure after a breaker has opened
	chanceMemory   = 1000.0          // successes over which schedule.chance decays
	failureWeight  = 0.2             // of the newest outcome in the failure rate given to dispatch

	probeBase           = 500 * time.Millisecond
	maxProbeWaitOne     = 4 * time.Second // longest interval for one paused lane while others deliver
	maxProbeWaitSeveral = 6 * time.Second // likewise for several: when one recovers, all are probed
	maxProbeWaitEarly   = time.Second
	maxProbeWait        = 30 * time.Second
	earlyFor            = time.Minute
)

// probeSchedule is the common schedule of the lanes with an open breaker while others deliver. They
// are probed in turn, at intervals that double, so that the cost of probes does not grow with the
// number of lanes. When the first of them has recovered, all others are probed at once, except for
// misconfigured ones.
type probeSchedule struct {
	doubling
	until  time.Duration // end of the mass failure: other lanes may fail for the same reason
	last   time.Duration // the last turn assigned
	chance float64       // recent failures that were followed by a success at the same lane, decayed
}

// isMassFailure reports whether a lane that fails now probably fails for the reason that has just
// opened the breaker of another lane. It returns false if errors occur by chance.
func (t *probeSchedule) isMassFailure(now time.Duration) bool {
	return now < t.until && t.chance < 0.5
}

// breakers open and close the breakers of lanes.
type breakers struct {
	*env
	lanes    *lanes
	schedule probeSchedule
}

// nextProbeAt returns the time of a lane's next probe, at most 30 s away. If the parameter first is
// true, the lane's breaker has just opened. The schedule then restarts, unless other breakers are
// open and the failure is part of a mass failure.
func (bs *breakers) nextProbeAt(why Outcome, first bool) time.Duration {
	t := &bs.schedule
	if first && (bs.lanes.openBreakers <= 1 || !bs.schedule.isMassFailure(bs.now)) {
		t.doubling, t.last = doubling{since: bs.now}, bs.now
	}
	early := maxProbeWaitSeveral
	// A probe of a hanging lane takes a whole timeout anyway, and costs little: probe it more often.
	if bs.lanes.openBreakers <= 1 || why == TimedOut {
		early = maxProbeWaitOne
	}
	d := bs.jitter(t.next(bs.now, early, maxProbeWait), 0.75, 1)
	t.last = min(max(t.last, bs.now)+d, bs.now+maxProbeWait)
	return t.last
}

// wait returns the random time until the next probe in an outage, drawn from Breaker.Probe, or from
// the default schedule if that is nil. The parameter most is an upper bound; 0 means no extra bound.
func (bs *breakers) wait(o *outage, most time.Duration) time.Duration {
	if !o.active {
		*o = outage{active: true, doubling: doubling{since: bs.now}}
	}
	if policy := bs.cfg.Breaker.Probe; policy != nil {
		return min(bs.draw(policy, &o.state), cmp.Or(most, maxWait))
	}
	return bs.jitter(o.next(bs.now, maxProbeWaitEarly, cmp.Or(most, maxProbeWait)), 0.5, 1)
}

// recordSuccess notes that l is alive: it delivered an item or gave another proper answer.
func (bs *breakers) recordSuccess(l *lane, a *attempt) {
	b := &l.br
	l.throttle.accepted(bs.now)
	bs.schedule.chance *= 1 - 1/chanceMemory
	// A delivery ends the streak if its attempt was sent after the streak's first failure. Earlier
	// attempts show nothing new. It need not have been sent after the last failure, since failures
	// return sooner than deliveries.
	switch {
	case b.streak == 0 && !b.shut():
	case a.sent >= b.began:
		bs.schedule.chance++
		b.streak = 0
	default:
		b.served, b.awaits = bs.now, 0
	}
	l.failureRate -= failureWeight * l.failureRate
	if l.failureRate < 1e-3 {
		l.failureRate = 0
	}
	b.alive = true
	switch {
	case !b.shut():
	case b.isProbe(a) && !a.overdue:
		bs.close(l)
	case b.fault != Misconfigured && b.probe == nil && (b.fault == TimedOut || a.sent >= b.failed):
		// A late success: probe the lane at once. The window from before the failures is outdated,
		// so the breaker does not close yet.
		b.until = bs.now
		bs.lanes.timer.dirty = true
	}
	switch {
	case !bs.lanes.global.active:
	case a.overdue:
		bs.lanes.global.until = bs.now
	default:
		bs.endGlobalBackoff(l)
	}
}

// recordFailure notes a failure of l: a nack, a timeout, or a misconfiguration.
func (bs *breakers) recordFailure(l *lane, a *attempt, why Outcome) {
	b := &l.br
	b.alive = b.alive || why != TimedOut
	l.failureRate += failureWeight * (1 - l.failureRate)
	bs.extendStreak(l, a, why)
	bs.planNextProbe(a, why)
	switch {
	case b.isProbe(a):
		b.fault = why
	case !b.shut() && l.isUp():
		bs.openIfDue(l, why)
	}
}

// planNextProbe plans the next probe if attempt a is the last one, and has failed or hangs.
func (bs *breakers) planNextProbe(a *attempt, why Outcome) {
	if a == bs.lanes.global.probe {
		bs.globalProbeFailed(why)
	}
	if a == a.lane.br.probe && a.lane.br.shut() {
		bs.probeFailed(a.lane, why)
	}
}

// extendStreak adds the failure to the streak of l, unless it tells no more than an earlier one. A
// nack counts only if its attempt was sent after the last counted failure, so the nacks of one
// round trip count once. An overdue attempt counts only if the lane has delivered nothing since it
// was sent.
//
// A worker that refuses attempts above a number in flight may refuse many within a round trip. It
// still delivers the attempts that it has accepted. So under two conditions, a nack does not make
// the streak long enough to open the breaker. The worker must have delivered an earlier attempt in
// the last round trip. And no fewer attempts may have been in flight than at the other nacks of the
// streak, unless data is bad, which may also have caused the nack.
func (bs *breakers) extendStreak(l *lane, a *attempt, why Outcome) {
	b := &l.br
	if b.streak == 0 {
		b.since = bs.lanes.delivered
	}
	counts := a.sent >= b.failed
	if why == TimedOut {
		counts = l.est.delivered == a.progress
	}
	if !counts {
		return
	}
	b.failed = bs.now
	if why == Retryable && b.streak > 0 && l.running.n > 0 {
		wait := l.est.smoothed()
		serves := b.served > 0 && bs.now-b.served <= wait
		if serves {
			wait /= time.Duration(l.running.n) // until the next delivery
		}
		b.awaits = bs.now + wait
		bs.lanes.timer.dirty = true
		if serves && bs.lanes.isCautious(b) && (int(a.level) >= b.level ||
			bs.lanes.blame.share() >= minBadShare) {
			return
		}
	}
	if b.streak++; b.streak == 1 {
		b.began, b.served, b.level = bs.now, 0, int(a.level)
	}
	b.level = min(b.level, int(a.level))
}

// globalProbeFailed plans the next probe of the global backoff.
func (bs *breakers) globalProbeFailed(why Outcome) {
	g := &bs.lanes.global
	g.probe = nil
	if !bs.probeAgainNow(&g.probes, why) {
		g.until = bs.now + bs.wait(&g.outage, 0)
	}
	bs.lanes.timer.dirty = true
}

// probeFailed plans the next probe of l, which is paused. While other lanes deliver, the common
// schedule has its time, unless l is paused only briefly or Breaker.Probe is set.
func (bs *breakers) probeFailed(l *lane, why Outcome) {
	b := &l.br
	b.probe = nil
	if bs.probeAgainNow(&b.probes, why) {
		return
	}
	othersDeliver := bs.lanes.delivered > b.since
	if b.state == breakerPaused && !othersDeliver {
		bs.startGlobalBackoff()
	}
	b.since = bs.lanes.delivered
	switch {
	case b.state == breakerPaused:
		b.until = bs.now + bs.wait(&b.outage, maxProbeWaitEarly)
	case othersDeliver && bs.cfg.Breaker.Probe == nil:
		b.until = bs.nextProbeAt(why, false)
	default:
		b.until = bs.now + bs.wait(&b.outage, 0)
	}
	bs.lanes.timer.dirty = true
}

// openIfDue opens the breaker of l if the streak is long enough, or at once if l is misconfigured.
// In a mass failure one failure is enough, or two if data is bad.
func (bs *breakers) openIfDue(l *lane, why Outcome) {
	b := &l.br
	limit := bs.lanes.blame.streakLimit(bs.cfg.Breaker.Failures)
	enough := limit > 0 && b.streak >= limit
	sudden := bs.schedule.isMassFailure(bs.now) && why != TimedOut && limit > 0 &&
		b.streak > one(bs.lanes.blame.share() >= minBadShare)
	if why == Misconfigured || enough || sudden {
		bs.open(l, why)
	}
	if enough {
		bs.schedule.until = bs.now + massFailureFor
	}
}

// probeAgainNow counts a failed probe, and reports whether another one follows at once. It does if
// bad data may have failed the probe, but not after Misconfigured, which data does not cause.
func (bs *breakers) probeAgainNow(probes *int, why Outcome) bool {
	if *probes++; why != Misconfigured && *probes < bs.lanes.blame.probeLimit() {
		return true
	}
	*probes = 0
	return false
}

// open opens the breaker of l. At most half of the lanes, but always one, may have an open breaker.
// If standby lanes take over, all lanes may. If more lanes fail and none delivers, the machine
// suspects their common receiver and pauses all lanes except for one probe at a time. If others
// deliver, or if l is misconfigured, l is paused briefly.
func (bs *breakers) open(l *lane, why Outcome) {
	b := &l.br
	most := time.Duration(0)
	switch {
	case bs.lanes.mayOpen(l):
		b.state = breakerOpen
		bs.lanes.openBreakers++
	case bs.lanes.delivered > b.since || why == Misconfigured:
		b.state = breakerPaused
		most = maxProbeWaitEarly
	default:
		bs.startGlobalBackoff()
		b.streak = 0
		return
	}
	b.fault, b.probe, b.outage = why, nil, outage{}
	b.rateBefore, b.opened = l.limit.measured(bs.now), bs.now
	b.trial = nil
	if b.state == breakerOpen && bs.cfg.Breaker.Probe == nil {
		b.until = bs.nextProbeAt(why, true)
	} else {
		b.until = bs.now + bs.wait(&b.outage, most)
	}
	if why == Retryable && b.rateBefore >= minRateDeliveries && bs.cfg.Breaker.Probe == nil {
		// The worker may limit the attempts per second: wait until that second is over.
		b.until = max(b.until, bs.now+bs.jitter(rateSpan, 1, 1.05))
	}
	b.since = bs.lanes.delivered
	bs.lanes.endWindowProbe(l)
	bs.lanes.timer.dirty = true
	bs.lanes.failover()
}

// close closes the breaker of l. The window of l starts over.
func (bs *breakers) close(l *lane) {
	if l.br.state == breakerOpen {
		bs.lanes.openBreakers--
	}
	if b := &l.br; b.fault == Retryable && b.rateBefore >= minRateDeliveries &&
		bs.now-b.opened <= rateOutage &&
		l.level.chance < rateChance && bs.lanes.blame.share() < minBadShare {
		l.limit.assumeLimit(bs.now, b.rateBefore)
	}
	l.br = breaker{}
	l.level.reset()
	l.failureRate = 0
	bs.lanes.endWindowProbe(l)
	l.win.Reset(bs.now)
	l.win.refresh()
	bs.schedule.doubling, bs.schedule.last = doubling{since: bs.now}, bs.now
	for _, o := range bs.lanes.up { // the cause may have been repaired for all lanes
		b := &o.br
		if b.state != breakerOpen || b.fault == Misconfigured || b.probe != nil || b.until <= bs.now {
			continue
		}
		b.until = bs.now
		bs.lanes.timer.dirty = true
		bs.lanes.refresh(o)
	}
	bs.lanes.failover()
}

// global is the backoff of the whole machine while nothing is delivered anywhere.
type global struct {
	active bool
	until  time.Duration
	probe  *attempt
	probes int // consecutive failed probes since the last wait
	outage outage
}

// isShut reports whether no probe may be sent now.
func (g *global) isShut(now time.Duration) bool { return g.probe != nil || now < g.until }

func (bs *breakers) startGlobalBackoff() {
	if bs.lanes.global.active {
		return
	}
	bs.lanes.global = global{active: true}
	bs.lanes.global.until = bs.now + bs.wait(&bs.lanes.global.outage, 0)
	bs.lanes.timer.dirty = true
	bs.lanes.refreshAll()
}

// endGlobalBackoff ends the pause of all lanes (the global backoff) because the worker of l is
// alive. Every other lane that its own breaker pauses gets its probe at once, unless it is
// misconfigured.
func (bs *breakers) endGlobalBackoff(l *lane) {
	bs.lanes.global = global{}
	for _, o := range bs.lanes.up {
		if o != l && o.br.shut() && o.br.fault != Misconfigured {
			o.br.until = bs.now
		}
	}
	bs.lanes.timer.dirty = true
	bs.lanes.refreshAll()
}

// throttle handles a Throttled answer: it closes the gate of a lane that is alive but full.
func (bs *breakers) throttle(a *attempt) {
	l := a.lane
	l.stats.throttled++
	if a.canceled {
		return
	}
	if !a.overdue {
		if l.br.isProbe(a) {
			bs.close(l)
		}
		if a.isProbe && bs.lanes.global.active {
			bs.endGlobalBackoff(l)
		}
	}
	t := &l.throttle
	l.limit.countRefusal()
	counts := a.sent >= t.last // else sent together with an attempt that has been refused
	if counts {
		l.limit.refused(bs.now, t.until, a.after)
		t.last = bs.now
	}
	switch {
	case a.after > 0:
		if stated := min(a.after, maxThrottle); bs.now+stated > t.until {
			t.until = bs.now + min(bs.jitter(stated, 1, 1.1), maxThrottle)
		}
	case counts:
		t.lengthen(bs.now, l.est.smoothed())
		t.until = max(t.until, bs.now+bs.jitter(t.wait, 0.5, 1))
	}
	bs.lanes.timer.dirty = true
}

// releaseProbe handles the end of attempt a. If a was a probe (of a breaker or of the global
// backoff) or a trial (of a breaker or a level), another one may now be sent.
func (bs *breakers) releaseProbe(a *attempt) {
	l := a.lane
	for _, p := range [...]**attempt{&l.br.probe, &l.br.trial, &l.level.trial, &bs.lanes.global.probe} {
		if *p == a {
			*p = nil
		}
	}
}
