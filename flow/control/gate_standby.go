//penstock:pure

package control

import "time"

// standby selects the lanes that may take items. Limits.Standby gives each lane a number. The
// number that decides is the lowest one of a lane that is not down. Lanes with that number or a
// lower one may take items. A lane is down while its breaker is open or pauses it briefly.
//
//	Standby 0: A down, B up   B takes items, A gets probes
//	Standby 1: C up           C takes nothing until B is down, too
//
// While all lanes are down, all may be used: their breakers and the global backoff decide.
type standby struct {
	some   bool // some lane has a number above 0
	active int  // lanes with a higher number take no items
}

// standbyGate is shut while a lane with a lower number is not down.
type standbyGate struct {
	lanes *lanes
	lane  *lane
}

func newStandbyGate(ls *lanes, l *lane) gate { return &standbyGate{lanes: ls, lane: l} }

func (g *standbyGate) room(time.Duration) int {
	if s := &g.lanes.standby; s.some && g.lane.limits.Standby > s.active {
		return 0
	}
	return unlimited
}

// failover updates standby after a lane was added or removed, failed or recovered.
func (ls *lanes) failover() {
	before := ls.standby
	s := standby{}
	least, highest := -1, 0
	for _, l := range ls.up {
		n := l.limits.Standby
		highest = max(highest, n)
		if !l.br.shut() && (least < 0 || n < least) {
			least = n
		}
	}
	if s.some = highest > 0; s.some {
		if s.active = least; least < 0 {
			s.active = highest
		}
	}
	if ls.standby = s; s != before {
		ls.refreshAll()
	}
}

// mayOpen reports whether the breaker of l may open for more than a moment. If no standby lane
// could take over, at most half of the lanes with l's Standby number, but always one, may have an
// open breaker.
func (ls *lanes) mayOpen(l *lane) bool {
	if !ls.standby.some {
		return ls.opened < max(1, len(ls.up)/2)
	}
	alike, opened := 0, 0
	for _, other := range ls.up {
		if other.limits.Standby > l.limits.Standby {
			return true
		}
		if other.limits.Standby == l.limits.Standby {
			alike++
			opened += one(other.br.open)
		}
	}
	return opened < max(1, alike/2)
}
