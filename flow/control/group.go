//penstock:pure

package control

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// group detects, if Config.Shared is true, whether the lanes share a bottleneck, such as one
// database behind twelve endpoints. If they do, one more window of the same algorithm bounds the
// amount in flight to all lanes together.
//
// This is necessary because each lane's own window keeps a few batches queued at the bottleneck, so
// that twelve lanes queue twelve times as many. No lane can measure its drained round trip, because
// the others do not drain.
//
// The group detects sharing by an experiment. A correlation of the round trips would not be enough,
// because a common change of load causes it, too. In an experiment, half of the lanes pause for a
// few round trips, then the other half. For independent lanes, the round trips of the active lanes
// do not change. For lanes that share, they fall with the total in flight. The measure is the
// elasticity: the change of the logarithm of the round trips, divided by the change of the
// logarithm of the amount in flight. It is 0 for independent lanes and 1 for one queue.
//
// An existing group is tested in the same way. With half of the lanes, each of them has twice as
// much in flight and the sum does not change. If round trips rise nevertheless, the lanes
// themselves are the cause.
type group struct {
	*env
	lanes *lanes

	win     window.Window // of all lanes together; nil: the lanes are not a group
	batches bool          // the limit of win counts items instead of cost
	probe   windowProbe
	mean    float64 // mean cost of an item
	limit   int     // items that may be in flight
	unit    float64 // cost that counts as one item; 0: items are counted
	// cost in flight from which there is no room for another item, if items are not counted
	full  float64
	since time.Duration // attempts sent earlier do not count for win

	phase          phase
	nextAt         time.Duration // when the next experiment may begin
	interval       time.Duration // last interval between experiments, which doubles
	began          time.Duration
	drained        bool          // most in-flight attempts of paused lanes have returned
	from           time.Duration // attempts sent earlier do not count for the phase
	ends           time.Duration // latest end of the phase
	pausedInFlight int           // attempts of paused lanes that are still in flight
	drainedFrom    int           // paused lanes have drained if pausedInFlight is at most this
	n              int           // samples of the phase
	notFull        int           // samples of the experiment taken when not every lane was full
	change         change        // of the consecutive experiments with the same result
	agreed         int           // number of these experiments
}

// laneGroupState is a lane's state in the experiments of its group.
type laneGroupState struct {
	paused      bool        // paused by an experiment
	whole, half observation // while all lanes were active, and while half of them were
}

// phase is a phase of an experiment.
type phase uint8

const (
	noPhase    phase = iota
	wholePhase       // all lanes are active, for comparison
	evenPhase        // every second lane pauses
	oddPhase         // the other lanes pause
)

const (
	// groupSamples is the number of samples of a phase. The round trip of a busy server varies by
	// about its mean, and each sample resembles its neighbours. So with fewer samples, independent
	// lanes would be taken for a group.
	groupSamples = 128
	// minimum limit of the group, or the number of available lanes if that is lower. That many in
	// flight keep a nearby server busy.
	minGroupLimit = 10
	// elasticity below which an experiment ends at once: three times its standard error
	groupClear   = 0.15
	groupShared  = 0.25 // least elasticity of lanes that share; two sharing senders see 0.4 each
	groupTimes   = 3    // number of agreeing experiments that decide
	groupMoved   = 0.1  // smallest significant change of the logarithm of the amount in flight
	groupDrained = 4    // paused lanes have drained when 1/groupDrained of their attempts is left
	groupSlack   = 16   // one of this many samples may be taken when not every lane is full

	// interval after an experiment without a result, in which the lanes can measure their drained
	// round trips
	groupNoResult    = 30 * time.Second
	groupInterval    = 10 * time.Second // interval between experiments, doubled each time
	maxGroupInterval = 10 * time.Minute // maximum of the interval
	// minimum interval between two experiments, as a multiple of the duration of the last one. An
	// experiment pauses half of the lanes, so experiments cost up to 1 % of the throughput.
	groupCost   = 50
	groupRetry  = time.Second
	groupRounds = 20 // maximum duration of a phase, in round trips
	maxPhase    = 30 * time.Second
)

// change has the sums from which the elasticity is computed (see group). rtt is the sum of the
// changes of the logarithm of the round trip, and inFlight that of the changes of the logarithm of
// the amount in flight. Both are weighted over the lanes.
type change struct{ rtt, inFlight, weight float64 }

func (c *change) elasticity() (e float64, ok bool) {
	if math.Abs(c.inFlight) < groupMoved*c.weight || c.weight == 0 {
		return 0, false
	}
	return c.rtt / c.inFlight, true
}

