//penstock:pure

package control

import (
	"time"
)

// breaker leaves a lane alone that fails, and tries it with one item at a time until it is back.
type breaker struct {
	streak int // failures in a row, one for each round trip
	// time of the first answer among them: if there is bad data, a delivery of an item sent later
	// ends the streak
	began  time.Duration
	failed time.Duration // time of the last one: only attempts sent later count for or against
	since  uint64        // lanes.delivered when the streak began
	score  float64       // EWMA of successes since it last closed
	n      int           // outcomes in score
	open   bool          // counted in lanes.opened
	// paused in the same way beyond the cap, because others deliver; never for long
	rest   bool
	fault  Outcome // the failure that opened it
	pace   float64 // deliveries in the second before that
	opened time.Duration
	until  time.Duration
	outage outage
	probe  *attempt
	trial  *attempt // before the failure that would open it one attempt at a time is enough to lose
}

// breakerGate is shut while the lane's breaker is open, or those of all lanes are. Before the
// failure that would open it, it takes one attempt at a time.
type breakerGate struct {
	fixed
	lanes *lanes
	lane  *lane
}

func newBreakerGate(ls *lanes, l *lane) gate { return &breakerGate{lanes: ls, lane: l} }

func (g *breakerGate) name() string { return gateBreaker }

func (g *breakerGate) room(time.Duration) int {
	b := &g.lane.br
	switch {
	case b.shut() || g.lanes.global.active:
		return 0
	case !g.wary():
		return unlimited
	}
	return one(b.trial == nil)
}

func (g *breakerGate) next(time.Duration) (time.Duration, bool) {
	return g.lane.br.until, g.lane.br.shut()
}

// wary reports whether the next failure opens the breaker.
func (g *breakerGate) wary() bool {
	b := &g.lane.br
	return b.streak > 0 && !b.shut() && b.streak == g.lanes.blame.streak(g.lanes.cfg.Breaker.Failures)-1
}

func (b *breaker) shut() bool { return b.open || b.rest }

const (
	defaultFailures = 3
	scoreWeight     = 0.1
	scoreLeast      = 0.5
	scoreAfter      = 10
	// share of bad data from which failures among deliveries are weak evidence about a lane
	badLeast      = 0.02
	outbreakFor   = 3 * time.Second // after a breaker has opened
	chanceOf      = 1000.0          // successes in which a failure that one followed is forgotten
	failureWeight = 0.2             // of the newest outcome in the failure rate given to dispatch

	probeBase  = 500 * time.Millisecond
	probeAlone = 4 * time.Second // where others deliver: there is less hurry,
	probeTurn  = 6 * time.Second // and less where lanes take turns: one that is back speaks for all
	probeEarly = time.Second
	probeLate  = 30 * time.Second
	earlyFor   = time.Minute
)

// tries is the timetable of the lanes that are paused while others deliver. They are tried in turn,
// at intervals that double: the cost of the tries does not grow with the number of lanes. The first
// recovered lane causes all others to be tried at once.
type tries struct {
	until  time.Duration // until then, other lanes may fail for the reason that opened a breaker
	since  time.Duration
	last   time.Duration // turn that was given away
	k      uint
	chance float64 // failures of late that a success at the same lane followed
}

// outbreak reports whether a lane that fails now is likely to fail for the reason that has just
// opened another's breaker. If errors occur by chance, it is not.
func (t *tries) outbreak(now time.Duration) bool { return now < t.until && t.chance < 0.5 }

// breakers open and close the breakers of lanes.
type breakers struct {
	*env
	lanes *lanes
	tries tries
}

// turn returns the time of a lane's next try, at most 30 s away. A lane with an independent first
// failure restarts the timetable.
func (bs *breakers) turn(why Outcome, first bool) time.Duration {
	t := &bs.tries
	if first && (bs.lanes.opened <= 1 || !bs.tries.outbreak(bs.now)) {
		t.k, t.since, t.last = 0, bs.now, bs.now
	}
	limit := probeLate
	if bs.now-t.since < earlyFor {
		limit = probeTurn
		// a try of a hanging lane costs little, and takes a timeout
		if bs.lanes.opened <= 1 || why == TimedOut {
			limit = probeAlone
		}
	}
	d := bs.jitter(min(probeBase<<min(t.k, 10), limit), 0.75, 1)
	t.k++
	t.last = min(max(t.last, bs.now)+d, bs.now+probeLate)
	return t.last
}

