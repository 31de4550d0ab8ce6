package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

const (
	inabilityTick = 250 * time.Millisecond
	drainGrace    = time.Second
	drainStreak   = 3               // failures in a row that count as failing every attempt
	onceGrace     = 5 * time.Second // enough for several probes of a worker whose token is being replaced
)

// inability notices that no worker of a route can deliver what waits, for as long as grace.
type inability struct {
	refusing bool // workers that fail every attempt count, besides misconfigured ones
	grace    time.Duration
	since    time.Time // zero if a worker can deliver
}

// reached reports whether no worker of r could deliver for the time of grace, and no attempt is in
// flight that may prove otherwise.
func (h *inability) reached(r *route) bool {
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

// unable reports whether a worker is misconfigured, or, if those count, fails every attempt.
// suspected means that all workers do.
func (h *inability) unable(l *control.LaneStatus, suspected bool) bool {
	if l.Fault == control.Misconfigured {
		return true
	}
	if !h.refusing || l.Fault == control.TimedOut {
		return false
	}
	return l.Fault == control.Retryable || suspected || l.Streak >= drainStreak && l.TimedOut == 0
}