// observation holds a lane's measurements in a phase: sums of logarithms.
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

// room returns the number of items for which the group's window has room.
func (g *group) room() int {
	if g.win == nil {
		return unlimited
	}
	return g.lanes.load.room(float64(g.limit), g.unit)
}

// isFull reports whether the window that all lanes of the group share has no room for another item.
// It is false if the lanes share none. It is faster than [group.room].
func (g *group) isFull() bool {
	switch {
	case g.win == nil, g.lanes.load.n == 0:
		return false
	case g.unit == 0:
		return g.lanes.load.n >= g.limit
	}
	return g.lanes.load.cost > g.full
}

// updateLimit computes the number and cost of items that may be in flight to all lanes together,
// from the limit of the group's window. The limit is at least the number of available lanes, up to
// minGroupLimit, unless a measurement narrows the window.
func (g *group) updateLimit() {
	if g.win == nil {
		return
	}
	limit := max(1, g.win.Limit())
	if !g.probe.on {
		limit = max(limit, min(float64(g.lanes.available), minGroupLimit))
	}
	g.limit, g.unit = int(limit), g.mean
	if g.batches {
		g.unit = 0
	}
	g.full = (float64(g.limit) - 1 + 1e-6) * g.unit
}

// observe records a delivery that was not overdue and took rtt seconds. The parameter s is the
// sample for the lane's window. If the group has a window, observe changes s to the sample for that
// window. The parameter full reports whether no lane had room before the delivery.
func (g *group) observe(a *attempt, s *window.Sample, rtt float64, full bool) {
	if g.mean == 0 {
		g.mean = a.cost
	}
	g.mean += groupMean * (a.cost - g.mean)
	if g.win != nil && a.sent >= g.since {
		s.Mean, s.InFlightAtSend, s.Limited,
			s.Epoch = g.mean, a.totalCost, a.groupLimited, a.groupEpoch
		g.win.OnSample(*s)
		g.updateProbe(a.groupLimited)
		g.updateLimit()
	}
	switch {
	case g.phase != noPhase:
		g.compareIn(a, rtt, full)
	case full && g.now >= g.nextAt:
		g.beginExperiment()
	}
}

const groupMean = 0.02 // weight of the newest item's cost

// updateProbe starts or ends a measurement of the group's drained round trip, if that is due.
func (g *group) updateProbe(limited bool) {
	d := &g.probe
	if d.prober == nil || d.on && !d.over(g.now) {
		return
	}
	if d.on {
		d.end(g.now)
	}
	if d.due(g.now, g.jitter) && limited && g.phase <= wholePhase {
		d.begin(g.now, g.meanRoundTrip())
	}
}

// meanRoundTrip returns the mean round trip of the lanes.
func (g *group) meanRoundTrip() time.Duration {
	sum, n := time.Duration(0), time.Duration(0)
	for _, l := range g.lanes.up {
		if l.est.known {
			sum += l.est.smoothed()
			n++
		}
	}
	return sum / max(n, 1)
}

// beginExperiment begins an experiment if at least half of the lanes in use, but no fewer than two,
// are ready. A ready lane is available and has no rate limit. Its window is past the start-up, and
// follows from measured round trips.
func (g *group) beginExperiment() {
	g.nextAt = g.now + groupRetry
	ready := 0
	for _, l := range g.lanes.up {
		if l.available && l.est.known && l.win.measures() && l.limit.rate == 0 {
			ready++
		}
	}
	if g.probe.on || g.lanes.global.active || ready < 2 || 2*ready < g.lanes.inUse() {
		return
	}
	for _, l := range g.lanes.up {
		l.groupState.whole, l.groupState.half = observation{}, observation{}
		g.lanes.endWindowProbe(l)
	}
	g.phase, g.began, g.n, g.notFull = wholePhase, g.now, 0, 0
	g.from = g.now
	g.limitPhase()
}

func (g *group) limitPhase() {
	g.ends = g.now + min(max(groupRetry, groupRounds*g.meanRoundTrip()), maxPhase)
	g.lanes.timer.dirty = true
}

