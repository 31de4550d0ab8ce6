//penstock:pure

package control

import (
	"math"
	"time"
)

// gate is one limit on the attempts that may start at a lane, such as its window or its breaker.
// The number that may start now is the minimum over the gates of the lane that apply to such an
// attempt. gates.go lists all kinds of gates.
type gate interface {
	// room returns the number of attempts that may start now, or unlimited.
	room(now time.Duration) int
}

// timedGate is a gate that opens at a certain time.
type timedGate interface {
	gate
	// next returns the time at which the room may change without an event, and false if there is
	// none.
	next(now time.Duration) (at time.Duration, ok bool)
}

// countingGate is a gate whose room depends on the attempts of its lane.
type countingGate interface {
	gate
	// started notes the start of an attempt, and reports whether the gate is now shut until a
	// certain time.
	started(now time.Duration, a *attempt) (timed bool)
	// ended notes that an attempt has been answered.
	ended(a *attempt)
}

// namedGate is a gate that has several names in a [LaneStatus], and not only that in gateKinds.
type namedGate interface {
	gate
	name() string
}

const unlimited = math.MaxInt

// flagGate is a gate that is shut while a field of its lane is true.
type flagGate struct{ shut *bool }

func (g *flagGate) room(time.Duration) int {
	if *g.shut {
		return 0
	}
	return unlimited
}

// gates are the gates of one lane, or the gates that all lanes share. The other lists are
// selections from the list all, made in advance because every start and every answer reads them.
type gates struct {
	all      []laneGate
	items    gateList // gates that apply to forItem
	loads    gateList // gates that apply to forLoad
	counting []countingGate
	timed    []timedGate
}

type laneGate struct {
	gate
	name  string
	asked use // the gate applies to these uses
}

func (gs *gates) add(g laneGate) {
	gs.all = append(gs.all, g)
	if g.asked&forItem != 0 {
		gs.items = append(gs.items, g.gate)
	}
	if g.asked&forLoad != 0 {
		gs.loads = append(gs.loads, g.gate)
	}
	if c, ok := g.gate.(countingGate); ok {
		gs.counting = append(gs.counting, c)
	}
	if t, ok := g.gate.(timedGate); ok {
		gs.timed = append(gs.timed, t)
	}
}

// gateList is a list of gates that apply to one use, which is a purpose of an attempt.
type gateList []gate

// room returns the least room of the gates.
func (list gateList) room(now time.Duration) int {
	n := unlimited
	for _, g := range list {
		n = min(n, g.room(now))
	}
	return n
}

// binding returns the first gate with the least room of those that apply to use u, and that room.
func (gs *gates) binding(now time.Duration, u use) (least laneGate, n int) {
	n = unlimited
	for _, g := range gs.all {
		if g.asked&u == 0 {
			continue
		}
		if r := g.room(now); r < n {
			n, least = r, g
		}
	}
	return least, n
}

// shut reports whether one of the gates that apply to use u leaves no room.
func (gs *gates) shut(now time.Duration, u use) bool {
	_, n := gs.binding(now, u)
	return n == 0
}

// full reports whether one of the gates that apply to items in their turn leaves no room.
func (gs *gates) full(now time.Duration) bool { return gs.items.room(now) == 0 }

// started notes the start of an attempt, and reports whether a gate is now shut until a certain
// time.
func (gs *gates) started(now time.Duration, a *attempt) (timed bool) {
	for _, g := range gs.counting {
		timed = g.started(now, a) || timed
	}
	return timed
}

// ended notes that an attempt has been answered.
func (gs *gates) ended(a *attempt) {
	for _, g := range gs.counting {
		g.ended(a)
	}
}
