//penstock:pure

package control

import "time"

// throttle is the gate of a worker that is alive but full. It is shut until a certain time (until).
type throttle struct {
	until  time.Duration
	outage outage // schedule of the waits if the worker names none
}

func (g *throttle) name() string { return gateThrottle }

func (g *throttle) room(now time.Duration) int {
	if now < g.until {
		return 0
	}
	return unlimited
}

func (g *throttle) next(now time.Duration) (time.Duration, bool) { return g.until, now < g.until }