// compareIn adds a sample to the phase, and ends the phase when it has enough samples.
func (g *group) compareIn(a *attempt, rtt float64, full bool) {
	l := a.lane
	if g.now >= g.ends || g.lanes.global.active {
		g.endExperiment(false)
		return
	}
	if !full {
		if g.notFull++; g.notFull > groupSamples/groupSlack {
			g.endExperiment(false) // the load limits the amount in flight, not the windows
			return
		}
	}
	if g.phase != wholePhase && !g.drained {
		if l.groupState.paused {
			g.pausedInFlight--
		}
		if g.drained = g.pausedInFlight <= g.drainedFrom; g.drained {
			g.from = g.now
		}
		return
	}
	if a.sent < g.from || l.groupState.paused || !l.isUp() {
		return
	}
	o := &l.groupState.half
	if g.phase == wholePhase {
		o = &l.groupState.whole
	}
	o.add(rtt, a.ahead, a.totalCost)
	if g.n++; g.n >= groupSamples {
		g.nextPhase()
	}
}

// nextPhase begins the next phase of the experiment, or ends the experiment with a result.
func (g *group) nextPhase() {
	if g.phase == wholePhase {
		g.pauseHalf(evenPhase)
		return
	}
	g.compare()
	e, ok := g.change.elasticity()
	switch {
	case !ok || e < groupClear:
		g.endExperiment(false)
	case g.phase == evenPhase:
		g.pauseHalf(oddPhase)
	default:
		g.agreed++
		g.endExperiment(true)
	}
}

// pauseHalf begins phase p, in which every second lane pauses.
func (g *group) pauseHalf(p phase) {
	g.phase, g.drained, g.n, g.pausedInFlight = p, false, 0, 0
	for i, l := range g.lanes.up {
		l.groupState.half = observation{}
		if l.groupState.paused = (i%2 == 0) == (p == evenPhase); l.groupState.paused {
			g.pausedInFlight += l.running.n
		}
	}
	g.drainedFrom = g.pausedInFlight / groupDrained
	g.limitPhase()
	g.lanes.refreshAll()
}

// compare evaluates a phase in which half of the lanes were paused. For each lane that stayed
// active, it compares the round trips and the amount in flight with those while all lanes were
// active. It adds the differences to g.change, weighted by the inverse of their variance.
func (g *group) compare() {
	for _, l := range g.lanes.up {
		was, is := &l.groupState.whole, &l.groupState.half
		if was.n == 0 || is.n == 0 {
			continue
		}
		w := was.n * is.n / (was.n + is.n)
		g.change.weight += w
		g.change.rtt += w * (is.rtt/is.n - was.rtt/was.n)
		if g.win == nil {
			g.change.inFlight += w * (is.together/is.n - was.together/was.n)
		} else {
			g.change.inFlight += w * (is.own/is.n - was.own/was.n)
		}
		*is = observation{}
	}
}

// endExperiment ends the experiment. If more is true, the result contradicts the present state (a
// group, or none), and another experiment follows. After groupTimes such results in a row, the state
// changes if the elasticity, computed over all of these experiments, is at least groupShared.
//
// Otherwise the next experiment follows much later.
func (g *group) endExperiment(more bool) {
	paused := g.phase > wholePhase
	took := g.now - g.began
	g.phase, g.lanes.timer.dirty = noPhase, true
	if !paused { // no result
		g.nextAt = g.now + g.jitter(groupNoResult, 0.75, 1.25)
		return
	}
	for _, l := range g.lanes.up {
		l.groupState.paused = false
		l.win.discard(g.now)
	}
	g.lanes.refreshAll()
	e, _ := g.change.elasticity()
	if !more || g.agreed >= groupTimes && e < groupShared {
		g.agreed, g.change = 0, change{}
		g.interval = min(max(2*g.interval, groupInterval), maxGroupInterval)
		g.nextAt = g.now + g.jitter(max(g.interval, groupCost*took), 0.75, 1.25)
		return
	}
	g.nextAt = g.now
	if g.agreed >= groupTimes {
		g.regroup()
	}
}

// regroup adds the window that all lanes of the group share, or removes it. When it adds this
// window, the windows of lanes with a limit above 1 start over.
func (g *group) regroup() {
	mean := g.mean
	together := g.win == nil
	*g = group{env: g.env, lanes: g.lanes, mean: mean, interval: groupInterval}
	g.nextAt = g.now + g.jitter(groupInterval, 0.75, 1.25)
	if !together {
		return
	}
	g.win, g.since = g.cfg.Window.New(), g.now
	g.probe.prober, _ = g.win.(window.Prober)
	g.batches = g.win.Batches()
	g.updateLimit()
	for _, l := range g.lanes.up {
		if l.win.Limit() > 1 { // the window has measured all lanes together instead of its worker
			l.win.Reset(g.now)
			l.win.refresh()
			g.lanes.refresh(l)
		}
	}
}
