package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

const (
	outageTick  = 250 * time.Millisecond
	drainGrace  = time.Second
	drainStreak = 3               // failures in a row after which a worker counts as unable
	onceGrace   = 5 * time.Second // time for several attempts of a worker with new credentials
)

// outageDetector detects an outage: no worker of a route has been able to deliver for the time
// grace.
type outageDetector struct {
	refusing bool // workers whose attempts keep failing also count as unable
	grace    time.Duration
	end      time.Time // a worker throttled beyond it also counts as unable; zero if none does
	since    time.Time // start of the outage; zero if any worker can deliver
}

// reached reports whether no worker of r has been able to deliver for at least the time grace. It
// returns false while an attempt is in flight, because that attempt may succeed. It also returns
// false while r has no unsettled records.
func (h *outageDetector) reached(r *route) bool {
	waiting := r.unsettled()
	status, _ := r.sender.sender.Status()
	able := waiting == 0 || len(status.Lanes) == 0
	flying := false
	for i := range status.Lanes {
		l := &status.Lanes[i]
		able = able || !h.unable(l, status.Suspected) && !h.pausedBeyondEnd(l, status.Now)
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
// refusing is not set, any other worker can.
//
// If refusing is set, other workers may be unable, too. l.Fault is the fault that opened the
// worker's breaker, or 0 if the breaker is closed. If this fault is a timeout, the worker may still
// deliver. Otherwise it counts as unable in each of three cases:
//
//   - The fault was a retryable failure.
//   - The worker has failed at least drainStreak times in a row, and has never timed out.
//   - suspected is set, because the sender expects attempts at all workers to fail.
func (h *outageDetector) unable(l *control.LaneStatus, suspected bool) bool {
	if l.Fault == control.Misconfigured {
		return true
	}
	if !h.refusing || l.Fault == control.TimedOut {
		return false
	}
	return l.Fault == control.Retryable || suspected || l.Streak >= drainStreak && l.TimedOut == 0
}

// pausedBeyondEnd reports whether a receiver has asked for a pause, for example by Retry-After, that
// lasts until the end of the drain or longer. l.Until and now are times since the start of the
// sender.
func (h *outageDetector) pausedBeyondEnd(l *control.LaneStatus, now time.Duration) bool {
	return !h.end.IsZero() && l.State == window.Throttled && l.Until-now >= time.Until(h.end)
}
