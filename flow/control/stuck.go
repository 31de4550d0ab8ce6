//penstock:pure

package control

import (
	"slices"
	"time"
)

// stuck handles attempts of a lane that hang while later ones are delivered, because bad data fails
// late or never. They do not wait in the worker's queue. So they do not count as load of the
// worker, and their timeouts do not narrow the window.
//
// If attempts hung recently, later ones give up their places in the window long before they are
// overdue: when they take longer than nearly all others and were overtaken. If the lane delivers
// nothing, bad data may have taken all places. Then attempts that were not overtaken also give up
// their places, but only as many as bad items may occur in a row. Otherwise a worker that hangs
// would get more and more attempts.
type stuck struct {
	// cost of the running attempts that do not count as load of the worker: those above, and those
	// of suspect items
	cost   float64
	n      int        // number of these attempts
	behind []*attempt // overdue, and not overtaken yet
	recent float64    // attempts that were overdue and overtaken, decayed with each delivery
	silent int        // places given up since the last delivery
	early  int        // attempts that have given up their places and are not overdue
}

const (
	stuckMemory = 0.99             // decay of recent, for each delivery
	stuckLeast  = 0.3              // least value of recent: one in the last 120 deliveries
	stuckTimes  = 2                // multiple of the expected round trip that counts as long
	stuckAfter  = time.Millisecond // minimum time that counts as long
)

// sure reports whether attempts hung recently.
func (s *stuck) sure() bool { return s.recent >= stuckLeast }

// leaves records that a runs but does not count as load of the worker.
func (s *stuck) leaves(a *attempt) {
	if !a.away {
		a.away = true
		s.n++
		s.cost += a.cost
	}
}

// returned records that a has been answered.
func (s *stuck) returned(a *attempt) {
	if i := slices.Index(s.behind, a); i >= 0 {
		s.behind = slices.Delete(s.behind, i, i+1)
	}
	if !a.away {
		return
	}
	if !a.overdue && !a.apart {
		s.early--
	}
	if s.n--; s.n == 0 {
		s.cost = 0 // remove the rounding errors of the sum
	} else {
		s.cost -= a.cost
	}
}

// longAt returns the time that a, which was just sent to a lane with these estimates, may take
// before it gives up its place.
func longAt(a *attempt, e *estimator) time.Duration {
	d := e.overdueSoon()
	if e.rate > 0 && e.service > 0 {
		d = min(d, toDuration(stuckTimes*(e.service+a.ahead/e.rate)))
	}
	return max(d, stuckAfter)
}

// overdue records that a is overdue, and whether later attempts have overtaken it.
func (s *stuck) overdue(a *attempt, overtaken bool) {
	if a.away && !a.apart {
		s.early--
	}
	if overtaken {
		s.recent++
		s.leaves(a)
	} else {
		s.behind = append(s.behind, a)
	}
}

// delivered records a delivery. sent is the latest send time of a delivered attempt. It reports
// whether the delivery has overtaken overdue attempts, which shows that they do not wait in a
// queue.
func (s *stuck) delivered(sent time.Duration, late bool) (overtaken bool) {
	s.silent = 0
	if s.recent *= stuckMemory; late {
		s.recent = max(0, s.recent-1) // the attempt was only slow
	}
	s.behind = slices.DeleteFunc(s.behind, func(b *attempt) bool {
		if b.sent >= sent {
			return false
		}
		overtaken = true
		s.recent++
		s.leaves(b)
		return true
	})
	return overtaken
}

// takesLong makes a, which takes longer than nearly all attempts, give up its place in the window.
func (t *attempts) takesLong(a *attempt) {
	l := a.lane
	if a.away || a.apart {
		return
	}
	if a.sent >= l.outs.delivered {
		if l.stuck.silent >= t.evidence.blame.streak(t.cfg.Breaker.Failures)-1 {
			return
		}
		l.stuck.silent++
	}
	l.win.ended(a)
	l.outs.drop(a)
	l.stuck.leaves(a)
	l.stuck.early++
	t.lanes.refresh(l)
}
