//penstock:pure

package backoff

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Walk is the policy that [Decorrelated] returns.
type Walk struct{ base, max time.Duration }

// Decorrelated is decorrelated jitter: it draws each wait from [base, 3 * the last wait], and the
// first from [base, 3 * base]. The range ends at max. A max of 0 means no cap but the largest
// Duration.
//
// A short wait makes the next wait short, too. Therefore a large number of contending clients, for
// example 190, needs more time and more calls than with full jitter. The source is M. Brooker,
// Exponential Backoff And Jitter, AWS Architecture Blog, 2015. In Brooker's version, each draw
// above max is cut to max, so that a fifth of the waits or more equal the cap.
func Decorrelated(base, max time.Duration) Walk { return Walk{base, max} }

func (p Walk) limits() (base, limit time.Duration) {
	if limit = p.max; limit <= 0 {
		limit = math.MaxInt64
	}
	return min(max(p.base, 0), limit), limit
}

// powersOf3 holds the powers of 3 that fit an int64.
var powersOf3 = func() (f [40]uint64) {
	f[0] = 1
	for i := 1; i < len(f); i++ {
		f[i] = 3 * f[i-1]
	}
	return f
}()

// highest returns the longest wait of draw n, counted from 1. For 0 it returns the base, which
// stands for the wait before the first draw.
func (p Walk) highest(n uint64) time.Duration {
	base, limit := p.limits()
	if base == 0 {
		return 0
	}
	return min(times(base, powersOf3[min(n, uint64(len(powersOf3)-1))]), limit)
}

// Next implements Policy. A last wait that this policy cannot have drawn, such as the wait of a Sum
// that contains this policy, counts as the nearest possible wait.
func (p Walk) Next(s State, src rand.Source) (time.Duration, State, bool) {
	base, limit := p.limits()
	last := base
	if s.N > 0 {
		last = min(max(s.Prev, base), p.highest(uint64(s.N)))
	}
	d := base + time.Duration(draw(src, uint64(min(times(last, 3), limit)-base)))
	return d, s.After(d), true
}

// Bounds implements Bounder. The mean is computed from the distribution of the last wait, step by
// step, within 1 %.
func (p Walk) Bounds(n int) (lowest, mean, highest time.Duration) {
	base, _ := p.limits()
	highest = p.highest(uint64(step(n)) + 1)
	return base, min(max(p.mean(step(n)), base), highest), highest
}

// cells is the number of cells that represent a distribution.
const cells = 256

// mean returns the mean wait at step n. It computes the distribution of the wait step by step:
// after a wait of x the next one is uniform in [base, h(x)] with h(x) = min(3x, max). The
// distribution is divided into cells of equal width on a logarithmic scale.
func (p Walk) mean(n uint32) time.Duration {
	base, limit := p.limits()
	if base == 0 {
		return 0
	}
	lo, hi := float64(base), float64(p.highest(uint64(n)+1))
	ratio := math.Log(hi/lo) / cells
	if ratio <= 0 {
		return base
	}
	var edges [cells + 1]float64
	for i := range edges {
		edges[i] = lo * math.Exp(ratio*float64(i))
	}
	var share, next, density [cells]float64
	share[0] = 1                     // the first wait is drawn as if the last wait was base
	for i := range min(n, 100) + 1 { // the distribution is stable long before
		clear(next[:])
		clear(density[:])
		for j := range cells {
			if share[j] == 0 {
				continue
			}
			last := (edges[j] + edges[j+1]) / 2
			if i == 0 {
				last = lo
			}
			end := min(3*last, float64(limit))
			per := share[j] / (end - lo)
			k := min(int(math.Log(end/lo)/ratio), cells-1) // the cell in which end lies
			density[k] += per
			next[k] += per * (end - edges[k])
		}
		above := 0.0
		for k := cells - 1; k >= 0; k-- {
			next[k] += above * (edges[k+1] - edges[k])
			above += density[k]
		}
		share = next
	}
	sum := 0.0
	for j := range cells {
		sum += share[j] * (edges[j] + edges[j+1]) / 2
	}
	return scale(1, sum)
}

// Validate implements Validator.
func (p Walk) Validate() error { return checkCapped(p.base, p.max) }

