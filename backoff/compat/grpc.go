//penstock:pure

package compat

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// GRPC is the connection backoff of grpc-go v1.85: base * multiplier^n, at most Max, times 1 +- Jitter.
//
// Quirks: the first wait is Base exactly, above Max too, and has no jitter; the jitter comes after the cap, so that
// waits go up to (1+Jitter) Max.
//
// [GRPCDefaults] has the settings of the connection-backoff specification: 1 s, x 1.6, +-20 %, 120 s.
type GRPC struct {
	Base       time.Duration
	Multiplier float64
	Jitter     float64
	Max        time.Duration
	Compat     bool // of a wait beyond an int64 the lowest int64, as on amd64; else the highest
}

// GRPCDefaults is backoff.DefaultConfig of grpc-go.
var GRPCDefaults = GRPC{time.Second, 1.6, .2, 2 * time.Minute, false}

func (p GRPC) interval(n uint32) float64 {
	x, limit := float64(p.Base), float64(p.Max)
	for range min(n, maxIterations) {
		next := float64(x * p.Multiplier)
		if !(x < limit) || next == x {
			break
		}
		x = next
	}
	if x > limit {
		return limit
	}
	return x
}

func (p GRPC) at(n uint32, random float64) time.Duration {
	if n == 0 {
		if p.Compat {
			return p.Base
		}
		return max(p.Base, 0)
	}
	x := p.interval(n)
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
	d := p.at(s.N, random)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p GRPC) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := step(n)
	if x := p.interval(k); p.Compat && k > 0 && wraps(x*(1-p.Jitter), x*(1+p.Jitter)) {
		return anything()
	}
	return ordered(p.at(k, 0), p.at(k, .5), p.at(k, largest))
}

// Validate implements backoff.Validator: the original takes everything.
func (p GRPC) Validate() error { return nil }
