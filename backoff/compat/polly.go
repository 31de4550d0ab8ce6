//penstock:pure

package compat

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// PollyType is Polly's DelayBackoffType.
type PollyType uint8

// The types of Polly's retry strategy.
const (
	PollyConstant    PollyType = iota // Delay each time
	PollyLinear                       // (n+1) * Delay
	PollyExponential                  // 2^n * Delay; with jitter DecorrelatedJitterBackoffV2
)

// String returns constant, linear or exponential.
func (t PollyType) String() string {
	return name([]string{"constant", "linear", "exponential"}, int(t))
}

// Polly is the retry strategy of Polly v8. With Jitter, a constant or linear delay is multiplied by
// a random factor from 0.75 to 1.25, and the exponential delay is [backoff.DecorrelatedV2].
//
// Quirk: Max comes after the draw, so that waits pile up on it.
//
// [PollyDefaults] has the settings of RetryStrategyOptions.
type Polly struct {
	Type       PollyType
	Delay      time.Duration // 0 means that every wait is 0
	Max        time.Duration // 0 means none, which is null in Polly
	Jitter     bool
	MaxRetries int // 1 or more
}

// PollyDefaults returns the settings of RetryStrategyOptions: three retries, 2 s each time, without
// jitter.
func PollyDefaults() Polly { return Polly{Delay: 2 * time.Second, MaxRetries: 3} }

func (p Polly) settings() (delay, limit time.Duration, retries uint32) {
	limit = cmp.Or(p.Max, math.MaxInt64)
	return max(p.Delay, 0), max(limit, 0), step(p.MaxRetries)
}

// base returns the delay at step n, before jitter and cap.
func (p Polly) base(n uint32) time.Duration {
	delay, _, _ := p.settings()
	switch p.Type {
	case PollyLinear:
		return scaled(int64(n)+1, delay)
	case PollyExponential:
		return doubled(delay, n)
	}
	return delay
}

// Next implements backoff.Policy.
func (p Polly) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	delay, limit, retries := p.settings()
	if p.Validate() != nil || s.N >= retries {
		return 0, s, false
	}
	if p.Jitter && p.Type == PollyExponential {
		d, next, _ := backoff.DecorrelatedV2(delay, 0).Next(s, src)
		d = min(d, limit)
		s = s.After(d)
		s.Step = next.Step
		return d, s, true
	}
	d := p.base(s.N)
	if p.Jitter {
		d = duration(float64(float64(d)*(.75+float64(.5*uniform(src)))), false)
	}
	d = min(d, limit)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Polly) Bounds(n int) (lowest, mean, highest time.Duration) {
	delay, limit, retries := p.settings()
	if p.Validate() != nil || step(n) >= retries {
		return 0, 0, 0
	}
	if p.Jitter && p.Type == PollyExponential {
		lowest, mean, highest = backoff.DecorrelatedV2(delay, 0).Bounds(n)
		return min(lowest, limit), min(mean, limit), min(highest, limit)
	}
	d := p.base(step(n))
	if !p.Jitter {
		d = min(d, limit)
		return d, d, d
	}
	at := func(u float64) time.Duration {
		return min(duration(float64(d)*(.75+.5*u), false), limit)
	}
	return ordered(at(0), middle(at), at(1))
}

// Validate implements backoff.Validator.
func (p Polly) Validate() error {
	switch {
	case p.Delay < 0 || p.Max < 0:
		//lint:ignore ST1005 as Polly words it
		return errors.New("The delay and its maximum must not be negative")
	case p.MaxRetries < 1:
		//lint:ignore ST1005 as Polly words it
		return errors.New("The field MaxRetryAttempts must be between 1 and 2147483647")
	}
	return nil
}
