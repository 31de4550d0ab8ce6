package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

const (
	outageTick  = 250 * time.Millisecond
	drainGrace  = time.Second
	drainStreak = 3               // failures in a row that count as failing every attempt
	onceGrace   = 5 * time.Second // time for several probes of a worker with new credentials
)

// outageDetector reports when no worker of a route has been able to deliver for at least grace.
type outageDetector struct {
	refusing bool // also count workers that fail every attempt, not only misconfigured ones
	grace    time.Duration
	since    time.Time // start of the outage; zero if a worker can deliver
}

// reached reports whether no worker of r has been able to deliver for at least grace. It returns
// false while an attempt that may still succeed is in flight.
func (h *outageDetector) reached(r *route) bool {
	waiting := r.unsettled()
	status, _ := r.sender.sender.Status()
	able := waiting == 0 || len(status.Lanes) == 0
	flying := false
	for i := range status.Lanes {
		l := &status.Lanes[i]
		able = able || !h.unable(l, status.Suspected)
		flying = flying || l.InFlight > 0
	}
	switch {
	case able:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = time.Now()
	case !flying:
		return time.Since(h.since) >= h.grace
	}
	return false
}

// unable reports whether a worker is misconfigured or, if refusing is set, fails every attempt.
// suspected means that the sender assumes all workers to fail.
func (h *outageDetector) unable(l *control.LaneStatus, suspected bool) bool {
	if l.Fault == control.Misconfigured {
		return true
	}
	if !h.refusing || l.Fault == control.TimedOut {
		return false
	}
	return l.Fault == control.Retryable || suspected || l.Streak >= drainStreak && l.TimedOut == 0
}
