//penstock:pure

package control

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// lane is one worker as the machine knows it.
type lane struct {
	num     int32
	at      int // in Machine.up and Machine.cands; -1: it is down
	limits  Limits
	win     window.Window
	drain   drain
	leased  window.Leased  // win, when its limit is a promise with an end; else nil
	starter window.Starter // win, when it has a start-up; else nil
	byCost  bool
	said    said

	flying      int // attempts whose Deliver has not returned
	flyingCost  float64
	awaited     int // of those, not overdue: what the window counts
	awaitedCost float64
	places      int  // further items it may take now, by any item
	ready       bool // its breaker wants one probe item now
	open        bool // up, and neither breaker nor throttle holds it back

	outs     outs
	refuses  level
	est      estimator
	tail     tail
	peak     float64       // round trip for dispatch.PeakEWMA, seconds: jumps up, decays over peakDecay
	answered time.Duration // when it last answered, where dispatch goes by peaks
	heard    time.Duration // when it last answered, or was sent something while nothing was in flight
	known    bool          // it has answered since it came up
	failing  float64
	used     time.Duration
	workerID uint32 // Report.Epoch

	gates    gates // all that apply to it
	throttle throttle
	limit    limiter
	br       breaker

	paused           bool           // half of the lanes are, in an experiment
	seen             [2]observation // before it and in it
	level, deviation float64        // mean round trip, seconds; the last one's relative difference from it

	wantOrdered bool // Limits.Ordered as it was last given

	run      orderedRun
	doubts   doubts
	stuck    stuck
	repeated bool // the last attempt was of an item sent before
	stats    laneStats
}

// orderedRun is the run of an Ordered lane.
type orderedRun struct {
	num, place uint32   // of the next attempt
	oldest     *attempt // not yet concluded, in the order of their places
	newest     *attempt
	broken     bool  // one of the run was not delivered: nothing starts until all of it have returned
	halted     bool  // and has been concluded: all behind it go back
	first      *item // the next run begins with it
}

// concluded reports whether every attempt of the run has been.
func (r *orderedRun) concluded() bool { return r.oldest == nil }

// said is what a window says until it is told something again: a delivery has no time to ask it
// again and again.
type said struct {
	limit    float64       // at least 1
	base     time.Duration // 0: it does not measure, or does not know yet
	epoch    uint32
	starting bool
	ends     time.Duration // of the promise that the limit is; 0: it is none
}

// hear takes over what the window of l says. It follows whatever the window is told.
func (l *lane) hear() {
	s := &l.said
	s.limit, s.epoch = max(1, l.win.Limit()), l.win.Epoch()
	if l.drain.prober != nil {
		s.base = l.drain.prober.Base()
	}
	if l.starter != nil {
		s.starting = l.starter.Starting()
	}
	if l.leased != nil {
		s.ends = l.leased.LeaseEnds()
	}
}

type laneStats struct{ delivered, failed, timedOut, throttled, late uint64 }

// laneUp makes a lane, or changes the limits of one that is up.
func (m *Machine) laneUp(num int32, limits Limits) {
	limits.InFlight = max(0, limits.InFlight)
	i, found := m.laneIndex(num)
	if !found {
		l := &lane{num: num, at: -1, win: m.cfg.Window.New()}
		l.drain.prober, _ = l.win.(window.Prober)
		l.leased, _ = l.win.(window.Leased)
		l.starter, _ = l.win.(window.Starter)
		l.byCost = !l.win.Batches()
		l.gates = append(m.cfg.LaneLimit.gates(), m.shared...)
		l.gates = append(l.gates, &l.throttle, &l.limit)
		l.hear()
		m.lanes = slices.Insert(m.lanes, i, l)
	}
	l := m.lanes[i]
	if l.at < 0 {
		l.used = m.now
		m.unblockAll() // items that wait for attempts still in flight here
	}
	l.limits.InFlight, l.wantOrdered = limits.InFlight, limits.Ordered
	l.reorder()
	m.rank(l)
}