// succeeded takes in that l took an item, or answered sensibly: it is alive.
func (bs *breakers) succeeded(l *lane, a *attempt) {
	b := &l.br
	bs.tries.chance *= 1 - 1/chanceOf
	since := b.began // and not the last failure: failures come back sooner than deliveries
	if l.doubts.chance() > ownFault*bs.lanes.blame.chance() {
		since = b.failed // unless it is this lane that fails
	}
	if a.sent >= since {
		if b.streak > 0 || b.shut() {
			bs.tries.chance++
		}
		b.streak = 0
	}
	l.failing -= failureWeight * l.failing
	if l.failing < 1e-3 {
		l.failing = 0
	}
	b.n++
	b.score += max(scoreWeight, 1/float64(b.n)) * (1 - b.score)
	switch {
	case !b.shut():
	case a == b.probe:
		bs.close(l)
	case b.fault != Misconfigured && b.probe == nil && (b.fault == TimedOut || a.sent >= b.failed):
		// a late answer: check at once whether it is back; the window before its errors is
		// irrelevant
		b.until = bs.now
		bs.lanes.timer.dirty = true
	}
	switch {
	case !bs.lanes.global.active:
	case a.late:
		bs.lanes.global.until = bs.now
	default:
		bs.recovered(l)
	}
}

// failed takes in a failure of l: a nack, a timeout, or its own fault.
func (bs *breakers) failed(l *lane, a *attempt, why Outcome) {
	b := &l.br
	l.failing += failureWeight * (1 - l.failing)
	if b.streak == 0 {
		b.since = bs.lanes.delivered
	}
	// The nacks of one round trip count once. Overdue attempts are no evidence of a dead worker if
	// others were delivered meanwhile.
	event := a.sent >= b.failed
	if why == TimedOut {
		event = l.est.delivered == a.progress
	}
	if event {
		if b.streak++; b.streak == 1 {
			b.began = bs.now
		}
		b.failed = bs.now
		b.n++
		b.score -= max(scoreWeight, 1/float64(b.n)) * b.score
	}
	if a == bs.lanes.global.probe {
		bs.lanes.global.probe = nil
		bs.lanes.global.until = bs.now + bs.wait(&bs.lanes.global.outage, bs.cfg.Breaker.Probe, 0)
		bs.lanes.timer.dirty = true
	}
	if a == b.probe && b.shut() {
		b.probe = nil
		b.fault = why
		most, turns := time.Duration(0), false
		switch {
		case b.rest:
			most = probeEarly
			if bs.lanes.delivered == b.since {
				bs.suspect() // the others deliver no more
			}
		case bs.lanes.delivered > b.since:
			turns = bs.cfg.Breaker.Probe == nil
		}
		b.since = bs.lanes.delivered
		if turns {
			b.until = bs.turn(why, false)
		} else {
			b.until = bs.now + bs.wait(&b.outage, bs.cfg.Breaker.Probe, most)
		}
		bs.lanes.timer.dirty = true
		return
	}
	if b.shut() || l.at < 0 {
		return
	}
	limit := bs.lanes.blame.streak(bs.cfg.Breaker.Failures)
	good := 1 - bs.lanes.blame.observed()
	poor := b.n >= scoreAfter && b.score < scoreLeast*good*good &&
		bs.lanes.blame.first >= scoreAfter && bs.lanes.blame.share() < badLeast
	enough := limit > 0 && (b.streak >= limit || poor)
	sudden := bs.tries.outbreak(bs.now) && why != TimedOut && limit > 0
	if why == Misconfigured || enough || sudden {
		bs.open(l, why)
	}
	if enough {
		bs.tries.until = bs.now + outbreakFor
	}
}

