//penstock:pure

package compat

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Pekko is BackoffSupervisor.calculateDelay of Apache Pekko 1.1 (and Akka): min * 2^n, at most Max,
// times 1 + U[0, 1) * RandomFactor. The supervisor's other rules (resets, limits) are in package
// supervise.
//
// Quirks: The jitter comes after the cap, so waits reach (1+RandomFactor) * Max. The jitter is too
// narrow to spread a crowd of clients. With Compat, an overflow removes the jitter: once Min * 2^n
// exceeds an int64 of nanoseconds, the original waits exactly Max. The jitter returns when Min *
// 2^n exceeds a float64. With a Min of 3 s, it is missing for n = 32 to 992.
//
// Next gives up if a setting is out of range, because BackoffSupervisor refuses such settings.
// Delay accepts any settings, as calculateDelay does.
type Pekko struct {
	Min          time.Duration // above 0
	Max          time.Duration // Min or more
	RandomFactor float64       // 0 to 1
	Compat       bool
}

// pekkoDuration is the kind of a product of a FiniteDuration and a Double.
type pekkoDuration uint8

const (
	pekkoFinite   pekkoDuration = iota
	pekkoInfinite               // infinite or undefined: no FiniteDuration
	pekkoThrown                 // beyond an int64 of nanoseconds
)

// pekkoTimes multiplies d by factor, like Scala's FiniteDuration. The second result reports whether
// the product is finite, infinite, or so large that Scala throws an exception.
func pekkoTimes(d time.Duration, factor float64) (time.Duration, pekkoDuration) {
	switch x := float64(float64(d) * factor); {
	case math.IsInf(factor, 0), math.IsNaN(x), math.IsInf(x, 0):
		return 0, pekkoInfinite
	case x > math.MaxInt64 || x <= math.MinInt64:
		return 0, pekkoThrown
	default:
		return time.Duration(javaRound(x)), pekkoFinite
	}
}

// interval returns the delay before jitter, and whether there is any jitter.
func (p Pekko) interval(restartCount int) (d time.Duration, jittered bool) {
	d, kind := pekkoTimes(p.Min, math.Pow(2, float64(restartCount)))
	switch {
	case kind == pekkoFinite:
		return min(d, p.Max), true
	case p.Min >= 0 && (kind == pekkoInfinite || !p.Compat):
		return p.Max, true
	}
	return p.Max, false
}

// Delay is calculateDelay(restartCount, Min, Max, RandomFactor). It accepts any settings and
// counts. random is in [0, 1).
func (p Pekko) Delay(restartCount int, random float64) time.Duration {
	d, jittered := p.interval(restartCount)
	if jittered {
		x, kind := pekkoTimes(d, 1+float64(random*p.RandomFactor))
		switch {
		case kind == pekkoFinite:
			return clamp(x, p.Compat)
		case kind == pekkoThrown && !p.Compat && p.Max > 0:
			return math.MaxInt64
		}
	}
	return clamp(p.Max, p.Compat)
}

// Next implements backoff.Policy.
func (p Pekko) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	d := p.Delay(count(s.N), uniform(src))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Pekko) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.Validate() != nil {
		return 0, 0, 0
	}
	k := count(step(n))
	low, middle, high := p.Delay(k, 0), p.Delay(k, .5), p.Delay(k, largest)
	d, jittered := p.interval(k)
	if _, kind := pekkoTimes(d, 1+p.RandomFactor); jittered && kind == pekkoThrown {
		low = min(low, p.Max)
		return low, max(low, middle), math.MaxInt64
	}
	return ordered(low, middle, high)
}

// Validate implements backoff.Validator.
func (p Pekko) Validate() error {
	switch {
	case p.Min <= 0:
		return errors.New("minBackoff must be > 0")
	case p.Max < p.Min:
		return errors.New("maxBackoff must be >= minBackoff")
	case !(p.RandomFactor >= 0 && p.RandomFactor <= 1):
		return errors.New("randomFactor must be between 0.0 and 1.0")
	}
	return nil
}
