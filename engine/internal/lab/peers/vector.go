//penstock:pure

package peers

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// VectorARC is Vector's adaptive request concurrency. Zero fields mean Vector's defaults. Its limit
// is updated at intervals. An interval is as long as the moving mean of the round trips.
//
// The limit grows by one if three conditions hold: it was reached, no attempt timed out or
// failed, and the mean round trip of the interval is not above the moving mean. The limit is
// multiplied by Decrease and rounded down in each of two cases: an attempt timed out or failed,
// or the mean of the interval is at least 2.5 standard deviations above the moving mean. The limit
// stays between 1 and Max.
type VectorARC struct {
	Initial, Max int     // in batches; 0 means 1 and 200
	Decrease     float64 // factor; 0 means 0.9
}

// Name returns "vector_arc".
func (VectorARC) Name() string { return "vector_arc" }

// Validate returns an error if a field is out of range.
func (v VectorARC) Validate() error {
	if v.Initial < 0 || v.Max < 0 || v.Decrease < 0 || v.Decrease >= 1 {
		return fmt.Errorf("vector_arc: initial %d, max %d, decrease %g: "+
			"want positive ones and a ratio below 1", v.Initial, v.Max,
			v.Decrease)
	}
	return nil
}

// Sends marks VectorARC as an algorithm with windows that must be notified of every attempt.
func (VectorARC) Sends() {}

// New returns a window for a worker.
func (v VectorARC) New() window.Window {
	v.Initial, v.Max = cmp.Or(v.Initial, 1), cmp.Or(v.Max, 200)
	v.Decrease = cmp.Or(v.Decrease, 0.9)
	return &vectorARC{cfg: v, limit: v.Initial}
}

const (
	arcAlpha     = 0.4 // weight of the newest interval in the moving mean and variance
	arcDeviation = 2.5
)

type vectorARC struct {
	simple
	cfg            VectorARC
	limit          int
	n              int
	sum            float64 // sum of the interval's successful round trips in seconds
	known          bool
	mean, variance float64
	next           time.Duration
	pushed         bool
	reached        bool
}

func (v *vectorARC) Limit() float64 { return float64(v.limit) }

// Sent notes whether the in-flight attempts have reached the limit. If they never do in an
// interval, the limit does not grow.
func (v *vectorARC) Sent(inFlight int) { v.reached = v.reached || inFlight >= v.limit }

func (v *vectorARC) OnSample(s window.Sample) {
	v.sum += s.RoundTrip.Seconds()
	v.n++
	v.adjust(s.Now)
}

func (v *vectorARC) OnTimeout(now time.Duration, _ float64) { v.pushed = true; v.adjust(now) }
func (v *vectorARC) OnNack(now time.Duration, _ float64)    { v.pushed = true; v.adjust(now) }

// Reset does nothing, because Vector does not detect restarts of a worker.
func (v *vectorARC) Reset(time.Duration) {}

func (v *vectorARC) adjust(now time.Duration) {
	current, some := 0.0, v.n > 0
	if some {
		current = v.sum / float64(v.n)
	}
	if !v.known {
		if some {
			v.known, v.mean = true, current
			v.begin(now)
		}
		return
	}
	if now < v.next {
		return
	}
	switch {
	case v.limit < v.cfg.Max && v.reached && !v.pushed && some && current <= v.mean*(1+1e-12):
		v.limit++
		v.state = window.Normal
	case v.limit > 1 && (v.pushed || some && current >= v.mean+arcDeviation*math.Sqrt(v.variance)):
		v.limit = max(1, int(float64(v.limit)*v.cfg.Decrease))
		v.state = window.Slow
	}
	if some {
		d := current - v.mean
		v.mean += arcAlpha * d
		v.variance = (1 - arcAlpha) * (v.variance + arcAlpha*d*d)
	}
	v.begin(now)
}

func (v *vectorARC) begin(now time.Duration) {
	v.next = now + time.Duration(v.mean*float64(time.Second))
	v.n, v.sum, v.pushed, v.reached = 0, 0, false, false
}

func (v *vectorARC) Reason() string {
	return fmt.Sprintf("moving round trip %.4g s, standard deviation %.3g s", v.mean,
		math.Sqrt(v.variance))
}
