//penstock:pure

package compat

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Resilience4j is an IntervalFunction of resilience4j 2.3: the interval is multiplied and truncated to whole
// milliseconds step by step, drawn from -Randomization to +Randomization of itself, and then cut to Max. A Multiplier of
// 1 is of, or ofRandomized.
//
// Quirks: an interval of 1 ms times 1.5 stays 1 ms for ever; a Multiplier below 1 shrinks it to 0; the cap comes after
// the jitter, so that the draws pile up on it and at last all lie there; a drawn wait is at least 1 ms. Beyond an int64
// of milliseconds it saturates, as Java's conversion does.
type Resilience4j struct {
	Initial       time.Duration // 1 ms or more; whole milliseconds count
	Multiplier    float64
	Randomization float64       // 0 to 1; used with Random
	Random        bool          // the random functions: also with a Randomization of 0 they give at least 1 ms
	Max           time.Duration // 1 ms or more; used with Capped
	Capped        bool
}

// Delay returns the wait after any attempt, from 1; random is in [0, 1). It refuses what Validate refuses, and an
// attempt below 1.
func (p Resilience4j) Delay(attempt int, random float64) (time.Duration, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	if attempt < 1 {
		//lint:ignore ST1005 the original's text
		return 0, fmt.Errorf("Illegal argument attempt: %d", attempt)
	}
	return p.at(uint32(min(attempt-1, maxIterations)), random), nil
}

func (p Resilience4j) at(n uint32, random float64) time.Duration {
	return p.draw(p.interval(n), random)
}

// interval repeats the original's steps, in milliseconds.
func (p Resilience4j) interval(n uint32) int64 {
	x := p.Initial.Milliseconds()
	for range min(n, maxIterations) {
		next := javaLong(float64(float64(x) * p.Multiplier))
		if next == x {
			break
		}
		x = next
	}
	return x
}

func (p Resilience4j) draw(x int64, random float64) time.Duration {
	if p.Random {
		delta := float64(p.Randomization * float64(x))
		low, high := float64(x)-delta, float64(x)+delta
		x = max(javaLong(low+float64(random*(high-low+1))), 1)
	}
	if p.Capped {
		x = min(x, p.Max.Milliseconds())
	}
	return millis(max(x, 0))
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

// middle is the mean of a wait that depends on one uniform draw, from 2000 evenly spaced ones.
func middle(at func(u float64) time.Duration) time.Duration {
	const cells = 2000
	sum := 0.0
	for i := range cells {
		sum += float64(at((float64(i) + .5) / cells))
	}
	return time.Duration(javaLong(sum / cells))
}

// Validate implements backoff.Validator: the original's errors.
func (p Resilience4j) Validate() error {
	if p.Capped && p.Max < time.Millisecond {
		return intervalError(p.Max)
	}
	if p.Initial < time.Millisecond {
		return intervalError(p.Initial)
	}
	if p.Random && (p.Randomization < 0 || p.Randomization > 1) {
		//lint:ignore ST1005 the original's text
		return fmt.Errorf("Illegal argument randomizationFactor: %s",
			strconv.FormatFloat(p.Randomization, 'f', -1, 64))
	}
	return nil
}

func intervalError(d time.Duration) error {
	//lint:ignore ST1005 the original's text
	return fmt.Errorf("Illegal argument interval: %d millis is less than 1",
		d.Milliseconds())
}
