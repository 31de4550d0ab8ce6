package compat

import (
	"math"
	v1 "math/rand"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Jpillora is the policy of github.com/jpillora/backoff v1.1.0: min * factor^n, at most max.
//
// Quirks: A field of 0 or less means its default. If Min is at or above Max, every wait is Max.
// With Jitter the wait is uniform between Min and the interval, and only then cut to Max. So the
// first wait is always exactly Min, and waits pile up on Max: with the defaults, 22 % of the
// waits at n = 7, and 90 % at n = 10. A NaN counts as Min, as on amd64.
type Jpillora struct {
	Min    time.Duration // 0 or less means 100 ms
	Max    time.Duration // 0 or less means 10 s
	Factor float64       // 0 or less means 2; below 1 the wait stays at Min
	Jitter bool
}

// ForAttempt returns the wait for the given attempt, which may be negative or have a fraction.
// random is in [0, 1), and is used only with Jitter.
func (p Jpillora) ForAttempt(attempt, random float64) time.Duration {
	low, high, factor := p.settings()
	if low >= high {
		return high
	}
	d := float64(float64(low) * math.Pow(factor, attempt))
	if p.Jitter {
		d = float64(random*float64(d-float64(low))) + float64(low)
	}
	switch {
	case d > math.MaxInt64-512:
		// The largest float64 below 2^63 is 2^63-1024. The original also compares floats.
		return high
	case d != d || d < float64(low):
		return low
	}
	return min(max(time.Duration(d), low), high)
}

func (p Jpillora) settings() (low, high time.Duration, factor float64) {
	if low = p.Min; low <= 0 {
		low = 100 * time.Millisecond
	}
	if high = p.Max; high <= 0 {
		high = 10 * time.Second
	}
	if factor = p.Factor; factor <= 0 {
		factor = 2
	}
	return low, high, factor
}

// Next implements backoff.Policy. It draws as math/rand (version 1) does. So if src is
// rand.NewSource(42).(rand.Source64) of that package, it gives exactly the waits that the original
// gives after rand.Seed(42).
func (p Jpillora) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	random := 0.0
	if p.Jitter {
		random = float64(bits64(src)&math.MaxInt64) / (1 << 63)
	}
	d := p.ForAttempt(float64(s.N), random)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Jpillora) Bounds(n int) (lowest, mean, highest time.Duration) {
	low, high, factor := p.settings()
	jittered := p.Jitter
	p.Jitter = false
	top := p.ForAttempt(float64(step(n)), 0)
	if low >= high || top <= low || !jittered {
		return top, top, top
	}
	// The draw is uniform between low and the interval before the cap. Draws above high are cut to
	// high.
	end := math.Min(float64(float64(low)*math.Pow(factor, float64(step(n)))), math.MaxFloat64)
	kept := math.Min(1, (float64(high)-float64(low))/(end-float64(low)))
	middle := kept*(float64(low)+math.Min(end, float64(high)))/2 + (1-kept)*float64(high)
	return low, min(time.Duration(javaLong(middle)), top), top
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p Jpillora) Validate() error { return nil }

// Backoff is [Counter] under the name that github.com/jpillora/backoff gives it, so that a program
// needs to change only its import.
type Backoff = Counter

// Counter is the Backoff of github.com/jpillora/backoff: the settings together with a counter of
// attempts. Duration, Attempt and Reset are safe for concurrent use. The fields must not change
// after the first call. The quirks are those of [Jpillora].
//
//	b := &compat.Counter{Min: 100 * time.Millisecond, Max: 10 * time.Second, Factor: 2, Jitter: true}
type Counter struct {
	attempt uint64 // atomic

	Factor float64       // 0 or less means 2
	Jitter bool          // whether waits are drawn between Min and the interval
	Min    time.Duration // 0 or less means 100 ms
	Max    time.Duration // 0 or less means 10 s

	// Rand draws the jitter. Nil means the global functions of math/rand, as in the original. In
	// current Go, rand.Seed has no effect. To get the waits that the original gave after
	// rand.Seed(42), set Rand to rand.New(rand.NewSource(42)). A Rand is not safe for concurrent
	// use.
	Rand *v1.Rand
}

// Duration returns the wait for the current attempt and counts it.
func (b *Counter) Duration() time.Duration {
	return b.ForAttempt(float64(atomic.AddUint64(&b.attempt, 1) - 1))
}

// ForAttempt returns the wait for any attempt, from 0, and does not change the counter.
func (b *Counter) ForAttempt(attempt float64) time.Duration {
	p := Jpillora{b.Min, b.Max, b.Factor, b.Jitter}
	if low, high, _ := p.settings(); low >= high || !b.Jitter {
		return p.ForAttempt(attempt, 0) // the original draws nothing here
	}
	if b.Rand != nil {
		return p.ForAttempt(attempt, b.Rand.Float64())
	}
	return p.ForAttempt(attempt, v1.Float64())
}

// Reset sets the counter to 0.
func (b *Counter) Reset() { atomic.StoreUint64(&b.attempt, 0) }

// Attempt returns the counter.
func (b *Counter) Attempt() float64 { return float64(atomic.LoadUint64(&b.attempt)) }

// Copy returns a Counter with the same settings that starts at 0. A plain copy of the struct would
// keep the counter.
func (b *Counter) Copy() *Counter {
	return &Counter{Factor: b.Factor, Jitter: b.Jitter, Min: b.Min, Max: b.Max, Rand: b.Rand}
}
