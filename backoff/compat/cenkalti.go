//penstock:pure

package compat

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Cenkalti is the ExponentialBackOff of github.com/cenkalti/backoff v7, which is the same in v4 and
// v5: an interval that grows by Multiplier up to Max, and a wait uniform in [(1-Randomization)
// interval, (1+Randomization) interval].
//
// Quirks: The jitter comes after the cap, so waits reach (1+Randomization) Max. An Initial above
// Max is the first interval nevertheless. A Multiplier below 1 shrinks the interval. When the
// interval is 0, it starts over from Initial. With a Randomization above 1, some waits are negative
// with Compat, and 0 without. The original takes a wait of -1 ns for Stop, its sign to give up.
// There is no limit of attempts or of time.
//
// [CenkaltiDefaults] has the settings of NewExponentialBackOff.
type Cenkalti struct {
	Initial       time.Duration // 0 means that every wait is 0
	Max           time.Duration // 0 means that every interval is Initial
	Multiplier    float64       // 0 means that every interval is Initial
	Randomization float64       // share of the interval to each side; 0 means no jitter
	Compat        bool
}

// CenkaltiDefaults returns the settings of NewExponentialBackOff: 500 ms, times 1.5, with a jitter
// of 50 % to each side, at most 60 s.
func CenkaltiDefaults() Cenkalti {
	return Cenkalti{500 * time.Millisecond, time.Minute, 1.5, .5, false}
}

// interval returns the interval at step n, before jitter. It repeats the original's computation,
// which truncates to whole nanoseconds at each step.
func (p Cenkalti) interval(n uint32) time.Duration {
	turn := float64(p.Max) / p.Multiplier
	before, current := p.Initial, p.Initial
	for i := range min(n, maxIterations) {
		next := p.Max
		if float64(current) < turn || turn != turn {
			next = time.Duration(amd64Long(float64(float64(current) * p.Multiplier)))
		}
		switch next {
		case 0: // the next call starts over: the sequence repeats every i+1 steps
			return p.interval(n % (i + 1))
		case current:
			return current
		case before: // the values alternate
			if (n-i)%2 == 1 {
				return next
			}
			return current
		}
		before, current = current, next
	}
	return current
}

// spread returns the range from which the wait of an interval is drawn: its start and its width.
func (p Cenkalti) spread(interval time.Duration) (low, width float64) {
	delta := float64(p.Randomization * float64(interval))
	low = float64(interval) - delta
	return low, float64(float64(interval)+delta-low) + 1
}

func (p Cenkalti) at(interval time.Duration, random float64) time.Duration {
	if p.Randomization == 0 {
		return clamp(interval, p.Compat)
	}
	low, width := p.spread(interval)
	x := low + float64(random*width)
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return clamp(time.Duration(amd64Long(x)), p.Compat)
}

// Next implements backoff.Policy.
func (p Cenkalti) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	random := 0.0
	if p.Randomization != 0 {
		random = uniform(src)
	}
	d := p.at(p.interval(s.N), random)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Cenkalti) Bounds(n int) (lowest, mean, highest time.Duration) {
	interval := p.interval(step(n))
	if low, width := p.spread(interval); p.Compat && p.Randomization != 0 && wraps(low, low+width) {
		return anything()
	}
	return ordered(p.at(interval, 0), p.at(interval, .5), p.at(interval, largest))
}

// largest is the highest float below 1, the largest possible draw.
const largest = 1 - 1.0/(1<<53)

// wraps reports whether a range of floats is partly outside the range of int64. With Compat, the
// draws from such a range may have any value.
func wraps(low, high float64) bool {
	return !(low >= math.MinInt64 && high < math.MaxInt64 && high >= math.MinInt64 &&
		low < math.MaxInt64)
}

// anything returns the bounds of waits that may be any int64, because their computation overflows
// (see wraps).
func anything() (lowest, mean, highest time.Duration) { return math.MinInt64, 0, math.MaxInt64 }

// ordered puts three waits in order, for ranges that a negative setting has reversed.
func ordered(a, b, c time.Duration) (lowest, mean, highest time.Duration) {
	lowest, highest = min(a, c), max(a, c)
	return lowest, min(max(b, lowest), highest), highest
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p Cenkalti) Validate() error { return nil }
