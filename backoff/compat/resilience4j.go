//penstock:pure

package compat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Resilience4j is an IntervalFunction of resilience4j 2.3. At each step, the interval is multiplied
// by Multiplier and truncated to whole milliseconds. The wait is drawn from (1 - Randomization) to
// (1 + Randomization) times the interval, and then cut to Max. With a Multiplier of 1 it is
// IntervalFunction.of, or IntervalFunction.ofRandomized if Random is set. [Resilience4jDefaults]
// has the settings of ofExponentialBackoff.
//
// Quirks: An interval of 1 ms times 1.5 stays 1 ms. A Multiplier below 1 shrinks the interval to 0.
// The cap comes after the jitter, so waits pile up on it. When the interval is far above Max, all
// waits equal Max. A drawn wait is at least 1 ms, or 0 with a Randomization of NaN. Beyond an int64
// of milliseconds the wait is the largest long, as in Java's conversion.
type Resilience4j struct {
	// Initial is the first interval, at least 1 ms. Only whole milliseconds count. The largest
	// Duration means Java's largest long.
	Initial       time.Duration
	Multiplier    float64
	Randomization float64 // 0 to 1; used with Random
	// Random selects the original's functions with jitter, such as ofExponentialRandomBackoff. They
	// return at least 1 ms, even with a Randomization of 0.
	Random bool
	Max    time.Duration // 1 ms or more; used with Capped
	Capped bool
	Compat bool // whether a negative Multiplier gives negative waits, as in the original
}

// Resilience4jDefaults returns the settings of IntervalFunction.ofExponentialBackoff(): 500 ms,
// times 1.5, no cap. Randomization is 0.5, as in ofExponentialRandomBackoff(), and is used only if
// Random is set.
func Resilience4jDefaults() Resilience4j {
	return Resilience4j{Initial: 500 * time.Millisecond, Multiplier: 1.5, Randomization: .5}
}

// Delay returns the wait after the given attempt, counted from 1. random is in [0, 1). Delay fails
// if Validate does, or if attempt is below 1.
func (p Resilience4j) Delay(attempt int, random float64) (time.Duration, error) {
	err := p.Validate()
	// The constructors with a Max check Initial only when they are called with an attempt.
	if attempt < 1 &&
		(err == nil || p.Capped && p.Max >= time.Millisecond && p.randomization() == nil) {
		//lint:ignore ST1005 the original's text
		return 0, fmt.Errorf("Illegal argument attempt: %d", attempt)
	}
	if err != nil {
		return 0, err
	}
	return p.at(uint32(min(int64(attempt)-1, math.MaxUint32)), random), nil
}

func (p Resilience4j) at(n uint32, random float64) time.Duration {
	return p.draw(p.interval(n), random)
}

// interval returns the interval at step n in milliseconds, before jitter. It repeats the original's
// computation, which truncates at each step.
func (p Resilience4j) interval(n uint32) int64 {
	return repeat(javaMillis(p.Initial), n, func(x int64) int64 {
		return javaLong(float64(float64(x) * p.Multiplier))
	})
}

func (p Resilience4j) draw(x int64, random float64) time.Duration {
	if p.Random {
		delta := float64(p.Randomization * float64(x))
		low, high := float64(x)-delta, float64(x)+delta
		x = javaLong(math.Max(low+float64(random*(high-low+1)), 1))
	}
	if p.Capped {
		x = min(x, javaMillis(p.Max))
	}
	return clamp(millis(x), p.Compat)
}

// Next implements backoff.Policy: step 0 is attempt 1.
func (p Resilience4j) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	random := 0.0
	if p.Random {
		random = uniform(src)
	}
	d := p.at(s.N, random)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Resilience4j) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.Validate() != nil {
		return 0, 0, 0
	}
	x := p.interval(step(n))
	at := func(u float64) time.Duration { return p.draw(x, u) }
	return ordered(at(0), middle(at), at(largest))
}

// middle computes the mean of a wait that depends on one uniform draw, from 2000 evenly spaced
// draws.
func middle(at func(u float64) time.Duration) time.Duration {
	const cells = 2000
	sum := 0.0
	for i := range cells {
		sum += float64(at((float64(i) + .5) / cells))
	}
	return time.Duration(javaLong(sum / cells))
}

// Validate implements backoff.Validator. It returns the original's errors, in the original's order.
func (p Resilience4j) Validate() error {
	if p.Capped && p.Max < time.Millisecond {
		return intervalError(p.Max)
	}
	if err := p.randomization(); err != nil && (p.Capped || p.Initial >= time.Millisecond) {
		return err
	}
	if p.Initial < time.Millisecond {
		return intervalError(p.Initial)
	}
	return nil
}

func (p Resilience4j) randomization() error {
	if p.Random && (p.Randomization < 0 || p.Randomization > 1) {
		//lint:ignore ST1005 the original's text
		return fmt.Errorf("Illegal argument randomizationFactor: %s", javaDouble(p.Randomization))
	}
	return nil
}

func intervalError(d time.Duration) error {
	//lint:ignore ST1005 the original's text
	return fmt.Errorf("Illegal argument interval: %d millis is less than 1",
		javaMillis(d))
}
