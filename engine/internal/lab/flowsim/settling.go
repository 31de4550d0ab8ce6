//penstock:pure

package flowsim

import "time"

// bins hold an amount for each interval of binWidth.
type bins []float64

const binWidth = 100 * time.Millisecond

func (b bins) add(at time.Duration, v float64) {
	if i := int(at / binWidth); i < len(b) {
		b[i] += v
	}
}

// spread distributes an amount evenly over an interval of time.
func (b bins) spread(from, to time.Duration, v float64) {
	if to <= from {
		b.add(from, v)
		return
	}
	per := v / float64(to-from)
	for i := int(from / binWidth); i < len(b); i++ {
		begin, end := time.Duration(i)*binWidth, time.Duration(i+1)*binWidth
		if begin >= to {
			return
		}
		b[i] += per * float64(min(end, to)-max(begin, from))
	}
}

const (
	near       = 0.95 // of the optimum
	leastSpan  = time.Second
	spanRounds = 10
)

// settling returns two times in seconds: converge from the start, and recovery from the end of the
// last event. Each is the time until all later windows reach 0.95 of the optimum, or until the end
// if that never happens. A window is an interval of 1 s, or of 10 round trips without a queue if
// that is longer. The measurement of converge ends at the first event.
//
// Under a backlog, it measures the work that led to a delivery: the time that slots were busy,
// times the rate of a slot. On average, this work equals the delivered cost. But the delivered cost
// varies with the service times, which alone would put one window in ten below 0.95. Under an open
// load, settling measures the delivered cost relative to the actual arrivals.
func (c *collector) settling(end time.Duration) (converge, recovery float64) {
	n := int(end / binWidth)
	best := make([]float64, n)
	got := c.work[:n]
	open := c.s.Offered() > 0
	if open {
		got = c.done[:n]
	}
	backlog := 0.0
	if l := &c.s.Load; l.Finite() && !open {
		backlog = float64(l.Batches) * c.s.Size.Mean()
	}
	for i := range best {
		// the full capacity, regardless of the load
		able := c.s.Capacity(time.Duration(i)*binWidth+binWidth/2) * binWidth.Seconds()
		if open {
			backlog += c.planned[i]
		}
		if best[i] = able; !c.s.Load.Saturated {
			best[i] = min(able, backlog)
			backlog -= best[i]
		}
	}
	from, first, last := 0, n, -1
	for i := range c.s.Events {
		e := &c.s.Events[i]
		if e.At > 0 {
			first = min(first, int(e.At/binWidth))
		}
		until := e.At
		if e.For > 0 {
			until += e.For
		}
		last = max(last, int(until/binWidth))
	}
	round := c.s.Product() / c.s.Nominal()
	span := int(max(leastSpan, time.Duration(spanRounds*round*float64(time.Second))) / binWidth)
	converge = settled(got, best, from, first, span)
	if last >= 0 && last < n {
		recovery = settled(got, best, last, n, span)
	}
	return converge, recovery
}

// settled returns the time in seconds from bin `from` until all later windows have the required
// share of the optimum. A window has span bins, and ends before bin `to`.
func settled(got, best bins, from, to, span int) float64 {
	for i := to - span; i >= from; i-- {
		g, b := 0.0, 0.0
		for k := i; k < i+span; k++ {
			g += got[k]
			b += best[k]
		}
		if g < near*b {
			return (time.Duration(i+1-from) * binWidth).Seconds()
		}
	}
	return 0
}
