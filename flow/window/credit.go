//penstock:pure

package window

import (
	"fmt"
	"math"
	"time"
)

// Credit is the window for workers that report their capacity, by [flow.Receiver] or by any program
// that sends the same header. A worker without reports gets the window of [Queue]. The zero value
// is usable.
//
// The worker advertises a total to each sender: the cost that it has accepted from this sender
// since its start, plus the cost that it can still take. Example: a worker that has accepted 100
// and can take 20 more advertises 120. Because this is a total, a lost or repeated advertisement
// has no effect.
//
// An advertisement is valid for 2 s or three round trips, whichever is longer. After that, the
// sender sends one batch at a time until the worker responds again. So the flow does not stop if
// the last response was lost. The window never exceeds twice the window that [Queue] would have, or
// 4 batches if 4 is more. This protects a worker that advertises more than it can serve. A worker
// that does not report how long batches wait is probed as with [Queue].
type Credit struct {
	Max int // batches; 0 means 1000
}

// Name returns "credit".
func (Credit) Name() string { return "credit" }

// Most returns Max.
func (c Credit) Most() int { return c.Max }

// Validate returns an error if c is invalid.
func (c Credit) Validate() error { return validRange("credit", 0, c.Max) }

// New returns a window for one worker.
func (c Credit) New() Window {
	return &credit{queueWindow: queueWindow{newDelay(0, c.Max, queueCut)}}
}

// minLease is the minimum validity of an advertisement.
const minLease = 2 * time.Second

const (
	gapSamples  = 32
	leaseRounds = 3   // validity of an advertisement in round trips, if longer than minLease
	maxOverOwn  = 2.0 // maximum of an advertised window, relative to the window's own estimate
	priceWeight = 0.1 // weight of a batch in the mean of the worker's prices
)

// Leased is a Window with a limit that was granted by the worker and expires.
type Leased interface {
	Window
	// LeaseEnds returns the time at which the worker's last advertisement expires, counted from the
	// sender's start. It returns 0 if there is none. After that time, one batch at a time should be
	// sent.
	LeaseEnds() time.Duration
	// Granted returns the number of batches that the worker accepts according to its last
	// advertisement, in all. It has no meaning if LeaseEnds returns 0.
	Granted() float64
	Binding() string // "credit" or "window": the smaller of the two
}

type credit struct {
	queueWindow
	advertises bool    // the worker has advertised since its start
	batches    bool    // the fields below are in batches, not in cost
	granted    float64 // cumulative cost
	taken      float64 // cumulative cost of answered batches
	mean       float64 // cost of a batch
	ends       time.Duration
	gap        countGap
}

// countGap tracks the recent minimum of the difference between two counts of the cost of answered
// batches: the worker's count, and the count of this sender (see reconcile).
type countGap struct {
	minimum float64
	samples int
}

// observe adds a difference: the worker's count minus the sender's (more). After gapSamples
// differences, or as soon as one is negative, it returns the smallest of them and starts over.
// Otherwise it returns 0.
func (g *countGap) observe(more float64) float64 {
	if g.samples == 0 || more < g.minimum {
		g.minimum = more
	}
	if g.samples++; g.samples < gapSamples && g.minimum >= 0 {
		return 0
	}
	g.samples = 0
	return g.minimum
}

// Granted returns the advertised window in batches.
func (c *credit) Granted() float64 {
	if c.mean <= 0 {
		return 1
	}
	return max(1, (c.granted-c.taken)/c.mean)
}

func (c *credit) Limit() float64 {
	own := c.queueWindow.Limit()
	switch {
	case !c.advertises:
		return own
	case c.Probing():
		return min(c.Granted(), own)
	}
	return min(c.Granted(), maxOverOwn*max(own, 2), c.top)
}

func (c *credit) LeaseEnds() time.Duration { return c.ends }

func (c *credit) Binding() string {
	if c.advertises && c.Granted() <= maxOverOwn*max(c.queueWindow.Limit(), 2) {
		return "credit"
	}
	return "window"
}

func (c *credit) OnSample(s Sample) {
	// The worker has changed the unit of its counts.
	if a := &s.Advert; a.Valid && a.Batches != c.batches {
		c.batches, c.taken, c.gap = a.Batches, 0, countGap{}
	}
	switch {
	case c.batches:
		c.taken, c.mean = c.taken+1, 1
	case s.Advert.Valid && s.Advert.Cost > 0:
		price := float64(s.Advert.Cost)
		if c.taken += price; c.mean == 0 {
			c.mean = price
		}
		c.mean += priceWeight * (price - c.mean)
	default:
		c.taken += s.Cost
		if c.mean = s.Mean; c.mean <= 0 {
			c.mean = s.Cost
		}
	}
	if a := &s.Advert; a.Valid {
		c.advertises = true
		c.reconcile(float64(a.Taken))
		c.granted = float64(a.Credit)
		c.ends = s.Now + max(minLease, leaseRounds*s.RoundTrip)
	}
	// If the credit is the limit, the window's own estimate is not fully used, and must not grow.
	s.Limited = s.Limited && s.ahead() >= math.Floor(c.w)
	before := c.w
	c.queueWindow.OnSample(s)
	v := &c.verdict
	if c.round.n == 0 && !c.startup.on && v.cause == roundEnded && v.before == before {
		// The credit may allow more batches in flight than the window's own estimate. Then raise
		// the estimate to the number in flight, less the waiting batches above the upper bound of
		// the queue. A window of Queue would allow that many.
		c.w = min(max(c.w, c.inFlight-max(0, v.queue-v.high)), c.top)
	}
}

// reconcile corrects c.taken, the sender's count of the cost that the worker has answered. The
// parameter taken is the worker's count. It exceeds the sender's count by the lost answers, and for
// a short time by the answers that are still in transit. The smallest recent difference has hardly
// any answers in transit. So it is the cost of the lost answers, which reconcile adds to c.taken.
func (c *credit) reconcile(taken float64) {
	if taken == 0 {
		return
	}
	c.taken += c.gap.observe(taken - c.taken)
}

func (c *credit) Reset(now time.Duration) {
	c.queueWindow.Reset(now)
	c.advertises, c.batches, c.granted, c.taken, c.ends, c.gap = false, false, 0, 0, 0, countGap{}
	c.mean = 0
}

func (c *credit) Reason() string {
	if !c.advertises {
		return "nothing advertised; " + c.queueWindow.Reason()
	}
	return fmt.Sprintf("%.4g batches advertised, at most twice its own %.4g; %s",
		c.Granted(), c.queueWindow.Limit(), c.queueWindow.Reason())
}
