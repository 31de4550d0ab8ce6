//penstock:pure

package control

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// lanes holds the workers of a machine, and the room that each has now.
type lanes struct {
	*env
	blame  *blame
	policy policy

	all    []*lane              // up, or down with attempts in flight; by number
	up     []*lane              // by number
	cands  []dispatch.Candidate // of up
	hidden []int                // candidates hidden while one item chooses
	shared gates                // of all lanes

	room         int // further items that all lanes together may take now
	free         int // lanes that may take further items now
	probesDue    int // lanes with a breaker that needs a probe
	available    int // lanes with the field available set
	openBreakers int // lanes with an open breaker
	firsts       int // Ordered lanes that wait for the first item of their next run
	global       global
	standby      int     // lanes with a higher Limits.Standby take no items
	windowProbes []*lane // lanes with a window narrowed to measure, oldest first
	uptime       uptime

	delivered    uint64 // delivered attempts
	load         load   // attempts with a place in a window
	inFlightCost float64

	timer gateTimer
}

func newLanes(e *env, b *blame) *lanes {
	ls := &lanes{env: e, blame: b, policy: newPolicy(e.cfg.Dispatch, e.src)}
	ls.addSharedGates()
	return ls
}

// policy is the dispatch policy, with its optional capabilities.
type policy struct {
	dispatch.Chooser
	binds    bool              // the policy assigns each item to one lane
	holder   dispatch.Holder   // nil if the policy does not hold items
	follower dispatch.Follower // nil if the policy does not follow changes
}

func newPolicy(d dispatch.Policy, src rand.Source) (p policy) {
	p.Chooser = d.New(src)
	_, p.binds = p.Chooser.(dispatch.Binding)
	p.holder, _ = p.Chooser.(dispatch.Holder)
	p.follower, _ = p.Chooser.(dispatch.Follower)
	return p
}

// changed tells the dispatch policy that the state of the ith lane (its candidate) has changed or,
// if i is negative, that of any lane.
func (p *policy) changed(i int, all []dispatch.Candidate) {
	if p.follower != nil {
		p.follower.Changed(i, all)
	}
}

// gateTimer holds the time at which the next gate may open.
type gateTimer struct {
	at    time.Duration
	set   bool
	dirty bool // a gate has changed: at must be computed again
}

// add sets the timer to the time at which a gate may open, unless the timer fires earlier or the
// time has passed.
func (t *gateTimer) add(now, at time.Duration) {
	if at > now && (!t.set || at < t.at) {
		t.set, t.at = true, at
	}
}

// hide keeps dispatch from choosing this lane until unhide is called.
func (ls *lanes) hide(num int32) {
	if l := ls.get(num); l != nil && l.isUp() && ls.cands[l.index].Free {
		ls.cands[l.index].Free = false
		ls.hidden = append(ls.hidden, l.index)
		ls.policy.changed(l.index, ls.cands)
	}
}

func (ls *lanes) unhide() {
	for _, i := range ls.hidden {
		ls.cands[i].Free = true
		ls.policy.changed(i, ls.cands)
	}
}

// pick returns the lane that the dispatch policy chooses for the item, or nil.
func (ls *lanes) pick(it *item) *lane {
	if i := ls.policy.Choose(ls.now, it.cost, it.hash, ls.cands); i >= 0 {
		return ls.up[i]
	}
	return nil
}

// wouldPick reports whether the dispatch policy would choose l for the item if l were free.
func (ls *lanes) wouldPick(it *item, l *lane) bool {
	was := ls.cands[l.index].Free
	ls.cands[l.index].Free = true
	i := ls.policy.Choose(ls.now, it.cost, it.hash, ls.cands)
	ls.cands[l.index].Free = was
	return i == l.index
}

func (ls *lanes) refreshAll() {
	for _, l := range ls.up {
		ls.refresh(l)
	}
}

