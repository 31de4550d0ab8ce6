//penstock:pure

package control

import (
	"math"
	"time"
)

// standbyGate selects the lanes that may take items. Limits.Standby gives each lane a number. The
// number that decides is the lowest one of a lane that is not down. Lanes with that number or a
// lower one may take items. A lane is down while its breaker is open or pauses it briefly.
//
//	Standby 0: A down, B up   B takes items, A gets probes
//	Standby 1: C up           C takes nothing until B is down, too
//
// While all lanes are down, all may be used: their breakers and the global backoff decide.
type standbyGate struct {
	lanes *lanes
	lane  *lane
}

func newStandbyGate(ls *lanes, l *lane) gate { return &standbyGate{lanes: ls, lane: l} }

func (g *standbyGate) room(time.Duration) int {
	if !g.lanes.isInUse(g.lane) {
		return 0
	}
	return unlimited
}

// isInUse reports whether the standby gate of l is open.
func (ls *lanes) isInUse(l *lane) bool { return l.limits.Standby <= ls.standby }

// inUse returns the number of lanes that are up and in use.
func (ls *lanes) inUse() (n int) {
	for _, l := range ls.up {
		n += one(ls.isInUse(l))
	}
	return n
}

// failover updates standby after a lane was added or removed, failed or recovered.
func (ls *lanes) failover() {
	before := ls.standby
	least, highest := math.MaxInt, 0
	for _, l := range ls.up {
		highest = max(highest, l.limits.Standby)
		if !l.br.shut() {
			least = min(least, l.limits.Standby)
		}
	}
	if ls.standby = min(least, highest); ls.standby != before {
		ls.refreshAll()
	}
}

// mayOpen reports whether the breaker of l may open for more than a moment. If no standby lane
// could take over, at most half of the lanes with l's Standby number, but always one, may have an
// open breaker.
func (ls *lanes) mayOpen(l *lane) bool {
	alike, opened := 0, 0
	for _, other := range ls.up {
		if other.limits.Standby > l.limits.Standby {
			return true
		}
		if other.limits.Standby == l.limits.Standby {
			alike++
			opened += one(other.br.state == breakerOpen)
		}
	}
	return opened < max(1, alike/2)
}