// String returns the policy in the form that Parse reads.
func (p Walk) String() string { return "decorrelated" + cappedSpec(p.base, p.max) }

// Smooth is the policy that [DecorrelatedV2] returns.
type Smooth struct {
	base, max time.Duration
	// held is the step at which the highest wait reaches the cap. Later steps draw like this one.
	held uint32
}

// DecorrelatedV2 is the smoother decorrelated jitter that Polly uses (G. Lucas,
// Polly.Contrib.WaitAndRetry, DecorrelatedJitterBackoffV2). The median waits are about base * 0.9,
// 1.1, 2, 4, 8. A max of 0 means no cap but the largest Duration.
//
// The wait at step n is (x(t) - x(s)) * base / 1.4, with x(t) = 2^t tanh(sqrt(4t)) and t = n + U. U
// is uniform in [0, 1). s is the t of the previous step, and 0 at step 0. The waits are computed in
// floats. Polly cuts each draw above max to max. Here the policy stops growing at the first step
// with a longest wait of max or more, and repeats each draw above max.
func DecorrelatedV2(base, max time.Duration) Smooth {
	return Smooth{base: base, max: max}.hold()
}

// hold sets the step at which the highest wait reaches the cap.
func (p Smooth) hold() Smooth {
	base, limit := p.limits()
	if base == 0 {
		return p
	}
	// The highest wait is about base * 2^held: begin the search below that.
	p.held = uint32(max(bits.Len64(uint64(limit/base))-3, 0))
	for p.wait(float64(p.held)+1, float64(p.held)-1) < limit {
		p.held++
	}
	return p
}

func (p Smooth) limits() (base, limit time.Duration) { return Walk{p.base, p.max}.limits() }

// curve is x(t), and 0 for a negative t.
func curve(t float64) float64 {
	if t <= 0 {
		return 0
	}
	return math.Exp2(t) * math.Tanh(math.Sqrt(4*t))
}

func (p Smooth) wait(t, before float64) time.Duration {
	base, _ := p.limits()
	return scale(base, (curve(t)-curve(before))/1.4)
}

// Next implements Policy. State.Step keeps the draw U, as a share of 2^32.
func (p Smooth) Next(s State, src rand.Source) (time.Duration, State, bool) {
	_, limit := p.limits()
	n := float64(min(s.N, p.held))
	before := 0.0
	if s.N > 0 {
		before = n - 1 + float64(s.Step)/(1<<32)
	}
	var u uint32
	d := limit
	for range 100 { // mostly a quarter of the draws or more is below the cap, so this ends soon
		u = uint32(bits64(src) >> 32)
		if d = p.wait(n+float64(u)/(1<<32), before); d <= limit {
			break
		}
	}
	d = min(d, limit)
	s = s.After(d)
	s.Step = u
	return d, s, true
}

// Bounds implements Bounder. The mean is the integral over this draw and the previous one.
func (p Smooth) Bounds(n int) (lowest, mean, highest time.Duration) {
	_, limit := p.limits()
	k := float64(min(step(n), p.held))
	if p.base <= 0 {
		return 0, 0, 0
	}
	var now, before [cells]float64
	for i := range cells {
		now[i] = curve(k + (float64(i)+.5)/cells)
		if n > 0 {
			before[i] = curve(k - 1 + (float64(i)+.5)/cells)
		}
	}
	base, _ := p.limits()
	unit, sum := float64(base)/1.4, 0.0
	for _, x := range before {
		inner, kept := 0.0, 0.0
		for _, y := range now {
			if d := (y - x) * unit; d <= float64(limit) {
				inner, kept = inner+d, kept+1
			}
		}
		if kept > 0 {
			sum += inner / kept
		}
	}
	highest = min(p.wait(k+1, k-1), limit)
	// The lowest is 0 because the previous draw may have been the highest of its step.
	return 0, min(scale(1, sum/cells), highest), highest
}

// Validate implements Validator.
func (p Smooth) Validate() error { return checkCapped(p.base, p.max) }

// String returns the policy in the form that Parse reads.
func (p Smooth) String() string { return "decorrelated_v2" + cappedSpec(p.base, p.max) }