// restarted resets the measurements of a worker if its process has restarted.
func (ls *lanes) restarted(l *lane, r *Report) {
	// Epoch is 0 in an answer without a report, such as after a broken connection.
	if r.Epoch == 0 || r.Epoch == l.workerID {
		return
	}
	if l.workerID != 0 {
		ls.endWindowProbe(l)
		l.est, l.reportsTimes = estimator{}, false
		l.hanging.ranks, l.win.widen = nil, 1
		l.win.Reset(ls.now)
		l.win.refresh()
	}
	l.workerID = r.Epoch
}

// clearFirst ends the wait of an Ordered lane for the failed item with which its next run (see
// [orderedRun]) was to begin.
func (ls *lanes) clearFirst(it *item) {
	if l := it.firstOf; l != nil {
		it.firstOf, l.run.first = nil, nil
		ls.firsts--
		ls.refresh(l)
	}
}

// add adds a lane, or changes the limits of one that is up. It reports whether the lane was down.
func (ls *lanes) add(num int32, limits Limits) (wasDown bool) {
	limits.InFlight = max(0, limits.InFlight)
	i, found := findLane(ls.all, num)
	if !found {
		l := &lane{num: num, index: -1}
		l.win = newWindowGate(ls.cfg.Window.New(), l, &ls.load)
		ls.addLaneGates(l)
		ls.all = slices.Insert(ls.all, i, l)
	}
	l := ls.all[i]
	if wasDown = !l.isUp(); wasDown {
		l.lastStart = ls.now
	}
	l.hard.limit, l.wantOrdered = limits.InFlight, limits.Ordered
	l.limits.Standby = max(0, limits.Standby)
	l.reorder()
	ls.bringUp(l)
	ls.failover()
	return wasDown
}

// bringUp adds l to the lanes that are up, if it was down.
func (ls *lanes) bringUp(l *lane) {
	if !l.isUp() {
		i, _ := findLane(ls.up, l.num)
		ls.up = slices.Insert(ls.up, i, l)
		ls.cands = slices.Insert(ls.cands, i, dispatch.Candidate{Lane: l.num})
		reindex(ls.up, i)
		ls.policy.changed(-1, ls.cands)
		ls.timer.dirty = true // a lane that comes back may still be throttled
	}
	ls.refresh(l)
}

// reindex sets the field index of the lanes in up[from:] to their indexes in up.
func reindex(up []*lane, from int) {
	for i := from; i < len(up); i++ {
		up[i].index = i
	}
}

func (ls *lanes) remove(num int32) {
	l := ls.get(num)
	if l == nil || !l.isUp() {
		return
	}
	ls.endWindowProbe(l)
	if l.br.state == breakerOpen {
		ls.openBreakers--
	}
	l.br = breaker{}
	if l.run.first != nil {
		ls.clearFirst(l.run.first)
	}
	at := l.index
	l.index = -1
	ls.refresh(l)
	ls.up = slices.Delete(ls.up, at, at+1)
	ls.cands = slices.Delete(ls.cands, at, at+1)
	reindex(ls.up, at)
	ls.policy.changed(-1, ls.cands)
	ls.prune(l)
	ls.failover()
}

// prune removes a lane that is down, if its last attempt has been concluded.
func (ls *lanes) prune(l *lane) {
	if l.isUp() || l.running.n > 0 || !l.run.concluded() {
		return
	}
	if i, found := findLane(ls.all, l.num); found && ls.all[i] == l {
		ls.all = slices.Delete(ls.all, i, i+1)
	}
}

// get returns the lane with this number, or nil.
func (ls *lanes) get(num int32) *lane {
	if i, found := findLane(ls.all, num); found {
		return ls.all[i]
	}
	return nil
}

// findLane returns the index of a lane in a list by number, or the index at which to insert it.
func findLane(list []*lane, num int32) (int, bool) {
	return slices.BinarySearchFunc(list, num, func(l *lane, n int32) int { return int(l.num) - int(n) })
}

