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
	// name is the gate's name in a [LaneStatus].
	name() string
	// room returns the number of attempts that may start now, or unlimited.
	room(now time.Duration) int
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

const unlimited = math.MaxInt

// fixed implements next of a gate that does not change with time.
type fixed struct{}

func (fixed) next(time.Duration) (time.Duration, bool) { return 0, false }

// flagGate is a gate that is shut while a field of its lane is true.
type flagGate struct {
	fixed
	label string
	shut  *bool
}

func (g *flagGate) name() string { return g.label }

func (g *flagGate) room(time.Duration) int {
	if *g.shut {
		return 0
	}
	return unlimited
}

// gates are the gates of one lane, or the gates that all lanes share. The lists items, loads and
// counting are selections from the list all, made in advance because every start and every answer
// reads them.
type gates struct {
	all      []laneGate
	items    gateList // gates that apply to forItem
	loads    gateList // gates that apply to forLoad
	counting []countingGate
}

type laneGate struct {
	gate
	asked use
}

// add adds a gate that applies to the uses asked.
func (gs *gates) add(g gate, asked use) {
	gs.all = append(gs.all, laneGate{g, asked})
	if asked&forItem != 0 {
		gs.items = append(gs.items, g)
	}
	if asked&forLoad != 0 {
		gs.loads = append(gs.loads, g)
	}
	if c, ok := g.(countingGate); ok {
		gs.counting = append(gs.counting, c)
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
func (gs *gates) binding(now time.Duration, u use) (least gate, n int) {
	n = unlimited
	for _, g := range gs.all {
		if g.asked&u == 0 {
			continue
		}
		if r := g.room(now); r < n {
			n, least = r, g.gate
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