// reorder changes whether l is Ordered, when nothing of it runs: what is under way keeps its rules.
func (l *lane) reorder() {
	if l.flying == 0 && l.run.concluded() {
		l.limits.Ordered = l.wantOrdered
	}
}

// rank puts l among the lanes that are up.
func (m *Machine) rank(l *lane) {
	if l.at < 0 {
		i, _ := slices.BinarySearchFunc(m.up, l.num, func(x *lane, n int32) int { return int(x.num) - int(n) })
		m.up = slices.Insert(m.up, i, l)
		m.cands = slices.Insert(m.cands, i, dispatch.Candidate{Lane: l.num})
		reseat(m.up, i)
		m.changed(-1)
		m.dirty = true // it may be throttled from before
	}
	m.refresh(l)
}

// reseat gives the lanes from this index on their new places.
func reseat(up []*lane, from int) {
	for i := from; i < len(up); i++ {
		up[i].at = i
	}
}

func (m *Machine) laneDown(num int32) {
	i, found := m.laneIndex(num)
	if !found || m.lanes[i].at < 0 {
		return
	}
	l := m.lanes[i]
	m.endProbe(l)
	if l.br.open {
		m.opened--
	}
	l.br = breaker{}
	if l.run.first != nil {
		m.unfirst(l.run.first)
	}
	at := l.at
	l.at = -1
	m.refresh(l)
	m.up = slices.Delete(m.up, at, at+1)
	m.cands = slices.Delete(m.cands, at, at+1)
	reseat(m.up, at)
	m.changed(-1)
	m.forget(l)
}

// forget frees a lane that is down when its last attempt has been concluded.
func (m *Machine) forget(l *lane) {
	if l.at >= 0 || l.flying > 0 || !l.run.concluded() {
		return
	}
	if i, found := m.laneIndex(l.num); found && m.lanes[i] == l {
		m.lanes = slices.Delete(m.lanes, i, i+1)
	}
}

func (m *Machine) laneIndex(num int32) (int, bool) {
	return slices.BinarySearchFunc(m.lanes, num, func(l *lane, n int32) int { return int(l.num) - int(n) })
}

// refresh brings the machine's view of l up to date: how many items it may take, and what dispatch
// sees.
func (m *Machine) refresh(l *lane) {
	m.seats(l, m.windowRoom(l))
	if l.at < 0 {
		return
	}
	c := &m.cands[l.at]
	c.Known, c.Failures = l.known, l.failing
	c.Mean, c.Rate, c.Service, c.Base = l.est.mean, l.est.rate, toDuration(l.est.service), l.said.base
	if m.peaks {
		c.Peak, c.Answered = toDuration(l.peak), l.answered
	}
	m.changed(l.at)
}

// changed tells dispatch, if it wants to know, that the ith candidate has changed; below 0: any of
// them may have.
func (m *Machine) changed(i int) {
	if m.follower != nil {
		m.follower.Changed(i, m.cands)
	}
}

// seats does of that what a start at l can change, but for telling dispatch. n is what the window
// still takes.
func (m *Machine) seats(l *lane, n int) {
	places, ready, open, full := 0, false, false, false
	gate, _ := l.gates.room(m.now)
	switch {
	case l.at < 0 || l.throttle.room(m.now) == 0:
	case l.br.shut():
		ready = !m.global.active && !l.run.broken && gate > 0 && !l.paused &&
			l.br.probe == nil && l.awaited == 0 && m.now >= l.br.until && l.within()
	default:
		open = true
		if m.global.active || l.run.broken || gate == 0 || l.paused || l.run.first != nil {
			break
		}
		places = l.room(m.now, n)
		full = places == 0
		if m.wary(l) {
			full = false
			places = min(places, 1)
			if l.br.trial != nil {
				places = 0
			}
		}
		if gate < unlimited {
			full = false
			places = min(places, gate)
		}
	}
	m.places += places - l.places
	m.free += one(places > 0) - one(l.places > 0)
	m.ready += one(ready) - one(l.ready)
	m.open += one(open) - one(l.open)
	l.places, l.ready, l.open = places, ready, open
	if l.at < 0 {
		return
	}
	c := &m.cands[l.at]
	c.Free, c.Full = places > 0, full
	c.Heard, c.Used = l.heard, l.used
	c.InFlight, c.Work = l.awaited, l.flyingCost-l.stuck.cost
}

