//penstock:pure

package control

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// group finds out, with Config.Shared, whether the lanes share what is behind them, such as one
// database behind twelve endpoints, and if so bounds what is in flight to all of them together, by
// one more window of the same algorithm.
//
// Each lane's own window keeps a few batches queued there, so that twelve keep twelve times as
// many; and no lane can measure its drained round trip, because the others do not drain.
//
// Whether they share is found out by an experiment, not by correlation, which a common load makes
// too: half of the lanes pause for a few round trips, then the other half. Where each lane is on
// its own, the round trips of those that go on stay as they are; where all share, they fall with
// what all have in flight. The measure is the elasticity: the logarithm of the one change over that
// of the other, 0 on one's own and 1 in one queue. A group is tested in the same way: with half of
// the lanes, each of them has twice as much in flight and the sum does not change; round trips that
// rise all the same are the lanes' own.
type group struct {
	win     window.Window // nil: the lanes are on their own
	batches bool          // its limit counts items, and no cost
	drain   drain
	mean    float64       // cost of an item
	most    int           // items that may be in flight
	unit    float64       // cost of one; 0: items are counted
	full    float64       // cost in flight from which on there is no room for another, where items are not counted
	since   time.Duration // what was sent before is not the window's

	likeness likeness

	phase   phase
	want    time.Duration // when the next experiment may begin
	rest    time.Duration // before the next but one
	began   time.Duration
	settled bool          // what paused lanes had in flight has come back, nearly
	from    time.Duration // what was sent before tells nothing of the phase
	ends    time.Duration // of the phase, at the latest
	out     int           // attempts of paused lanes that are still out,
	few     int           // and how many of them do not matter
	n       int           // samples of the phase
	slack   int           // of them, taken when not every lane was full
	change  change        // of all experiments in a row that ask for the same
	agreed  int           // so many
}

// phase of an experiment.
type phase uint8

const (
	noPhase    phase = iota
	wholePhase       // all lanes go on, for comparison
	evenPhase        // every second lane pauses
	oddPhase         // the others do
)

const (
	// groupSamples end a phase: the round trip of a busy server varies by about its mean and each
	// sample resembles its neighbours, so that with fewer, lanes on their own would be taken for a
	// group.
	groupSamples = 128
	// Batches in flight, if there are so many lanes: they idle no server that is near.
	groupLeast   = 10
	groupClear   = 0.15 // elasticity below which an experiment ends at once: three times its standard error
	groupShared  = 0.25 // from which on the lanes share; two senders that share see 0.4 each
	groupTimes   = 3    // experiments decide
	groupMoved   = 0.1  // change of the logarithm of what is in flight that is too small to tell anything
	groupDrained = 4    // a lane has drained when so much of what it had is left, as a share
	groupSlack   = 16   // samples, of which one may be taken when not every lane was full

	groupRest    = 10 * time.Second // between two experiments, doubled each time,
	groupLongest = 10 * time.Minute
	groupCost    = 50 // and so many times as long as the last took, at least: 1 % is what it may cost
	groupLook    = time.Second
	groupRounds  = 20 // a phase ends after so many round trips
	groupMost    = 30 * time.Second
)

// change sums up by how much logarithms of round trips and of what was in flight have changed.
type change struct{ rtt, flying, weight float64 }

func (c *change) elasticity() (e float64, ok bool) {
	if math.Abs(c.flying) < groupMoved*c.weight || c.weight == 0 {
		return 0, false
	}
	return c.rtt / c.flying, true
}

// observation is what a lane has shown in a phase: sums of logarithms.
type observation struct {
	n                  float64
	rtt, own, together float64
}

func (o *observation) add(rtt, own, together float64) {
	o.n++
	o.rtt += math.Log(max(rtt, 1e-9))
	o.own += math.Log(max(own, 1e-9))
	o.together += math.Log(max(together, 1e-9))
}

