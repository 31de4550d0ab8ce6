//penstock:pure

package compat

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Pekko is BackoffSupervisor.calculateDelay of Apache Pekko 1.1 (and Akka): min * 2^n, at most Max, times 1 + U[0, 1) *
// RandomFactor. The supervisor's other rules (resets, limits) are in package supervise.
//
// Quirks: the jitter comes after the cap, so that waits go up to (1+RandomFactor) Max; of all the formulas this jitter
// is the narrowest, too narrow to part a crowd. Once Min * 2^n is beyond an int64 of nanoseconds the original throws
// inside, catches, and waits exactly Max without jitter, until 2^n is beyond a float64 and the jitter is back (3 s: n =
// 32 to 992). That loss is an overflow: only with Compat.
type Pekko struct {
	Min          time.Duration // above 0
	Max          time.Duration // Min or more
	RandomFactor float64       // 0 to 1
	Compat       bool
}

// interval returns the delay before jitter; false: the original has overflowed, and the jitter is lost.
func (p Pekko) interval(n uint32) (float64, bool) {
	x := float64(p.Min) * math.Exp2(float64(n))
	if x > math.MaxInt64 && !math.IsInf(x, 1) {
		return float64(p.Max), false
	}
	return math.Min(float64(p.Max), math.Floor(x+.5)), true
}

func (p Pekko) at(n uint32, random float64) time.Duration {
	d, jittered := p.interval(n)
	if !jittered && p.Compat {
		return p.Max
	}
	x := float64(d * (1 + float64(random*p.RandomFactor)))
	if x >= math.MaxInt64 {
		if p.Compat {
			return p.Max // the product throws too
		}
		return math.MaxInt64
	}
	return time.Duration(javaLong(math.Floor(x + .5)))
}

// Next implements backoff.Policy.
func (p Pekko) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	d := p.at(s.N, uniform(src))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Pekko) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.Validate() != nil {
		return 0, 0, 0
	}
	k := step(n)
	return ordered(p.at(k, 0), p.at(k, .5), p.at(k, largest))
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
