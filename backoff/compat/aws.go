//penstock:pure

package compat

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// AWS is the ExponentialJitterBackoff of aws-sdk-go-v2 v1.47 in its legacy mode: U[0, 1) *
// 2^attempt seconds. Attempts count from 1. [AWSDefaults] has the settings of retry.NewStandard.
//
// Quirks: When 2^attempt seconds exceed Max, the wait is exactly Max, without jitter. With a Max of
// 20 s, this begins at the fifth attempt (32 s). Earlier waits are drawn from 0 to 2^attempt
// seconds. With a Max of 0, every wait is 0.
type AWS struct {
	Max    time.Duration
	Compat bool // whether a negative Max gives negative waits, as in the original
}

// AWSDefaults returns the settings of retry.NewStandard: at most 20 s.
func AWSDefaults() AWS { return AWS{Max: 20 * time.Second} }

// Delay returns the wait after the given attempt. The SDK begins at attempt 1, but any number is
// accepted. random is in [0, 1).
func (p AWS) Delay(attempt int, random float64) time.Duration {
	if most := math.Log2(float64(p.Max) / float64(time.Second)); !(most > math.Inf(-1)) ||
		attempt > int(most) {
		return clamp(p.Max, p.Compat)
	}
	if attempt < 0 {
		return 0 // 1 << uint64(attempt)
	}
	return time.Duration(
		javaLong(float64(float64(random*math.Exp2(float64(attempt))) * float64(time.Second))))
}

// Next implements backoff.Policy: step 0 is attempt 1.
func (p AWS) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d := p.Delay(attemptOf(s.N), uniform(src))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p AWS) Bounds(n int) (lowest, mean, highest time.Duration) {
	attempt := attemptOf(step(n))
	return ordered(p.Delay(attempt, 0), p.Delay(attempt, .5), p.Delay(attempt, largest))
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p AWS) Validate() error { return nil }

// AWS2026 is the policy of aws-sdk-go-v2 v1.47 if the environment variable AWS_NEW_RETRIES_2026 is
// true: U[0, 1) * min(x * 2^n, Max). x is Base, or 1 s if the service throttled the request. Unlike
// in [AWS], the cap comes before the jitter, so waits do not pile up on it.
type AWS2026 struct {
	Base      time.Duration // 0 means 50 ms, as in the SDK
	Max       time.Duration // 0 means that every wait is 0
	Throttled bool
	Compat    bool // whether negative settings give negative waits, as in the original
}

// AWS2026Defaults returns the settings of retry.NewStandard: 50 ms, at most 20 s.
func AWS2026Defaults() AWS2026 {
	return AWS2026{Base: 50 * time.Millisecond, Max: 20 * time.Second}
}

// Delay returns the wait for the exponent n. The SDK begins at 0, but any number is accepted.
// random is in [0, 1).
func (p AWS2026) Delay(n int, random float64) time.Duration {
	base := cmp.Or(p.Base, 50*time.Millisecond)
	if p.Throttled {
		base = time.Second
	}
	seconds := float64(float64(base) / float64(time.Second) * math.Pow(2, float64(n)))
	seconds = min(seconds, float64(p.Max)/float64(time.Second))
	return duration(float64(float64(random*seconds)*float64(time.Second)), p.Compat)
}

// Next implements backoff.Policy.
func (p AWS2026) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d := p.Delay(count(s.N), uniform(src))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p AWS2026) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := count(step(n))
	low, middle, high := p.Delay(k, 0), p.Delay(k, .5), p.Delay(k, largest)
	if middle > 0 && high < 0 { // the upper draws wrap
		return anything()
	}
	return ordered(low, middle, high)
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p AWS2026) Validate() error { return nil }
