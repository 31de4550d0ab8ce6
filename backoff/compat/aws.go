//penstock:pure

package compat

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// AWS is the ExponentialJitterBackoff of aws-sdk-go-v2 in its legacy mode: U[0, 1) * 2^attempt seconds, attempt from 1.
//
// Quirk: from the first attempt above log2(Max in seconds) on it waits exactly Max, without jitter: with the default of
// 20 s from the fifth. The wait before that goes up to 2^attempt seconds, at most Max.
type AWS struct {
	Max time.Duration // 0 means 20 s
}

func (p AWS) limit() time.Duration {
	if p.Max <= 0 {
		return 20 * time.Second
	}
	return p.Max
}

// Delay returns the wait after any attempt; random is in [0, 1). The SDK begins at attempt 1.
func (p AWS) Delay(attempt int, random float64) time.Duration {
	limit := p.limit()
	if float64(attempt) > math.Trunc(math.Log2(float64(limit)/float64(time.Second))) {
		return limit
	}
	if attempt < 0 {
		return 0 // 1 << uint(attempt)
	}
	return time.Duration(javaLong(float64(float64(random*math.Exp2(float64(attempt))) * float64(time.Second))))
}

// Next implements backoff.Policy: step 0 is attempt 1.
func (p AWS) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d := p.Delay(attemptOf(s.N), uniform(src))
	return d, s.After(d), true
}

// attemptOf is n + 1, also where int has 32 bits.
func attemptOf(n uint32) int { return int(min(uint64(n)+1, math.MaxInt32)) }

// Bounds implements backoff.Bounder.
func (p AWS) Bounds(n int) (lowest, mean, highest time.Duration) {
	attempt := attemptOf(step(n))
	return ordered(p.Delay(attempt, 0), p.Delay(attempt, .5), p.Delay(attempt, largest))
}

// Validate implements backoff.Validator: the original takes everything.
func (p AWS) Validate() error { return nil }

// AWS2026 is the same policy under AWS_NEW_RETRIES_2026: U[0, 1) * min(x * 2^n, Max) with x = Base, or 1 s where the
// error was a throttle. The cap comes before the jitter, which is right.
type AWS2026 struct {
	Base      time.Duration // 0 means 50 ms
	Max       time.Duration // 0 means 20 s
	Throttled bool
}

func (p AWS2026) at(n uint32, random float64) time.Duration {
	base, limit := float64(p.Base), AWS{p.Max}.limit()
	switch {
	case p.Throttled:
		base = float64(time.Second)
	case p.Base <= 0:
		base = float64(50 * time.Millisecond)
	}
	return time.Duration(javaLong(float64(random * math.Min(base*math.Exp2(float64(n)), float64(limit)))))
}

// Next implements backoff.Policy.
func (p AWS2026) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d := p.at(s.N, uniform(src))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p AWS2026) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := step(n)
	return ordered(p.at(k, 0), p.at(k, .5), p.at(k, largest))
}

// Validate implements backoff.Validator: the original takes everything.
func (p AWS2026) Validate() error { return nil }