// groupRoom is how many items the group's window still takes; one is always allowed.
func (m *Machine) groupRoom() int {
	g := &m.group
	switch {
	case g.win == nil:
		return math.MaxInt
	case g.unit == 0:
		return g.most - m.awaited
	case m.awaited == 0:
		return max(g.most, 1)
	}
	return int(float64(g.most) - m.awaitedCost/g.unit + 1e-6)
}

// groupFull is groupRoom() <= 0.
func (m *Machine) groupFull() bool {
	g := &m.group
	switch {
	case g.win == nil, m.awaited == 0:
		return false
	case g.unit == 0:
		return m.awaited >= g.most
	}
	return m.awaitedCost > g.full
}

// bound takes over what the group's window says.
func (g *group) bound(open int) {
	if g.win == nil {
		return
	}
	limit := max(1, g.win.Limit())
	if !g.drain.on {
		limit = max(limit, min(float64(open), groupLeast))
	}
	g.most, g.unit = int(limit), g.mean
	if g.batches {
		g.unit = 0
	}
	g.full = (float64(g.most) - 1 + 1e-6) * g.unit
}

// grouped takes in a delivery that came in time, after rtt seconds; s is its lane's sample, and
// made the group's. full says whether no lane had room before it.
func (m *Machine) grouped(a *attempt, s *window.Sample, rtt float64, full bool) {
	g := &m.group
	if g.mean == 0 {
		g.mean = a.cost
	}
	g.mean += groupMean * (a.cost - g.mean)
	if g.win != nil && a.sent >= g.since {
		s.Mean, s.InFlightAtSend, s.Limited, s.Epoch = g.mean, a.together, a.crowded, a.groupEpoch
		g.win.OnSample(*s)
		m.probeGroup(a.crowded)
		g.bound(m.open)
	}
	switch {
	case g.phase != noPhase:
		m.compareIn(a, rtt, full)
	case m.cfg.Shared && full && m.alike(a.lane, rtt) != (g.win != nil) && m.now >= g.want:
		m.beginExperiment()
	}
}

const groupMean = 0.02 // weight of the newest item's cost

// probeGroup lets the group's window measure its drained round trip.
func (m *Machine) probeGroup(limited bool) {
	d := &m.group.drain
	if d.prober == nil || d.on && !d.over(m.now) {
		return
	}
	if d.on {
		d.end(m.now)
	}
	if d.due(m.now, m.jitter) && limited && m.group.phase <= wholePhase {
		d.begin(m.now, m.meanRoundTrip())
	}
}

// meanRoundTrip of the lanes.
func (m *Machine) meanRoundTrip() time.Duration {
	sum, n := time.Duration(0), time.Duration(0)
	for _, l := range m.up {
		if l.known {
			sum += l.est.smoothed()
			n++
		}
	}
	return sum / max(n, 1)
}

// beginExperiment, if most lanes have windows that measure and have come to rest.
func (m *Machine) beginExperiment() {
	g := &m.group
	g.want = m.now + groupLook
	ready := 0
	for _, l := range m.up {
		if l.open && l.known && l.drain.prober != nil && l.drain.prober.ProbeWithin() > 0 && l.limit.rate == 0 {
			ready++
		}
	}
	if m.global.active || ready < 2 || 2*ready < len(m.up) {
		return
	}
	for _, l := range m.up {
		l.seen = [2]observation{}
		m.endProbe(l)
	}
	g.phase, g.began, g.n, g.slack = wholePhase, m.now, 0, 0
	g.from = m.now
	m.limitPhase()
}

func (m *Machine) limitPhase() {
	m.group.ends = m.now + min(max(groupLook, groupRounds*m.meanRoundTrip()), groupMost)
	m.dirty = true
}

