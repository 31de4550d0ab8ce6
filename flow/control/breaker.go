//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// breaker leaves a lane alone that fails, and tries it with one item at a time until it is back.
type breaker struct {
	streak int           // failures in a row, one for each round trip
	began  time.Duration // when the first of them was answered: where there is bad data, a delivery of an item sent later ends the streak
	failed time.Duration // when the last of them was: else only what was sent later counts for or against
	since  uint64        // Machine.delivered when the streak began
	score  float64       // EWMA of successes since it last closed
	n      int           // outcomes in score
	open   bool          // counted in Machine.opened
	rest   bool          // left alone in the same way beyond the cap, because others deliver; never for long
	fault  Outcome       // what opened it
	pace   float64       // deliveries in the second before that
	opened time.Duration
	until  time.Duration
	outage outage
	probe  *attempt
	trial  *attempt // before the failure that would open it one attempt at a time is enough to lose
}

// wary says whether the next failure of l opens its breaker.
func (m *Machine) wary(l *lane) bool {
	if l.br.streak == 0 || l.br.shut() {
		return false
	}
	return l.br.streak == m.blame.streak(m.cfg.Breaker.Failures)-1
}

func (b *breaker) shut() bool { return b.open || b.rest }

// outage times the tries during one: 0.5 s * 2^k with equal jitter, at most 1 s in the first minute
// and 30 s later.
type outage struct {
	active bool
	since  time.Duration
	k      uint
	state  backoff.State
}

const (
	defaultFailures = 3
	scoreWeight     = 0.1
	scoreLeast      = 0.5
	scoreAfter      = 10
	badLeast        = 0.02            // share of bad data from which on failures among deliveries tell little about a lane
	outbreakFor     = 3 * time.Second // after a breaker has opened
	chanceOf        = 1000.0          // successes in which a failure that one followed is forgotten
	failureWeight   = 0.2             // of the newest outcome in what dispatch sees

	probeBase  = 500 * time.Millisecond
	probeAlone = 4 * time.Second // where others deliver: there is less hurry,
	probeTurn  = 6 * time.Second // and less where lanes take turns: one that is back speaks for all
	probeEarly = time.Second
	probeLate  = 30 * time.Second
	earlyFor   = time.Minute
)

// tries is the timetable of the lanes that are left alone while others deliver. They take turns, at
// intervals that double: what the tries cost does not grow with the number of lanes, and the first
// that is back lets all be tried at once.
type tries struct {
	until  time.Duration // lanes may be failing of what has opened a breaker
	since  time.Duration
	last   time.Duration // turn that was given away
	k      uint
	chance float64 // failures of late that a success at the same lane followed
}

// outbreak says whether a lane that fails now is likely to fail of what has just opened another's
// breaker. Where errors come by chance it is not.
func (t *tries) outbreak(now time.Duration) bool { return now < t.until && t.chance < 0.5 }

// turn is the time of a lane's next try, 30 s away at most. One whose first failure is an event of
// its own begins the timetable anew.
func (m *Machine) turn(why Outcome, first bool) time.Duration {
	t := &m.tries
	if first && (m.opened <= 1 || !m.tries.outbreak(m.now)) {
		t.k, t.since, t.last = 0, m.now, m.now
	}
	limit := probeLate
	if m.now-t.since < earlyFor {
		limit = probeTurn
		if m.opened <= 1 || why == TimedOut { // a try of what hangs costs little, and takes a timeout
			limit = probeAlone
		}
	}
	d := m.jitter(min(probeBase<<min(t.k, 10), limit), 0.75, 1)
	t.k++
	t.last = min(max(t.last, m.now)+d, m.now+probeLate)
	return t.last
}

// wait draws the time until the next try. most bounds it; 0: nothing but the policy does.
func (m *Machine) wait(o *outage, policy backoff.Policy, most time.Duration) time.Duration {
	if !o.active {
		*o = outage{active: true, since: m.now}
	}
	if policy != nil {
		d, next, ok := policy.Next(o.state, m.src)
		if !ok {
			d = o.state.Prev
		}
		o.state = next
		if most > 0 {
			d = min(d, most)
		}
		return max(d, 0)
	}
	limit := probeLate
	if most > 0 {
		limit = most
	}
	if m.now-o.since < earlyFor {
		limit = min(limit, probeEarly)
	}
	d := min(probeBase<<min(o.k, 10), limit)
	o.k++
	return m.jitter(d, 0.5, 1)
}