// one counts what is so.
func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// patience is how long a, just sent, may take. In a start-up the window may have gone beyond the
// worker's slots by its own step: items that wait for that are not overdue. Where attempts hang,
// round trips may be few and old. There the time is scaled to the queue now, if that is shorter
// than it was.
func (m *Machine) patience(l *lane, a *attempt) time.Duration {
	least := m.leastRTO()
	d := l.est.rto(a.cost, least)
	if l.stuck.sure() && l.est.shift == 0 {
		d = max(min(d, least), time.Duration(float64(d)*l.est.lighter(a.ahead)))
	}
	if l.said.starting {
		d = min(startPatience*d, max(d, maxRTO))
	}
	return d
}

// startPatience is about the step of a window's start-up.
const startPatience = 2

// within says whether the hard limit of l leaves room.
func (l *lane) within() bool { return l.limits.InFlight == 0 || l.flying < l.limits.InFlight }

// room is how many items window and hard limit still take; n is what the window does.
func (l *lane) room(now time.Duration, n int) int {
	if l.limits.InFlight > 0 {
		n = min(n, l.limits.InFlight-l.flying)
	}
	if n > 0 && l.refuses.from > 0 {
		n = min(n, l.refuses.room(now, l.awaited-l.outs.suspects))
	}
	return max(n, 0)
}

// windowRoom is how many items of mean cost the window still takes; one is always allowed.
func (m *Machine) windowRoom(l *lane) int {
	limit := l.said.limit
	if l.said.ends > 0 && m.now >= l.said.ends {
		return 1 - l.awaited
	}
	if !l.byCost {
		return int(limit) - l.awaited
	}
	if l.est.mean <= 0 {
		return int(limit) - l.awaited
	}
	left := limit - l.awaitedCost/l.est.mean + 1e-6 // sums of costs are not exact
	if l.awaited == 0 {
		return max(int(left), 1)
	}
	return int(left)
}

// note takes in a round trip, of whatever outcome, for policies that go by its peak.
func (l *lane) note(now time.Duration, rtt float64) {
	if rtt >= l.peak {
		l.peak = rtt
	} else {
		old := math.Exp(-(now - l.answered).Seconds() / peakDecay)
		l.peak = l.peak*old + rtt*(1-old)
	}
	l.answered = now
}

// peakDecay is Finagle's, in seconds.
const peakDecay = 10.0

// probe lets a window measure its drained round trip where that is due: at most one lane, or a
// tenth of them, at a time, and only lanes that are used to their limit (others have drained
// samples for nothing).
func (m *Machine) probe(l *lane, limited bool) {
	d := &l.drain
	if d.prober == nil || l.at < 0 || m.group.phase != noPhase || d.on && !d.over(m.now) {
		return
	}
	m.endProbe(l)
	if !d.due(m.now, m.jitter) || !limited || m.hold.crowd < busySource {
		return
	}
	if len(m.probes) >= max(1, len(m.up)/10) {
		if oldest := m.probes[0]; m.now >= oldest.drain.ends {
			m.endProbe(oldest)
			m.refresh(oldest)
		}
		return
	}
	m.probes = append(m.probes, l)
	d.begin(m.now, l.est.smoothed())
	l.hear()
}

func (m *Machine) endProbe(l *lane) {
	if !l.drain.on {
		return
	}
	l.drain.end(m.now)
	l.hear()
	if i := slices.Index(m.probes, l); i >= 0 {
		m.probes = slices.Delete(m.probes, i, i+1)
	}
}

// jitter draws d times a number between from and to.
func (m *Machine) jitter(d time.Duration, from, to float64) time.Duration {
	return time.Duration(float64(d) * (from + (to-from)*m.rnd.Float64()))
}
