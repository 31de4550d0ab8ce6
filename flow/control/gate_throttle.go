//penstock:pure

package control

import "time"

// throttle is the gate of a worker that is alive but full (429). A refusal shuts it for the time
// that the worker states. If the worker states none, the first wait is about a round trip. Each
// further refusal doubles the wait, and each delivery halves it. Until deliveries have ended the
// wait, one attempt at a time may be in flight. With a round trip of 2 ms:
//
//	refused      wait  refused      wait  refused        wait  delivered  delivered  delivered
//	        1 to 2 ms         2 to 4 ms           4 to 8 ms    next: 4 ms       2 ms       none
type throttle struct {
	until time.Duration
	wait  time.Duration // the last wait, halved by each delivery since; 0: none
	first time.Duration // the shortest wait
	since time.Duration // time of the last delivery, or of the refusal that began the waits
	last  time.Duration // time of the last refusal, without those of attempts sent before it
	trial *attempt      // the attempt in flight while one at a time is allowed
}

// minThrottleWait is the shortest wait without a Retry-After.
const minThrottleWait = time.Millisecond

// shut reports whether no attempt may start, because the wait is not over.
func (g *throttle) shut(now time.Duration) bool { return now < g.until }

func (g *throttle) room(now time.Duration) int {
	switch {
	case g.shut(now):
		return 0
	case g.wait > 0:
		return one(g.trial == nil || g.trial.overdue)
	}
	return unlimited
}

func (g *throttle) next(now time.Duration) (time.Duration, bool) { return g.until, g.shut(now) }

func (g *throttle) started(_ time.Duration, a *attempt) (timed bool) {
	if g.wait > 0 && !a.ofSuspect { // an attempt of a suspect may hang, and never becomes overdue
		g.trial = a
	}
	return false
}

func (g *throttle) ended(a *attempt) {
	if g.trial == a {
		g.trial = nil
	}
}

// lengthen sets the wait after a refusal without a stated time. The parameter roundTrip is the
// worker's smoothed round trip, or 0 if it is not known. The wait is at most 1 s in the first
// minute without a delivery, and at most 30 s later.
func (g *throttle) lengthen(now, roundTrip time.Duration) {
	if g.wait == 0 {
		g.first, g.since = probeBase, now
		if roundTrip > 0 {
			g.first = min(max(roundTrip, minThrottleWait), maxProbeWaitEarly)
		}
	}
	g.wait = min(max(2*g.wait, g.first), longestWait(now-g.since, maxProbeWaitEarly, maxProbeWait))
}

// accepted shortens the next wait after a delivery, or another response that is no failure.
func (g *throttle) accepted(now time.Duration) {
	g.since = now
	if g.wait /= 2; g.wait < g.first {
		g.wait = 0
	}
}