// refresh updates the number of items that l may take now, and the measurements of l that the
// dispatch policy uses. It informs the policy.
func (ls *lanes) refresh(l *lane) {
	ls.updateRoom(l)
	if !l.isUp() {
		return
	}
	c := &ls.cands[l.index]
	c.Known, c.Failures = l.est.known, l.failureRate
	c.Mean, c.Rate, c.Service,
		c.Base = l.est.mean, l.est.rate(), toDuration(l.est.service), l.win.cached.base
	ls.policy.changed(l.index, ls.cands)
}

// updateRoom updates the number of items that l may take now, and the values for the dispatch
// policy that the start of an attempt can change. It does not inform the policy.
func (ls *lanes) updateRoom(l *lane) {
	room, needsProbe, available, full := 0, false, false, false
	switch {
	case !l.isUp() || l.throttle.shut(ls.now):
	case l.br.shut():
		needsProbe = !ls.global.active && l.br.probe == nil && l.win.load.n == 0 &&
			ls.now >= l.br.until && !l.gates.shut(ls.now, forProbe)
	default:
		available = ls.isInUse(l)
		if room = l.gates.items.room(ls.now); room > 0 {
			load := l.gates.loads.room(ls.now)
			full = load == 0 && room == unlimited
			room = min(room, load)
		}
	}
	ls.room += room - l.room
	ls.free += one(room > 0) - one(l.room > 0)
	ls.probesDue += one(needsProbe) - one(l.needsProbe)
	ls.available += one(available) - one(l.available)
	l.room, l.needsProbe, l.available = room, needsProbe, available
	if !l.isUp() {
		return
	}
	c := &ls.cands[l.index]
	c.Free, c.Full = room > 0, full
	c.LastAnswer, c.LastStart = l.lastAnswer, l.lastStart
	c.InFlight, c.Work = l.win.load.n, (l.running.cost-l.hanging.excluded.cost)/l.win.widening()
	if !l.est.known && l.win.starter != nil { // dispatch chooses unknown lanes only if nothing is in flight there
		c.InFlight /= 1 + l.est.missed
	}
}

// one returns 1 for true and 0 for false.
func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// updateWindowProbe begins or ends a measurement of the drained round trip of l (the round trip
// without a queue at the worker), if that is due. At most a tenth of the lanes, but always one, may
// measure at a time. Only a lane that is used to its limit (limited) needs this: the queues of
// other lanes drain anyway.
func (ls *lanes) updateWindowProbe(l *lane, limited bool) {
	d := &l.win.probe
	if d.prober == nil || !l.isUp() || d.on && !d.over(ls.now) {
		return
	}
	ls.endWindowProbe(l)
	if !d.due(ls.now, ls.jitter) || !limited {
		return
	}
	if len(ls.windowProbes) >= max(1, len(ls.up)/10) {
		if oldest := ls.windowProbes[0]; ls.now >= oldest.win.probe.ends {
			ls.endWindowProbe(oldest)
			ls.refresh(oldest)
		}
		return
	}
	ls.windowProbes = append(ls.windowProbes, l)
	d.begin(ls.now, l.est.smoothed())
	l.win.refresh()
}

func (ls *lanes) endWindowProbe(l *lane) {
	if !l.win.probe.on {
		return
	}
	l.win.probe.end(ls.now)
	l.win.refresh()
	if i := slices.Index(ls.windowProbes, l); i >= 0 {
		ls.windowProbes = slices.Delete(ls.windowProbes, i, i+1)
	}
}

// uptime measures the total time in which at least one lane was available and the machine was not
// in the global backoff (the pause of all lanes when none delivers). The limit End.Elapsed of an
// item counts only this time.
type uptime struct {
	total, since time.Duration
	up           bool
}

// update notes whether a lane is available from now on.
func (u *uptime) update(now time.Duration, up bool) {
	if u.up {
		u.total += now - u.since
	}
	u.since, u.up = now, up
}

// at returns the uptime now.
func (u *uptime) at(now time.Duration) time.Duration {
	if u.up {
		return u.total + now - u.since
	}
	return u.total
}
