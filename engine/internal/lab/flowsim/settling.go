//penstock:pure

package flowsim

import "time"

// bins has an amount for each interval of length binWidth.
type bins []float64

const binWidth = 100 * time.Millisecond

func (b bins) add(at time.Duration, v float64) {
	if i := int(at / binWidth); i < len(b) {
		b[i] += v
	}
}

// spread adds an amount, spread evenly over an interval of time.
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
	near       = 0.95 // required share of the optimum
	leastSpan  = time.Second
	spanRounds = 10
)

// settling returns two times in seconds: the time from the start until the deliveries have
// converged, and the time from the end of the last event until they have recovered. They have
// converged or recovered when they are at least 0.95 of the optimum in each later interval. An
// interval lasts 1 s, or 10 round trips without a queue if that is longer. If the last interval is
// below that level, the result is about the time until the start of that interval. The time to
// converge is measured up to the first event only.
//
// With a backlog from the start, settling does not count deliveries, because random service times
// alone would put one interval in ten below 0.95. It counts the busy time of each parallel slot of
// a worker, times the rate of the slot. On average, this product equals the delivered cost. Without
// a backlog, it counts deliveries and compares them with the actual arrivals.
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
		// able is the full capacity, even if the load is less.
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

// settled returns the time in seconds after which got stays near best: got is at least 0.95 of best
// in each later interval of span bins. Only the bins in got[from:to] count, and the time begins at
// the first of them. If there are fewer than span of them, settled returns 0.
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
