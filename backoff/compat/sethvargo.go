//penstock:pure

package compat

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// SethvargoShape is how the wait grows before any wrapper.
type SethvargoShape uint8

// The shapes of github.com/sethvargo/go-retry. Its documentation says that Fibonacci waits 1, 1, 2, 3, 5; what it
// really waits is 1, 2, 3, 5, 8.
const (
	SethvargoConstant SethvargoShape = iota
	SethvargoExponential
	SethvargoFibonacci
)

// SethvargoWrapper is one wrapper around a backoff: exactly one field is set.
type SethvargoWrapper struct {
	Jitter        time.Duration // WithJitter: U[-j, j) nanoseconds more, at least 0, so that a wide one piles up on 0
	JitterPercent uint64        // WithJitterPercent: times 1 - U{-j, ..., j-1} %, whole percents; above 100 counts as 100
	FullJitter    bool          // WithFullJitter: [0, wait)
	Capped        time.Duration // WithCappedDuration: at most
	MaxRetries    *uint64       // WithMaxRetries; 0 is no retry at all
	MaxDuration   time.Duration // WithMaxDuration: the last wait is cut to what is left of it
}

// Sethvargo is a backoff of github.com/sethvargo/go-retry v0.5 with its wrappers, innermost first. It saturates at the
// largest Duration, as the original does.
//
// Quirks: the order of the wrappers decides: a cap around a jitter gathers draws on it, a jitter around a cap exceeds
// it. MaxDuration counts in the original from the construction, the operation's time included; here it counts the
// waits, State.Slept.
type Sethvargo struct {
	Shape    SethvargoShape
	Base     time.Duration // above 0
	Wrappers []SethvargoWrapper
}

// fibonacci holds 1, 2, 3, 5, 8, ... as far as they fit an int64.
var fibonacci = func() (f []int64) {
	for a, b := int64(1), int64(2); a > 0; a, b = b, a+b {
		f = append(f, a)
	}
	return f
}()

func (p Sethvargo) interval(n uint32) time.Duration {
	switch p.Shape {
	case SethvargoExponential:
		return time.Duration(doubled(int64(p.Base), n))
	case SethvargoFibonacci:
		if int64(n) >= int64(len(fibonacci)) {
			return math.MaxInt64
		}
		return time.Duration(times(int64(p.Base), fibonacci[n]))
	}
	return p.Base
}

// Next implements backoff.Policy.
func (p Sethvargo) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	for _, w := range p.Wrappers {
		if w.MaxRetries != nil && uint64(s.N) >= *w.MaxRetries || w.MaxDuration > 0 && s.Slept >= w.MaxDuration {
			return 0, s, false
		}
	}
	d := p.interval(s.N)
	for _, w := range p.Wrappers {
		d = w.apply(d, s, src)
	}
	return d, s.After(d), true
}

func (w SethvargoWrapper) apply(d time.Duration, s backoff.State, src rand.Source) time.Duration {
	switch {
	case w.Jitter > 0:
		return max(plus(d, time.Duration(below(src, 2*uint64(w.Jitter))-uint64(w.Jitter))), 0)
	case w.JitterPercent > 0:
		j := min(w.JitterPercent, 100)
		return percent(d, int64(below(src, 2*j))-int64(j))
	case w.FullJitter && d > 0:
		return time.Duration(below(src, uint64(d)))
	case w.Capped > 0:
		return min(d, w.Capped)
	case w.MaxDuration > 0:
		return min(d, w.MaxDuration-s.Slept)
	}
	return d
}

// percent returns d * (1 - top/100), at least 0.
func percent(d time.Duration, top int64) time.Duration {
	return duration(float64(float64(d)*(1-float64(top)/100)), false)
}

// Bounds implements backoff.Bounder. The mean is that of 2000 evenly spaced draws where there is one jitter, and taken
// wrapper by wrapper where there are more. What MaxDuration cuts is not counted: it depends on the waits before.
func (p Sethvargo) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := step(n)
	if p.Validate() != nil || slices.ContainsFunc(p.Wrappers, func(w SethvargoWrapper) bool {
		return w.MaxRetries != nil && uint64(k) >= *w.MaxRetries
	}) {
		return 0, 0, 0
	}
	lowest = p.interval(k)
	highest = lowest
	const cells = 2000
	values := slices.Repeat([]time.Duration{lowest}, cells)
	strides := [...]int{1, 919, 607, 1201, 1733} // with no factor in common with cells: they keep several jitters apart
	for k, w := range p.Wrappers {
		lowest, highest = w.low(lowest), w.high(highest)
		for i := range values {
			u := i * strides[k%len(strides)] % cells
			values[i] = w.apply(values[i], backoff.State{}, fixed(uint64(2*u+1)*(math.MaxUint64/(2*cells))))
		}
	}
	sum := 0.0
	for _, d := range values {
		sum += float64(d) / cells
	}
	return lowest, min(max(time.Duration(javaLong(sum)), lowest), highest), highest
}

// fixed is a source of one value.
type fixed uint64

func (f fixed) Uint64() uint64 { return uint64(f) }

func (w SethvargoWrapper) low(d time.Duration) time.Duration {
	switch {
	case w.Jitter > 0:
		return max(plus(d, -w.Jitter), 0)
	case w.JitterPercent > 0:
		return percent(d, int64(min(w.JitterPercent, 100))-1)
	case w.FullJitter, w.MaxDuration > 0:
		return 0
	case w.Capped > 0:
		return min(d, w.Capped)
	}
	return d
}

func (w SethvargoWrapper) high(d time.Duration) time.Duration {
	switch {
	case w.Jitter > 0:
		return plus(d, w.Jitter-1)
	case w.JitterPercent > 0:
		return percent(d, -int64(min(w.JitterPercent, 100)))
	case w.FullJitter && d > 0:
		return d - 1
	case w.Capped > 0:
		return min(d, w.Capped)
	case w.MaxDuration > 0:
		return min(d, w.MaxDuration)
	}
	return d
}

// Validate implements backoff.Validator: the texts of the original's panics.
func (p Sethvargo) Validate() error {
	switch {
	case p.Base > 0:
		return nil
	case p.Shape == SethvargoConstant:
		return errors.New("t must be greater than 0")
	}
	return errors.New("base must be greater than 0")
}
