//penstock:pure

package compat

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// GRPC is the connection backoff of grpc-go v1.85: base * multiplier^n, at most Max, times a random
// factor from 1 - Jitter to 1 + Jitter.
//
// Quirks: The first wait is exactly Base, even if Base is above Max, and has no jitter. The jitter
// comes after the cap, so waits go up to (1+Jitter) * Max. A wait that is NaN, or exceeds an int64
// of nanoseconds, wraps (Compat only).
//
// [GRPCDefaults] has the settings of the connection-backoff specification.
type GRPC struct {
	Base       time.Duration // 0 means that every wait is 0
	Multiplier float64       // 0 means that only the first wait is not 0
	Jitter     float64       // share of the interval to each side; 0 means none
	Max        time.Duration // 0 means one wait of Base, and then waits of 0
	Compat     bool
}

// GRPCDefaults returns backoff.DefaultConfig of grpc-go, the settings of the connection-backoff
// specification: 1 s, times 1.6, with a jitter of 20 % to each side, at most 120 s.
func GRPCDefaults() GRPC { return GRPC{time.Second, 1.6, .2, 2 * time.Minute, false} }

func (p GRPC) interval(n uint32) float64 {
	limit := float64(p.Max)
	return min(limit, repeat(float64(p.Base), n, func(x float64) float64 {
		if x < limit {
			return float64(x * p.Multiplier)
		}
		return x
	}))
}

// Delay returns the wait after the given number of retries. Any number is accepted. The wait has
// jitter unless the number is 0. random is in [0, 1).
func (p GRPC) Delay(retries int, random float64) time.Duration {
	if retries == 0 {
		return clamp(p.Base, p.Compat)
	}
	x := p.interval(step(retries))
	x = float64(x * (1 + float64(p.Jitter*(random*2-1))))
	if x < 0 {
		return 0
	}
	return duration(x, p.Compat)
}

// Next implements backoff.Policy.
func (p GRPC) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	random := 0.0
	if s.N > 0 {
		random = uniform(src)
	}
	d := p.Delay(count(s.N), random)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p GRPC) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := count(step(n))
	if x := p.interval(step(n)); p.Compat && k > 0 && wraps(x*(1-p.Jitter), x*(1+p.Jitter)) {
		return anything()
	}
	return ordered(p.Delay(k, 0), p.Delay(k, .5), p.Delay(k, largest))
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p GRPC) Validate() error { return nil }
