//penstock:pure

package backoff

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Fixed returns a policy that waits d each time.
func Fixed(d time.Duration) Ladder { return newLadder(fixedGrowth(d), jitter{}, 0) }

// Linear returns a policy that waits d, d+increment, d+2*increment, ... at most max. A max of 0
// means no cap but the largest Duration. Do not use it if many clients contend for a resource: the
// waits must then grow faster than linearly.
func Linear(d, increment, max time.Duration) Ladder {
	return newLadder(linearGrowth{d, increment}, jitter{}, max)
}

// Polynomial returns a policy that waits base * (n+1)^degree at step n, counted from 0, and at most
// max. A max of 0 means no cap but the largest Duration. A whole degree is computed exactly, in
// integers. A degree that is not above 0 counts as 0. If many clients contend for a resource, use
// degree 2: see [Recommended].
func Polynomial(base time.Duration, degree float64, max time.Duration) Ladder {
	return newLadder(polynomialGrowth{base, degree}, jitter{}, max)
}

// Fibonacci returns a policy that waits 0, unit, unit, 2 unit, 3 unit, 5 unit, ... at most max. A
// max of 0 means no cap but the largest Duration.
func Fibonacci(unit, max time.Duration) Ladder {
	return newLadder(fibonacciGrowth(unit), jitter{}, max)
}

type fixedGrowth time.Duration

func (g fixedGrowth) interval(uint32) (time.Duration, bool) {
	return max(time.Duration(g), 0), true
}
func (g fixedGrowth) constantFrom(uint32) bool { return true }
func (g fixedGrowth) spec() string             { return "fixed delay=" + time.Duration(g).String() }
func (g fixedGrowth) validate(max time.Duration) error {
	return checkBase("delay", time.Duration(g), max)
}

type linearGrowth struct{ first, increment time.Duration }

func (g linearGrowth) interval(n uint32) (time.Duration, bool) {
	return plus(max(g.first, 0), times(max(g.increment, 0), uint64(n))), true
}

func (g linearGrowth) constantFrom(n uint32) bool {
	d, _ := g.interval(n)
	return g.increment <= 0 || d == math.MaxInt64
}

func (g linearGrowth) validate(max time.Duration) error {
	if g.increment < 0 {
		return fmt.Errorf("increment %v is negative", g.increment)
	}
	return checkBase("base", g.first, max)
}

func (g linearGrowth) spec() string {
	return "linear base=" + g.first.String() + " increment=" + g.increment.String()
}

type polynomialGrowth struct {
	base   time.Duration
	degree float64
}

func (g polynomialGrowth) interval(n uint32) (time.Duration, bool) {
	base, k := max(g.base, 0), uint64(n)+1
	switch {
	case !(g.degree > 0) || base == 0 || k == 1:
		return base, true
	case g.degree < 64 && g.degree == math.Trunc(g.degree):
		d := base
		for range int(g.degree) {
			d = times(d, k)
		}
		return d, true
	}
	return scale(base, math.Pow(float64(k), g.degree)), true
}

func (g polynomialGrowth) constantFrom(n uint32) bool {
	d, _ := g.interval(n)
	return g.base <= 0 || !(g.degree > 0) || d == math.MaxInt64
}

func (g polynomialGrowth) validate(max time.Duration) error {
	if !(g.degree >= 0) || math.IsInf(g.degree, 1) {
		return fmt.Errorf("degree %v: want 0 or more, and finite", g.degree)
	}
	return checkBase("base", g.base, max)
}

func (g polynomialGrowth) spec() string {
	return "polynomial base=" + g.base.String() + " degree=" + number(g.degree)
}

type fibonacciGrowth time.Duration

// fibonacci holds the Fibonacci numbers that fit an int64: the 93rd does not.
var fibonacci = func() (f [93]uint64) {
	f[1] = 1
	for i := 2; i < len(f); i++ {
		f[i] = f[i-1] + f[i-2]
	}
	return f
}()

func (g fibonacciGrowth) interval(n uint32) (time.Duration, bool) {
	unit := max(time.Duration(g), 0)
	switch {
	case unit == 0:
		return 0, true
	case int64(n) < int64(len(fibonacci)):
		return times(unit, fibonacci[n]), true
	}
	return math.MaxInt64, true
}

func (g fibonacciGrowth) constantFrom(n uint32) bool {
	d, _ := g.interval(n)
	return g <= 0 || d == math.MaxInt64
}

func (g fibonacciGrowth) validate(max time.Duration) error {
	return checkBase("unit", time.Duration(g), max)
}

func (g fibonacciGrowth) spec() string { return "fibonacci unit=" + time.Duration(g).String() }

// Validate implements Validator. The error names the invalid setting.
func (l Ladder) Validate() error {
	if l.p == nil {
		return nil
	}
	return l.p.invalid
}

// String returns the policy in the form that Parse reads.
func (l Ladder) String() string {
	if l.p == nil {
		return "fixed delay=0s"
	}
	spec := l.p.growth.spec()
	if l.p.max != 0 {
		spec += " max=" + l.p.max.String()
	}
	if _, ok := l.p.growth.(recommendedGrowth); ok { // full jitter and a cap are its defaults
		if l.p.max == 0 {
			spec += " max=none"
		}
		switch l.p.jitter.mode {
		case none:
			return spec + " jitter=none"
		case full:
			return spec
		}
	}
	return spec + l.p.jitter.spec()
}

// checkBase returns an error if d, the setting with the given name, is negative or above max.
func checkBase(name string, d, max time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s %v is negative", name, d)
	}
	if d > max {
		return fmt.Errorf("max %v is below %s %v", max, name, d)
	}
	return nil
}

// number formats a float so that it parses back to the same value.
func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// checkCapped validates a policy that has a base and a cap.
func checkCapped(base, limit time.Duration) error {
	if limit < 0 {
		return fmt.Errorf("max %v is negative; 0 means no cap", limit)
	}
	if limit == 0 {
		limit = math.MaxInt64
	}
	return checkBase("base", base, limit)
}

// cappedSpec returns a base and a cap in the form that Parse reads.
func cappedSpec(base, limit time.Duration) string {
	spec := " base=" + base.String()
	if limit != 0 {
		spec += " max=" + limit.String()
	}
	return spec
}