// compareIn takes a sample into the phase, and ends the phase when there are enough.
func (m *Machine) compareIn(a *attempt, rtt float64, full bool) {
	g, l := &m.group, a.lane
	if m.now >= g.ends || m.global.active {
		m.endExperiment(false)
		return
	}
	if !full {
		if g.slack++; g.slack > groupSamples/groupSlack {
			m.endExperiment(false) // what is in flight is bounded by the load, not by windows
			return
		}
	}
	if g.phase != wholePhase && !g.settled {
		if l.paused {
			g.out--
		}
		if g.settled = g.out <= g.few; g.settled {
			g.from = m.now
		}
		return
	}
	if a.sent < g.from || l.paused || l.at < 0 {
		return
	}
	o := &l.seen[0]
	if g.phase != wholePhase {
		o = &l.seen[1]
	}
	o.add(rtt, a.ahead, a.together)
	if g.n++; g.n >= groupSamples {
		m.nextPhase()
	}
}

// nextPhase goes on with the experiment, or judges it.
func (m *Machine) nextPhase() {
	g := &m.group
	if g.phase == wholePhase {
		m.pauseHalf(evenPhase)
		return
	}
	m.compare()
	e, ok := g.change.elasticity()
	switch {
	case !ok || e < groupClear:
		m.endExperiment(false)
	case g.phase == evenPhase:
		m.pauseHalf(oddPhase)
	default:
		g.agreed++
		m.endExperiment(true)
	}
}

// pauseHalf begins a phase in which every second lane pauses.
func (m *Machine) pauseHalf(p phase) {
	g := &m.group
	g.phase, g.settled, g.n, g.out = p, false, 0, 0
	for i, l := range m.up {
		l.seen[1] = observation{}
		if l.paused = (i%2 == 0) == (p == evenPhase); l.paused {
			g.out += l.flying
		}
	}
	g.few = g.out / groupDrained
	m.limitPhase()
	m.refreshAll()
}

// compare adds the change of each lane that went on. Its weight is that of the difference of two
// means.
func (m *Machine) compare() {
	g := &m.group
	for _, l := range m.up {
		was, is := &l.seen[0], &l.seen[1]
		if was.n == 0 || is.n == 0 {
			continue
		}
		w := was.n * is.n / (was.n + is.n)
		g.change.weight += w
		g.change.rtt += w * (is.rtt/is.n - was.rtt/was.n)
		if g.win == nil {
			g.change.flying += w * (is.together/is.n - was.together/was.n)
		} else {
			g.change.flying += w * (is.own/is.n - was.own/was.n)
		}
		*is = observation{}
	}
}

// endExperiment. more: what it has shown asks for another one, or for what is not: a group, or
// none.
func (m *Machine) endExperiment(more bool) {
	g := &m.group
	paused := g.phase > wholePhase
	took := m.now - g.began
	g.phase, m.dirty = noPhase, true
	if !paused { // nothing was learned and nothing lost
		g.want = m.now + m.jitter(groupLook, 0.75, 1.25)
		return
	}
	for _, l := range m.up {
		l.paused = false
		if d, ok := l.win.(window.Discarder); ok {
			d.Discard(m.now)
			l.hear()
		}
	}
	m.refreshAll()
	e, _ := g.change.elasticity()
	if !more || g.agreed >= groupTimes && e < groupShared {
		g.agreed, g.change = 0, change{}
		g.rest = min(max(2*g.rest, groupRest), groupLongest)
		g.want = m.now + m.jitter(max(g.rest, groupCost*took), 0.75, 1.25)
		return
	}
	g.want = m.now
	if g.agreed >= groupTimes {
		m.regroup()
	}
}

// regroup puts the lanes under one more window, or leaves each to its own. Either begins anew.
func (m *Machine) regroup() {
	g := &m.group
	mean := g.mean
	together := g.win == nil
	*g = group{mean: mean, rest: groupRest, want: m.now + m.jitter(groupRest, 0.75, 1.25)}
	if !together {
		return
	}
	g.win, g.since = m.cfg.Window.New(), m.now
	g.drain.prober, _ = g.win.(window.Prober)
	g.batches = g.win.Batches()
	g.bound(m.open)
	for _, l := range m.up {
		if l.win.Limit() > 1 { // what it has learned of its worker it has learned of all
			l.win.Reset(m.now)
			l.hear()
			m.refresh(l)
		}
	}
}
