//penstock:pure

package control

import "slices"

// use is the purpose of an attempt: some gates do not apply to all of them.
type use uint8

const (
	forItem    use = 1 << iota // it is an item's turn
	forProbe                   // of the lane's breaker
	forScout                   // the probe of all lanes
	forSuspect                 // beside the window
	forFirst                   // of an Ordered lane's next run
	forLoad                    // of an item too; the gate is shut because the lane has enough
	forAll     = forItem | forProbe | forScout | forSuspect | forFirst
	withoutWin = forLoad | forProbe | forScout | forSuspect | forFirst
)

// gateKinds lists all gates, in the order in which they are checked. A gate of a lane, or one
// shared by all lanes, has a constructor, which returns nil if there is none. The others apply to
// the whole machine: they keep it from asking for items.
var gateKinds = []struct {
	name   string
	asked  use
	lane   func(ls *lanes, l *lane) gate
	shared func(ls *lanes) gate
	binds  func(m *Machine) bool
}{
	{name: gateBreaker, asked: forItem, lane: newBreakerGate},
	{name: gateStandby, asked: forItem | forProbe | forSuspect | forFirst, lane: newStandbyGate},
	{name: gateThrottle, asked: forAll, lane: func(_ *lanes, l *lane) gate { return &l.throttle }},
	{name: gateRate, asked: forAll, lane: func(_ *lanes, l *lane) gate { return &l.limit }},
	{
		name: gateQuota, asked: forAll,
		lane:   func(ls *lanes, _ *lane) gate { return ls.cfg.LaneLimit.quota() },
		shared: func(ls *lanes) gate { return ls.cfg.Limit.quota() },
	},
	{
		name: gateBytes, asked: forAll,
		lane:   func(ls *lanes, _ *lane) gate { return ls.cfg.LaneLimit.bytes() },
		shared: func(ls *lanes) gate { return ls.cfg.Limit.bytes() },
	},
	{
		name: gateConcurrency, asked: forAll,
		lane:   func(ls *lanes, _ *lane) gate { return ls.cfg.LaneLimit.slots() },
		shared: func(ls *lanes) gate { return ls.cfg.Limit.slots() },
	},
	{name: gateOrder, asked: forAll, lane: func(_ *lanes, l *lane) gate {
		return &condition{label: gateOrder, shut: func() bool { return l.run.broken }}
	}},
	{name: gateOrder, asked: forItem | forSuspect, lane: func(_ *lanes, l *lane) gate {
		return &condition{label: gateOrder, shut: func() bool { return l.run.first != nil }}
	}},
	{name: gateLimit, asked: withoutWin, lane: func(_ *lanes, l *lane) gate { return &l.hard }},
	{name: gateCredit}, // a window's other name
	{name: gateWindow, asked: forLoad | forFirst, lane: func(_ *lanes, l *lane) gate { return &l.win }},
	{name: gateWindow, asked: forLoad | forFirst, lane: newLevelGate},
	{name: gateWindow, asked: forItem | forProbe | forSuspect, lane: func(_ *lanes, l *lane) gate {
		return &condition{label: gateWindow, shut: func() bool { return l.part.paused }}
	}},
	{name: gateWindow, binds: func(m *Machine) bool { return m.group.isFull() }},
	{name: gateReplay, binds: func(m *Machine) bool { return m.settlement.replay.binds() }},
	{name: gateWaiting, binds: func(m *Machine) bool { return m.backlog.full() }},
	{name: gateOrder, binds: func(m *Machine) bool { return m.backlog.keyed > 0 && m.backlog.fresh.len() > 0 }},
	{name: gateBudget, binds: func(m *Machine) bool { return m.backlog.bucket.short }},
	{name: gateFaster, binds: func(m *Machine) bool { return m.dispatcher.hold.on }},
}

const (
	gateBreaker     = "breaker"
	gateStandby     = "standby" // Limits.Standby
	gateThrottle    = "throttle"
	gateRate        = "rate"        // after a 429
	gateQuota       = "quota"       // Limit.Rate
	gateBytes       = "bytes"       // Limit.Bytes
	gateConcurrency = "concurrency" // Limit.Concurrency
	gateOrder       = "order"
	gateLimit       = "limit" // Limits.InFlight
	gateCredit      = "credit"
	gateWindow      = "window"
	gateReplay      = "replay"
	gateWaiting     = "waiting"
	gateBudget      = "budget"
	gateFaster      = "faster" // a busy lane is expected to be done sooner
	gateNone        = "none"
)

// Gates returns the names of the gates that a [LaneStatus] may have, in the order in which they are
// asked. "none" is last.
func Gates() (names []string) {
	for _, k := range gateKinds {
		if !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}
	return append(names, gateNone)
}

// share makes the gates that all lanes share.
func (ls *lanes) share() {
	for _, k := range gateKinds {
		if k.shared == nil {
			continue
		}
		if g := k.shared(ls); g != nil {
			ls.shared = append(ls.shared, laneGate{g, k.asked})
		}
	}
}

// guard makes the gates of l.
func (ls *lanes) guard(l *lane) {
	for _, k := range gateKinds {
		if k.lane == nil {
			continue
		}
		if g := k.lane(ls, l); g != nil {
			l.gates = append(l.gates, laneGate{g, k.asked})
		}
	}
	l.gates = append(l.gates, ls.shared...)
}

// binding names the gate that is shut, or binds the whole machine.
func (m *Machine) binding(l *lane) string {
	if l.at < 0 {
		return gateNone
	}
	if n, g := l.gates.room(m.now, forItem|forLoad); n == 0 {
		return g.name()
	}
	for _, k := range gateKinds {
		if k.binds != nil && k.binds(m) {
			return k.name
		}
	}
	return gateNone
}
