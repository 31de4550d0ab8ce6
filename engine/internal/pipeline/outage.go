package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

const (
	outageTick  = 250 * time.Millisecond
	drainGrace  = time.Second
	drainStreak = 3               // failures in a row after which a worker counts as unable
	onceGrace   = 5 * time.Second // time for several attempts of a worker with new credentials
)

// outageDetector detects an outage: that no worker of a route has been able to deliver for the
// duration grace.
type outageDetector struct {
	refusing bool // workers whose attempts keep failing also count as unable
	grace    time.Duration
	since    time.Time // start of the outage; zero if any worker can deliver
}

// reached reports whether no worker of r has been able to deliver for at least the duration
// grace. It returns false while an attempt is in flight, because that attempt may succeed.
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

// unable reports whether a worker cannot deliver at present. A misconfigured worker cannot. If
// refusing is set, a worker whose last fault is not a timeout also cannot deliver in three cases:
// it has a retryable failure, it has at least drainStreak failures in a row without a timeout, or
// suspected is set. suspected means that the sender expects the attempts of all workers to fail.
func (h *outageDetector) unable(l *control.LaneStatus, suspected bool) bool {
	if l.Fault == control.Misconfigured {
		return true
	}
	if !h.refusing || l.Fault == control.TimedOut {
		return false
	}
	return l.Fault == control.Retryable || suspected || l.Streak >= drainStreak && l.TimedOut == 0
}
