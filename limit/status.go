package limit

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// Counts are sums since a Limiter was made.
type Counts struct {
	Started    uint64 // calls that got a permit
	Succeeded  uint64
	Overloaded uint64
	TimedOut   uint64
	Ignored    uint64
	Refused    uint64 // callers with a RefusedError; callers whose context ended are not counted
}

// Status is a snapshot of a Limiter.
type Status struct {
	Limit        int
	InFlight     int
	Waiting      int
	ExpectedWait time.Duration // of a new caller of priority Normal; zero if none or unknown
	RoundTrip    time.Duration // smoothed round trip; zero before the first success
	Base         time.Duration // round trip at the server without a queue; zero if not known
	State        window.State
	Reason       string // the last change of the limit and its cause
	Counts       Counts
}

// Status returns a snapshot of l.
func (l *Limiter) Status() Status {
	l.lock()
	defer l.mu.Unlock()
	a := l.admission
	s := Status{
		Limit: a.limit, InFlight: a.inFlight, Waiting: a.queue.n, RoundTrip: seconds(a.mean),
		State: a.window.State(), Reason: a.window.Reason(), Counts: a.counts,
	}
	if a.probes.window != nil {
		s.Base = a.probes.window.Base()
	}
	if !a.hasRoom() {
		s.ExpectedWait = a.expectedWait(a.queue.ahead(Normal))
	}
	return s
}
