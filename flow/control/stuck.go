//penstock:pure

package control

import (
	"slices"
	"time"
)

// stuck is about attempts of a lane that hang while later ones are delivered: of bad data that
// fails late, or not at all. They wait in no queue of the worker, so they do not count as being
// there, and their timeouts do not narrow the window.
//
// Where there were such attempts lately, the next ones give up their places in the window long
// before they are overdue: when they take longer than nearly all do and were overtaken. If nothing
// is delivered, all places may be taken by bad data, so as many give up theirs as bad data makes in
// a row; more would be sent to a worker that hangs.
type stuck struct {
	cost   float64    // of the attempts that are out but not at the worker: those, and those of suspects
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

// delivered takes in a delivery of what was sent then at the latest, and reports whether that has
// overtaken overdue attempts: they do not wait in a queue.
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
func (m *Machine) takesLong(a *attempt) {
	l := a.lane
	if a.away || a.apart {
		return
	}
	if a.sent >= l.outs.delivered {
		if l.stuck.silent >= m.blame.streak(m.cfg.Breaker.Failures)-1 {
			return
		}
		l.stuck.silent++
	}
	m.unawait(a)
	l.outs.drop(a)
	l.stuck.leaves(a)
	l.stuck.early++
	m.refresh(l)
}
