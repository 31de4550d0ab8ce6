//penstock:pure

package control

import (
	"math"
	"time"
)

// gate is one reason why a lane may take nothing, or only so much. A lane takes the least that its
// gates leave. Each kind of gate owns its state, in a file of its own; gates.go lists them.
type gate interface {
	// name is the gate's name in a [LaneStatus].
	name() string
	// room returns how many attempts may start now, and unlimited if it does not matter.
	room(now time.Duration) int
	// next returns when the room may change although nothing happens, and false if it will not.
	next(now time.Duration) (at time.Duration, ok bool)
	// started takes in an attempt, and reports whether that shuts the gate until a time.
	started(now time.Duration, a *attempt) (timed bool)
	// ended takes in that an attempt has been answered.
	ended(a *attempt)
}

const unlimited = math.MaxInt

// fixed is a gate that neither time nor attempts change.
type fixed struct{}

func (fixed) next(time.Duration) (time.Duration, bool) { return 0, false }
func (fixed) started(time.Duration, *attempt) bool     { return false }
func (fixed) ended(*attempt)                           {}

// condition is a gate that is shut while shut reports so.
type condition struct {
	fixed
	label string
	shut  func() bool
}

func (g *condition) name() string { return g.label }

func (g *condition) room(time.Duration) int {
	if g.shut() {
		return 0
	}
	return unlimited
}

// gates are those of one lane, or those that all lanes share.
type gates []laneGate

type laneGate struct {
	gate
	asked use
}

// room returns the least room of those that are asked for this use, and the first gate that has it.
func (all gates) room(now time.Duration, u use) (n int, least gate) {
	n = unlimited
	for i := range all {
		if all[i].asked&u == 0 {
			continue
		}
		if r := all[i].room(now); r < n {
			n, least = r, all[i].gate
		}
	}
	return n, least
}

// shut reports whether one of them leaves no room.
func (all gates) shut(now time.Duration, u use) bool {
	n, _ := all.room(now, u)
	return n == 0
}

// started takes in an attempt, and reports whether a gate is shut until a time.
func (all gates) started(now time.Duration, a *attempt) (timed bool) {
	for i := range all {
		timed = all[i].started(now, a) || timed
	}
	return timed
}

// ended takes in that an attempt has been answered.
func (all gates) ended(a *attempt) {
	for i := range all {
		all[i].ended(a)
	}
}
