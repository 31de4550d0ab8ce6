//penstock:pure

package control

import (
	"slices"
	"time"
)

// stuck handles attempts of a lane that hang while later ones are delivered, because bad data fails
// late or never. They do not wait in the worker's queue, so they do not count as being there, and
// their timeouts do not narrow the window.
//
// If there were such attempts recently, the next ones give up their places in the window long
// before they are overdue: when they take longer than nearly all others and were overtaken. If
// nothing is delivered, bad data may have taken all places. Then at most as many give up theirs as
// bad items may occur in a row, because more would be sent to a worker that hangs.
type stuck struct {
	// of the running attempts that are not at the worker: these, and those of suspects
	cost   float64
	n      int        // how many they are
	behind []*attempt // overdue, and not overtaken yet
	recent float64    // overtaken when they were overdue, decayed with each delivery
	silent int        // places given up since the last delivery
	early  int        // attempts that have given up their places and are not overdue
}

const (
	stuckMemory = 0.99             // of recent, for each delivery
	stuckLeast  = 0.3              // of recent: one in the last 120 deliveries
	stuckTimes  = 4                // times the expected round trip is long, and so is
	stuckAfter  = time.Millisecond // at least
)

// sure reports whether attempts hung lately.
func (s *stuck) sure() bool { return s.recent >= stuckLeast }

// leaves takes in that a is not at the worker, although it is out.
func (s *stuck) leaves(a *attempt) {
	if !a.away {
		a.away = true
		s.n++
		s.cost += a.cost
	}
}

// returned takes in that a has been answered.
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
		s.cost = 0 // a sum of floats
	} else {
		s.cost -= a.cost
	}
}

// longAt is how long a, just sent to a lane with these estimates, may take before it gives up its
// place.
func longAt(a *attempt, e *estimator) time.Duration {
	d := e.overdueSoon()
	if e.rate > 0 && e.service > 0 {
		d = min(d, toDuration(stuckTimes*(e.service+a.ahead/e.rate)))
	}
	return max(d, stuckAfter)
}

// overdue takes in that a is, and whether later attempts have overtaken it.
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

// delivered records a delivery of an attempt that was sent no later than sent, and reports whether
// that has overtaken overdue attempts, which then do not wait in a queue.
func (s *stuck) delivered(sent time.Duration, late bool) (overtaken bool) {
	s.silent = 0
	if s.recent *= stuckMemory; late {
		s.recent = max(0, s.recent-1) // it had only taken long
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

// takesLong takes in that a takes longer than nearly all do: it gives up its place.
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