// succeeded takes in that l took an item, or answered sensibly: it is alive.
func (m *Machine) succeeded(l *lane, a *attempt) {
	b := &l.br
	m.tries.chance *= 1 - 1/chanceOf
	since := b.began // and not the last failure: failures come back sooner than deliveries
	if l.doubts.chance() > ownFault*m.blame.chance() {
		since = b.failed // unless it is this lane that fails
	}
	if a.sent >= since {
		if b.streak > 0 || b.shut() {
			m.tries.chance++
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
		m.closeBreaker(l)
	case b.fault != Misconfigured && b.probe == nil && (b.fault == TimedOut || a.sent >= b.failed):
		b.until = m.now // a late answer: see at once whether it is back; what it held before its errors says nothing
		m.dirty = true
	}
	switch {
	case !m.global.active:
	case a.late:
		m.global.until = m.now
	default:
		m.recovered(l)
	}
}

// failed takes in a failure of l: a nack, a timeout, or its own fault.
func (m *Machine) failed(l *lane, a *attempt, why Outcome) {
	b := &l.br
	l.failing += failureWeight * (1 - l.failing)
	if b.streak == 0 {
		b.since = m.counts.delivered
	}
	// The nacks of one round trip count once. What is overdue while others were delivered is no sign
	// that the worker is gone.
	event := a.sent >= b.failed
	if why == TimedOut {
		event = l.est.delivered == a.progress
	}
	if event {
		if b.streak++; b.streak == 1 {
			b.began = m.now
		}
		b.failed = m.now
		b.n++
		b.score -= max(scoreWeight, 1/float64(b.n)) * b.score
	}
	if a == m.global.probe {
		m.global.probe = nil
		m.global.until = m.now + m.wait(&m.global.outage, m.cfg.Breaker.Probe, 0)
		m.dirty = true
	}
	if a == b.probe && b.shut() {
		b.probe = nil
		b.fault = why
		most, turns := time.Duration(0), false
		switch {
		case b.rest:
			most = probeEarly
			if m.counts.delivered == b.since {
				m.suspect() // the others deliver no more
			}
		case m.counts.delivered > b.since:
			turns = m.cfg.Breaker.Probe == nil
		}
		b.since = m.counts.delivered
		if turns {
			b.until = m.turn(why, false)
		} else {
			b.until = m.now + m.wait(&b.outage, m.cfg.Breaker.Probe, most)
		}
		m.dirty = true
		return
	}
	if b.shut() || l.at < 0 {
		return
	}
	limit := m.blame.streak(m.cfg.Breaker.Failures)
	good := 1 - m.blame.observed()
	poor := b.n >= scoreAfter && b.score < scoreLeast*good*good && m.blame.first >= scoreAfter && m.blame.share() < badLeast
	enough := limit > 0 && (b.streak >= limit || poor)
	sudden := m.tries.outbreak(m.now) && why != TimedOut && limit > 0
	if why == Misconfigured || enough || sudden {
		m.openBreaker(l, why)
	}
	if enough {
		m.tries.until = m.now + outbreakFor
	}
}

// openBreaker leaves l alone. At most half of the lanes are open: where more fail and none
// delivers, what is behind them is suspected, and all are left alone but for one probe; where
// others deliver, l rests for moments only.
func (m *Machine) openBreaker(l *lane, why Outcome) {
	b := &l.br
	most := time.Duration(0)
	switch {
	case m.opened < max(1, len(m.up)/2):
		b.open = true
		m.opened++
	case m.counts.delivered > b.since || why == Misconfigured:
		b.rest = true
		most = probeEarly
	default:
		m.suspect()
		b.streak = 0
		return
	}
	b.fault, b.probe, b.outage = why, nil, outage{}
	b.pace, b.opened = l.limit.measured(m.now), m.now
	b.trial = nil
	if b.open && m.cfg.Breaker.Probe == nil {
		b.until = m.turn(why, true)
	} else {
		b.until = m.now + m.wait(&b.outage, m.cfg.Breaker.Probe, most)
	}
	if why == Retryable && b.pace >= rateFew && m.cfg.Breaker.Probe == nil {
		b.until = max(b.until, m.now+m.jitter(rateSpan, 1, 1.05)) // it may count by the second
	}
	b.since = m.counts.delivered
	m.endProbe(l)
	m.dirty = true
}

// closeBreaker takes l back: its window starts over.
func (m *Machine) closeBreaker(l *lane) {
	if l.br.open {
		m.opened--
	}
	if b := &l.br; b.fault == Retryable && b.pace >= rateFew && m.now-b.opened <= rateOutage &&
		l.refuses.chance < rateChance && m.blame.share() < badLeast {
		l.limit.suppose(m.now, b.pace)
	}
	l.br = breaker{}
	l.refuses.forget()
	l.failing = 0
	m.endProbe(l)
	l.win.Reset(m.now)
	l.hear()
	t := &m.tries
	t.k, t.since, t.last = 0, m.now, m.now
	for _, o := range m.up { // what is back for one may be back for all
		if o.br.open && o.br.fault != Misconfigured && o.br.probe == nil && o.br.until > m.now {
			o.br.until = m.now
			m.dirty = true
			m.refresh(o)
		}
	}
}

// global is the backoff of the whole machine while nothing is delivered anywhere.
type global struct {
	active bool
	until  time.Duration
	probe  *attempt
	outage outage
}

func (m *Machine) suspect() {
	if m.global.active {
		return
	}
	m.global = global{active: true}
	m.global.until = m.now + m.wait(&m.global.outage, m.cfg.Breaker.Probe, 0)
	m.dirty = true
	m.refreshAll()
}

// recovered ends the global backoff: l delivers, and every open lane gets its probe at once.
func (m *Machine) recovered(l *lane) {
	m.global = global{}
	for _, o := range m.up {
		if o != l && o.br.shut() && o.br.fault != Misconfigured {
			o.br.until = m.now
		}
	}
	m.dirty = true
	m.refreshAll()
}

func (m *Machine) refreshAll() {
	for _, l := range m.up {
		m.refresh(l)
	}
}

// scout picks the probe of the global backoff: the lane that was sent nothing for the longest among
// those for which there is an item.
func (m *Machine) scout() (best *lane, it *item) {
	for _, l := range m.up {
		if l.gates.shut(m.now) || l.run.broken || !l.within() || l.awaited > 0 || best != nil && l.used >= best.used {
			continue
		}
		if found := m.probeItem(l); found != nil {
			best, it = l, found
		}
	}
	return best, it
}
