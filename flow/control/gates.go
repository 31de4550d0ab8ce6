//penstock:pure

package control

import "slices"

// use is a set of purposes of attempts, such as regular sends and probes. A gate applies to
// attempts of certain purposes only.
type use uint8

const (
	forItem        use = 1 << iota // an item in its turn
	forProbe                       // probe of the lane's breaker
	forGlobalProbe                 // probe of the global backoff
	forSuspect                     // attempt of a suspect, without a place in the window
	forFirst                       // first item of an Ordered lane's next run
	forLoad                        // an item in its turn, at gates that bound the lane's load
	forAll         = forItem | forProbe | forGlobalProbe | forSuspect | forFirst
	withoutWin     = forLoad | forProbe | forGlobalProbe | forSuspect | forFirst
)

// gateKinds lists all gates, in the order in which they are checked. If each lane has the gate, the
// field lane makes it. If all lanes share one, the field shared makes it. Both functions return nil
// if the gate is not needed. Gates with the function binds apply to the whole machine: binds
// reports whether the gate holds items back now. The text in means explains a shut gate to an
// operator. It is empty if the explanation needs figures of the lane; package explain then provides
// it. If several entries have the same name, at most one has this text.
var gateKinds = []struct {
	name   string
	means  string
	asked  use
	lane   func(ls *lanes, l *lane) gate
	shared func(ls *lanes) gate
	binds  func(m *Machine) bool
}{
	{name: gateBreaker, asked: forItem, lane: newBreakerGate},
	{
		name: gateStandby, asked: forItem | forProbe | forSuspect | forFirst, lane: newStandbyGate,
		means: "it is used only while the sinks before it are down",
	},
	{name: gateThrottle, asked: forAll, lane: func(_ *lanes, l *lane) gate { return &l.throttle }},
	{name: gateRate, asked: forAll, lane: func(_ *lanes, l *lane) gate { return &l.limit }},
	{
		name: gateQuota, asked: forAll,
		means:  "the configured maximum of records per second is reached",
		lane:   func(ls *lanes, _ *lane) gate { return ls.cfg.LaneLimit.quota() },
		shared: func(ls *lanes) gate { return ls.cfg.Limit.quota() },
	},
	{
		name: gateBytes, asked: forAll,
		means:  "the configured maximum of bytes per second is reached",
		lane:   func(ls *lanes, _ *lane) gate { return ls.cfg.LaneLimit.bytes() },
		shared: func(ls *lanes) gate { return ls.cfg.Limit.bytes() },
	},
	{
		name: gateConcurrency, asked: forAll,
		means:  "the configured maximum of batches is in flight",
		lane:   func(ls *lanes, _ *lane) gate { return ls.cfg.LaneLimit.slots() },
		shared: func(ls *lanes) gate { return ls.cfg.Limit.slots() },
	},
	{name: gateOrder, asked: forAll, lane: func(_ *lanes, l *lane) gate {
		return &flagGate{&l.run.broken}
	}},
	{name: gateOrder, asked: forItem | forSuspect, lane: func(_ *lanes, l *lane) gate {
		return &nextRunGate{run: &l.run}
	}},
	{name: gateLimit, asked: withoutWin, lane: func(_ *lanes, l *lane) gate { return &l.hard }},
	{name: gateCredit}, // name of the window gate while credit binds
	{name: gateWindow, asked: forLoad | forFirst, lane: func(_ *lanes, l *lane) gate { return &l.win }},
	{name: gateWindow, asked: forLoad | forFirst, lane: newLevelGate},
	{name: gateWindow, asked: forItem | forProbe | forSuspect, lane: func(ls *lanes, l *lane) gate {
		if !ls.cfg.Shared {
			return nil
		}
		return &flagGate{&l.groupState.paused}
	}},
	{name: gateWindow, binds: func(m *Machine) bool { return m.group.isFull() }},
	{name: gateReplay, binds: func(m *Machine) bool { return m.settlement.replay.binds() }},
	{
		name: gateWaiting, binds: func(m *Machine) bool { return m.backlog.full() },
		means: "the maximum of batches waits for another attempt; " +
			"no data is read until one of them is delivered or becomes a dead letter",
	},
	{
		name: gateOrder, binds: func(m *Machine) bool {
			return m.backlog.keyed > 0 && m.backlog.fresh.len() > 0
		},
		means: "waiting batches must keep their order behind the batches in flight",
	},
	{
		name: gateBudget, binds: func(m *Machine) bool { return m.backlog.budget.awaited },
		means: "failed batches wait for the retry budget: recently too many attempts failed for " +
			"the number of deliveries",
	},
	{
		name: gateFaster, binds: func(m *Machine) bool { return m.dispatcher.hold.active },
		means: "it has room, but a faster worker is expected to finish the waiting batches sooner, " +
			"as soon as it has room",
	},
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
	gateFaster      = "faster" // items wait for a busy lane that is expected to finish them sooner
	gateNone        = "none"
)

// Gates returns the names of the gates that a [LaneStatus] may have, in the order in which they are
// checked. The last one is "none".
func Gates() (names []string) {
	for _, k := range gateKinds {
		if !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}
	return append(names, gateNone)
}

// GateMeans explains the gate with this name to an operator, in words that apply to every lane. It
// returns "" if the explanation needs figures of the lane, and for an unknown name.
func GateMeans(name string) string {
	for _, k := range gateKinds {
		if k.name == name && k.means != "" {
			return k.means
		}
	}
	return ""
}

// addSharedGates makes the gates that all lanes share, such as a limit on the records per second of
// all lanes together.
func (ls *lanes) addSharedGates() {
	for _, k := range gateKinds {
		if k.shared == nil {
			continue
		}
		if g := k.shared(ls); g != nil {
			ls.shared.add(laneGate{g, k.name, k.asked})
		}
	}
}

// addLaneGates makes the gates of l.
func (ls *lanes) addLaneGates(l *lane) {
	for _, k := range gateKinds {
		if k.lane == nil {
			continue
		}
		if g := k.lane(ls, l); g != nil {
			l.gates.add(laneGate{g, k.name, k.asked})
		}
	}
	for _, g := range ls.shared.all {
		l.gates.add(g)
	}
}

// binding returns the name of the first gate that keeps l from taking an item. If no gate of l
// does, it returns the name of a gate of the whole machine that holds items back, or "none".
func (m *Machine) binding(l *lane) string {
	if !l.isUp() {
		return gateNone
	}
	if g, n := l.gates.binding(m.now, forItem|forLoad); n == 0 {
		if named, ok := g.gate.(namedGate); ok {
			return named.name()
		}
		return g.name
	}
	for _, k := range gateKinds {
		if k.binds != nil && k.binds(m) {
			return k.name
		}
	}
	return gateNone
}
