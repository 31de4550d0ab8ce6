//penstock:pure

package flowsim

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// collector records the events of a run and computes its figures.
type collector struct {
	s      *scenario.Scenario
	warm   time.Duration
	series *Series

	inFlight   float64 // cost of the in-flight batches
	area, peak float64
	roundTrips []time.Duration // round trips of successful attempts
	latencies  []time.Duration
	lags       []time.Duration // age of the oldest unsettled batch, at intervals of watchEvery

	attempts, firsts, rejected, duplicates int
	// hits counts attempts while any worker fails, and badHits those of them at a failing worker.
	hits, badHits int
	settled       int
	cost          float64
	settledCost   float64 // including deliveries during the warm-up

	work, done, planned bins
}

// watchEvery is the interval at which the age of the oldest unsettled batch is recorded.
const watchEvery = 10 * time.Millisecond

func (c *collector) begin(s *scenario.Scenario, series *Series) {
	c.s, c.warm, c.series = s, s.Warmup, series
	n := int(s.Duration/binWidth) + 1
	c.work, c.done, c.planned = make(bins, n), make(bins, n), make(bins, n)
	if series != nil {
		series.begin(s)
	}
}

// advance adds to c.area the cost that was in flight between two events, times the seconds between
// them. The mean cost in flight is later computed from c.area. The warm-up does not count.
func (c *collector) advance(from, to time.Duration) {
	if from = max(from, c.warm); to > from {
		c.area += c.inFlight * (to - from).Seconds()
	}
}

func (c *collector) arrived(now time.Duration, cost float64) { c.planned.add(now, cost) }

func (c *collector) start(x *sim, a *attempt, first bool) {
	c.inFlight += a.cost
	c.peak = max(c.peak, c.inFlight)
	if x.events.Now() < c.warm {
		return
	}
	c.attempts++
	if first {
		c.firsts++
	}
	if x.failing > 0 {
		c.hits++
		if x.servers[a.lane].fails() {
			c.badHits++
		}
	}
}

func (c *collector) end(x *sim, a *attempt, out control.Outcome) {
	c.inFlight -= a.cost
	if c.series != nil && out == control.Delivered {
		c.series.answered(x.events.Now() - a.sent)
	}
	if x.events.Now() < c.warm {
		return
	}
	switch out {
	case control.Delivered:
		c.roundTrips = append(c.roundTrips, x.events.Now()-a.sent)
	case control.Throttled:
		c.rejected++
	}
}

func (c *collector) duplicate(now time.Duration) {
	if now >= c.warm {
		c.duplicates++
	}
}

func (c *collector) settle(x *sim, it *item) {
	c.done.add(x.events.Now(), it.cost)
	c.settledCost += it.cost
	if x.events.Now() >= c.warm {
		c.settled++
		c.cost += it.cost
	}
	if it.planned >= c.warm {
		c.latencies = append(c.latencies, x.events.Now()-it.planned)
	}
}

// watch records the age of the oldest unsettled batch.
func (c *collector) watch(x *sim) {
	if x.events.Now() < c.warm {
		return
	}
	oldest := time.Duration(0)
	for i := range x.senders {
		d := &x.senders[i]
		if d.oldest < len(d.items) {
			oldest = max(oldest, x.events.Now()-d.items[d.oldest].planned)
		}
	}
	c.lags = append(c.lags, oldest)
}

// figures returns the figures of the run, at its end.
func (c *collector) figures(x *sim) (f scenario.Figures) {
	end := x.events.Now()
	for i := range x.senders { // unsettled batches have waited at least until now
		d := &x.senders[i]
		for k := d.oldest; k < len(d.items); k++ {
			if it := &d.items[k]; !it.settled && it.planned >= c.warm {
				c.latencies = append(c.latencies, end-it.planned)
			}
		}
	}
	span := (end - c.warm).Seconds()
	if span <= 0 {
		return f
	}
	ideal := c.s.Ideal(c.warm, end)
	f[scenario.Optimum] = ideal / span
	f[scenario.Goodput] = ratio(c.cost, ideal)
	f[scenario.InFlightMean] = c.area / span
	f[scenario.InFlightMax] = c.peak
	f[scenario.Bloat] = ratio(f[scenario.InFlightMean], c.s.Product())
	f[scenario.Overshoot] = ratio(c.peak, c.s.WStar())
	f[scenario.RateMean] = float64(c.settled) / span
	slices.Sort(c.roundTrips)
	slices.Sort(c.latencies)
	slices.Sort(c.lags)
	f[scenario.RTTMean], f[scenario.RTTP50], f[scenario.RTTMax] = mean(c.roundTrips),
		quantile(c.roundTrips, 0.5), quantile(c.roundTrips, 1)
	f[scenario.LatencyP50] = quantile(c.latencies, 0.5)
	f[scenario.LatencyP99] = quantile(c.latencies, 0.99)
	f[scenario.LatencyP999] = quantile(c.latencies, 0.999)
	f[scenario.WatermarkLag] = quantile(c.lags, 0.99)
	f[scenario.AttemptsPerBatch] = ratio(float64(c.attempts), float64(c.firsts))
	f[scenario.DuplicatesPerBatch] = ratio(float64(c.duplicates), float64(c.firsts))
	f[scenario.RejectedShare] = ratio(float64(c.rejected), float64(c.attempts))
	f[scenario.BadShare] = ratio(float64(c.badHits), float64(c.hits))
	f[scenario.Jain] = jain(x.senders)
	f[scenario.Converge], f[scenario.Recover] = c.settling(end)
	if c.s.Load.Finite() {
		if f[scenario.Finish] = c.s.Duration.Seconds(); x.finished() {
			f[scenario.Finish] = x.last.Seconds()
		}
	}
	return f
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// jain returns Jain's fairness index (sum x)^2 / (n sum x^2), where x are the deliveries of each
// sender.
func jain(d []sender) float64 {
	sum, squares := 0.0, 0.0
	for i := range d {
		sum += d[i].got
		squares += d[i].got * d[i].got
	}
	return ratio(sum*sum, float64(len(d))*squares)
}

func mean(d []time.Duration) float64 {
	sum := 0.0
	for _, v := range d {
		sum += millis(v)
	}
	return ratio(sum, float64(len(d)))
}

// quantile returns the q-quantile of a sorted slice, in milliseconds: the smallest value v in it
// such that at least the share q of all values is at most v. For an empty slice it returns 0.
func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	return millis(d[max(0, int(math.Ceil(q*float64(len(d))))-1)])
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
