//penstock:pure

package control

import (
	"math"
	"time"
)

// gate is one limit on the attempts that a lane may take. A lane takes the minimum of the room that
// its gates leave. Each kind of gate has its own state and file; gates.go lists the kinds.
type gate interface {
	// name is the gate's name in a [LaneStatus].
	name() string
	// room returns the number of attempts that may start now, or unlimited.
	room(now time.Duration) int
	// next returns the time at which the room may change without an event, and false if there is
	// none.
	next(now time.Duration) (at time.Duration, ok bool)
	// started records the start of an attempt, and reports whether the gate is now shut until a
	// certain time.
	started(now time.Duration, a *attempt) (timed bool)
	// ended records that an attempt has been answered.
	ended(a *attempt)
}

const unlimited = math.MaxInt

// fixed implements the methods of a gate that changes neither with time nor with attempts.
type fixed struct{}

func (fixed) next(time.Duration) (time.Duration, bool) { return 0, false }
func (fixed) started(time.Duration, *attempt) bool     { return false }
func (fixed) ended(*attempt)                           {}

// condition is a gate that is shut while its function shut returns true.
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

// gates are the gates of one lane, or the gates that all lanes share.
type gates []laneGate

type laneGate struct {
	gate
	asked use
}

// room returns the least room of the gates that apply to use u, and the first gate with that room.
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

// shut reports whether one of the gates that apply to use u leaves no room.
func (all gates) shut(now time.Duration, u use) bool {
	n, _ := all.room(now, u)
	return n == 0
}

// started records the start of an attempt, and reports whether a gate is now shut until a certain
// time.
func (all gates) started(now time.Duration, a *attempt) (timed bool) {
	for i := range all {
		timed = all[i].started(now, a) || timed
	}
	return timed
}

// ended records that an attempt has been answered.
func (all gates) ended(a *attempt) {
	for i := range all {
		all[i].ended(a)
	}
}