// open pauses l. At most half of the lanes are open, and of lanes with standbys all may be. If more
// fail and none delivers, their common receiver is suspected, and all are paused except for one
// probe. If others deliver, l is paused only for moments.
func (bs *breakers) open(l *lane, why Outcome) {
	b := &l.br
	most := time.Duration(0)
	switch {
	case bs.lanes.mayOpen(l):
		b.open = true
		bs.lanes.opened++
	case bs.lanes.delivered > b.since || why == Misconfigured:
		b.rest = true
		most = probeEarly
	default:
		bs.suspect()
		b.streak = 0
		return
	}
	b.fault, b.probe, b.outage = why, nil, outage{}
	b.pace, b.opened = l.limit.measured(bs.now), bs.now
	b.trial = nil
	if b.open && bs.cfg.Breaker.Probe == nil {
		b.until = bs.turn(why, true)
	} else {
		b.until = bs.now + bs.wait(&b.outage, bs.cfg.Breaker.Probe, most)
	}
	if why == Retryable && b.pace >= rateFew && bs.cfg.Breaker.Probe == nil {
		b.until = max(b.until, bs.now+bs.jitter(rateSpan, 1, 1.05)) // it may count by the second
	}
	b.since = bs.lanes.delivered
	bs.lanes.endProbe(l)
	bs.lanes.timer.dirty = true
	bs.lanes.failover()
}

// close takes l back: its window starts over.
func (bs *breakers) close(l *lane) {
	if l.br.open {
		bs.lanes.opened--
	}
	if b := &l.br; b.fault == Retryable && b.pace >= rateFew && bs.now-b.opened <= rateOutage &&
		l.refuses.chance < rateChance && bs.lanes.blame.share() < badLeast {
		l.limit.suppose(bs.now, b.pace)
	}
	l.br = breaker{}
	l.refuses.forget()
	l.failing = 0
	bs.lanes.endProbe(l)
	l.win.Reset(bs.now)
	l.win.hear()
	t := &bs.tries
	t.k, t.since, t.last = 0, bs.now, bs.now
	for _, o := range bs.lanes.up { // the repaired fault may be repaired for all
		if o.br.open && o.br.fault != Misconfigured && o.br.probe == nil && o.br.until > bs.now {
			o.br.until = bs.now
			bs.lanes.timer.dirty = true
			bs.lanes.refresh(o)
		}
	}
	bs.lanes.failover()
}

// global is the backoff of the whole machine while nothing is delivered anywhere.
type global struct {
	active bool
	until  time.Duration
	probe  *attempt
	outage outage
}

// isShut reports whether no probe may be sent now.
func (g *global) isShut(now time.Duration) bool { return g.probe != nil || now < g.until }

func (bs *breakers) suspect() {
	if bs.lanes.global.active {
		return
	}
	bs.lanes.global = global{active: true}
	bs.lanes.global.until = bs.now + bs.wait(&bs.lanes.global.outage, bs.cfg.Breaker.Probe, 0)
	bs.lanes.timer.dirty = true
	bs.lanes.refreshAll()
}

// recovered ends the global backoff: l delivers, and every open lane gets its probe at once.
func (bs *breakers) recovered(l *lane) {
	bs.lanes.global = global{}
	for _, o := range bs.lanes.up {
		if o != l && o.br.shut() && o.br.fault != Misconfigured {
			o.br.until = bs.now
		}
	}
	bs.lanes.timer.dirty = true
	bs.lanes.refreshAll()
}

// throttle closes the gate of a lane that is alive but full.
func (bs *breakers) throttle(a *attempt) {
	l := a.lane
	l.stats.throttled++
	if a.canceled {
		return
	}
	if l.br.probe == a {
		bs.close(l)
	}
	if bs.lanes.global.probe == a {
		bs.recovered(l)
	}
	l.limit.refused(bs.now, a.sent)
	if bs.now < l.throttle.until {
		return
	}
	after := bs.jitter(min(a.after, maxThrottle), 1, 1.1)
	if a.after <= 0 {
		after = bs.wait(&l.throttle.outage, nil, 0)
	}
	l.throttle.until = max(l.throttle.until, bs.now+min(after, maxThrottle))
	bs.lanes.timer.dirty = true
}

// settleProbes lets another probe go if a was one and decided nothing.
func (bs *breakers) settleProbes(a *attempt) {
	if a.lane.br.probe == a {
		a.lane.br.probe = nil
	}
	if a.lane.br.trial == a {
		a.lane.br.trial = nil
	}
	if a.lane.refuses.trial == a {
		a.lane.refuses.trial = nil
	}
	if bs.lanes.global.probe == a {
		bs.lanes.global.probe = nil
	}
}
