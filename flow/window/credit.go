//penstock:pure

package window

import (
	"fmt"
	"time"
)

// Credit is the window for workers that say how much they will take (Receiver of package flow, or
// anything that sends the same header). The worker advertises an absolute, cumulative amount of
// cost: an advertisement that is lost or comes twice changes nothing. It holds for a lease of 2 s,
// or three round trips; then one batch at a time is sent until the worker speaks again, so that a
// lost last word cannot stop the flow. Whatever is advertised, the window is never above twice that
// of [Queue], which runs beside it: a worker that promises too much is not flooded. A worker that
// advertises nothing gets Queue's window. The zero value works.
type Credit struct {
	Max int // batches; 0 means 1000
}

// Name returns "credit".
func (Credit) Name() string { return "credit" }

// Validate says what is wrong with c.
func (c Credit) Validate() error { return validRange("credit", 0, c.Max) }

// New returns a window for one worker.
func (c Credit) New() Window {
	initial, top := filledRange(0, c.Max)
	w := &credit{queueWindow: queueWindow{newDelay(initial, top, true)}}
	w.restarts = true
	return w
}

// leaseLeast is how long an advertisement holds at least.
const leaseLeast = 2 * time.Second

const (
	gapSamples  = 32
	leaseRounds = 3   // and so many round trips
	overOwn     = 2.0 // times its own estimate is the most that a worker can ask for
)

// Leased is a Window whose limit is a promise of its worker with an end.
type Leased interface {
	Window
	// LeaseEnds is when the promise ends, since the sender's start; 0: there is none. After it one
	// batch at a time is to be sent.
	LeaseEnds() time.Duration
	Binding() string // "credit" or "window": which of the two is less
}

type credit struct {
	queueWindow
	offered bool    // something was advertised since the worker began
	batches bool    // what follows is in batches, not in cost
	granted float64 // cumulative cost
	taken   float64 // cumulative cost of what was answered
	mean    float64 // cost of a batch
	ends    time.Duration
	gap     gap
}

// gap is by how much the worker has counted more lately.
type gap struct {
	least   float64
	samples int
}

// observe takes in a difference, and returns the least of them when there are enough, else 0. A
// negative one is enough.
func (g *gap) observe(more float64) float64 {
	if g.samples == 0 || more < g.least {
		g.least = more
	}
	if g.samples++; g.samples < gapSamples && g.least >= 0 {
		return 0
	}
	g.samples = 0
	return g.least
}

// advertised is the advertised window in batches.
func (c *credit) advertised() float64 {
	if c.mean <= 0 {
		return 1
	}
	return max(1, (c.granted-c.taken)/c.mean)
}

func (c *credit) Limit() float64 {
	own := c.queueWindow.Limit()
	if !c.offered {
		return own
	}
	return min(c.advertised(), overOwn*max(own, 2), c.top)
}

func (c *credit) LeaseEnds() time.Duration { return c.ends }

func (c *credit) Binding() string {
	if c.offered && c.advertised() <= overOwn*max(c.queueWindow.Limit(), 2) {
		return "credit"
	}
	return "window"
}

func (c *credit) OnSample(s Sample) {
	if a := &s.Advert; a.Valid && a.Batches != c.batches { // counted in another unit from now on
		c.batches, c.taken, c.gap = a.Batches, 0, gap{}
	}
	if c.batches {
		c.taken, c.mean = c.taken+1, 1
	} else {
		c.taken += s.Cost
		if c.mean = s.Mean; c.mean <= 0 {
			c.mean = s.Cost
		}
	}
	if a := &s.Advert; a.Valid {
		c.offered = true
		c.reconcile(float64(a.Taken))
		c.granted = float64(a.Credit)
		c.ends = s.Now + max(leaseLeast, leaseRounds*s.RoundTrip)
	}
	c.queueWindow.OnSample(s)
}

// reconcile makes up for answers that never came: the worker counts them, we do not. Answers on
// their way are counted by the worker only, too, but not at every moment.
func (c *credit) reconcile(taken float64) {
	if taken == 0 {
		return
	}
	c.taken += c.gap.observe(taken - c.taken)
}

// ProbeWithin wants no drained probes while the worker speaks for itself.
func (c *credit) ProbeWithin() time.Duration {
	if c.offered {
		return 0
	}
	return c.queueWindow.ProbeWithin()
}

func (c *credit) Reset(now time.Duration) {
	c.queueWindow.Reset(now)
	c.offered, c.batches, c.granted, c.taken, c.ends, c.gap = false, false, 0, 0, 0, gap{}
}

func (c *credit) Reason() string {
	if !c.offered {
		return "nothing advertised; " + c.queueWindow.Reason()
	}
	return fmt.Sprintf("%.4g batches advertised, at most twice its own %.4g; %s",
		c.advertised(), c.queueWindow.Limit(), c.queueWindow.Reason())
}
