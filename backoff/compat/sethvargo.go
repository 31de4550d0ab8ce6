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

// SethvargoShape is the growth of the wait before any wrapper.
type SethvargoShape uint8

// The shapes of github.com/sethvargo/go-retry. According to its documentation, Fibonacci waits 1,
// 1, 2, 3, 5. In fact, it waits 1, 2, 3, 5, 8.
const (
	SethvargoConstant SethvargoShape = iota
	SethvargoExponential
	SethvargoFibonacci
)

// String returns constant, exponential or fibonacci.
func (s SethvargoShape) String() string {
	return name([]string{"constant", "exponential", "fibonacci"}, int(s))
}

// SethvargoWrapper is one wrapper around a backoff, made by [SethvargoJitter],
// [SethvargoJitterPercent], [SethvargoFullJitter], [SethvargoCapped], [SethvargoMaxRetries] or
// [SethvargoMaxDuration]. The zero value changes nothing.
type SethvargoWrapper struct {
	kind    sethvargoKind
	d       time.Duration // the range of a jitter, a cap or a maximum
	percent uint64        // 1 to 100
	retries uint64
}

type sethvargoKind uint8

const (
	sethvargoNone sethvargoKind = iota
	sethvargoJitter
	sethvargoPercent
	sethvargoFull
	sethvargoCapped
	sethvargoRetries
	sethvargoDuration
)

// SethvargoJitter is WithJitter: it adds a time drawn from [-d, d) to the wait. The result is at
// least 0, so that with a large d many waits are 0. A d of 0 or less changes nothing.
func SethvargoJitter(d time.Duration) SethvargoWrapper {
	if d <= 0 {
		return SethvargoWrapper{}
	}
	return SethvargoWrapper{kind: sethvargoJitter, d: d}
}

// SethvargoJitterPercent is WithJitterPercent: it multiplies the wait by (100 - k)/100, with k
// drawn from -percent to percent-1. A percent above 100 counts as 100, and 0 changes nothing.
func SethvargoJitterPercent(percent uint64) SethvargoWrapper {
	if percent == 0 {
		return SethvargoWrapper{}
	}
	return SethvargoWrapper{kind: sethvargoPercent, percent: min(percent, 100)}
}

// SethvargoFullJitter is WithFullJitter: uniform in [0, wait).
func SethvargoFullJitter() SethvargoWrapper { return SethvargoWrapper{kind: sethvargoFull} }

// SethvargoCapped is WithCappedDuration: each wait is at most limit. A limit of zero makes every
// wait 0.
func SethvargoCapped(limit time.Duration) SethvargoWrapper {
	return SethvargoWrapper{kind: sethvargoCapped, d: limit}
}

// SethvargoMaxRetries is WithMaxRetries: it gives up after the given number of retries. Zero allows
// no retry.
func SethvargoMaxRetries(retries uint64) SethvargoWrapper {
	return SethvargoWrapper{kind: sethvargoRetries, retries: retries}
}

// SethvargoMaxDuration is WithMaxDuration: it gives up after limit, and cuts the last wait to the
// time that is left. Zero or less allows no retry.
func SethvargoMaxDuration(limit time.Duration) SethvargoWrapper {
	return SethvargoWrapper{kind: sethvargoDuration, d: limit}
}

// ended reports whether w gives up at s.
func (w SethvargoWrapper) ended(s backoff.State) bool {
	return w.kind == sethvargoRetries && uint64(s.N) >= w.retries || w.kind == sethvargoDuration &&
		s.Slept >= w.d
}

// Sethvargo is a backoff of github.com/sethvargo/go-retry v0.5 with its wrappers, innermost first.
// A wait that overflows becomes the largest Duration, as in the original.
//
// Quirks: The order of the wrappers matters: with a cap around a jitter, waits pile up on the cap,
// and with a jitter around a cap, waits exceed the cap. The original's MaxDuration counts the time
// since construction, including the operation. Here it counts the waits, State.Slept.
type Sethvargo struct {
	Shape    SethvargoShape
	Base     time.Duration // above 0
	Wrappers []SethvargoWrapper
	Compat   bool // whether a cap below 0 gives negative waits, as in the original
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
		return doubled(p.Base, n)
	case SethvargoFibonacci:
		if int64(n) >= int64(len(fibonacci)) {
			return math.MaxInt64
		}
		return scaled(fibonacci[n], p.Base)
	}
	return p.Base
}

// Next implements backoff.Policy.
func (p Sethvargo) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	d := p.interval(s.N)
	for _, w := range p.Wrappers {
		if w.ended(s) {
			return 0, s, false
		}
		d = w.apply(d, s, src)
	}
	d = clamp(d, p.Compat)
	return d, s.After(d), true
}

func (w SethvargoWrapper) apply(d time.Duration, s backoff.State, src rand.Source) time.Duration {
	switch w.kind {
	case sethvargoJitter:
		return max(plus(d, time.Duration(below(src, 2*uint64(w.d))-uint64(w.d))), 0)
	case sethvargoPercent:
		return percent(d, int64(below(src, 2*w.percent))-int64(w.percent))
	case sethvargoFull:
		if d > 0 {
			return time.Duration(below(src, uint64(d)))
		}
	case sethvargoCapped:
		return min(d, w.d)
	case sethvargoDuration:
		return min(d, w.d-max(s.Slept, 0))
	}
	return d
}

// percent returns d * (100 - top) / 100, at least 0.
func percent(d time.Duration, top int64) time.Duration {
	return duration(float64(float64(d)*(1-float64(top)/100)), false)
}

// Bounds implements backoff.Bounder. The mean is computed from 2000 evenly spaced draws if there is
// one jitter, and wrapper by wrapper if there are several. With MaxDuration, the lowest wait is 0,
// because the last wait may be cut to any length, and the mean ignores this cut.
func (p Sethvargo) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := step(n)
	start := backoff.State{N: k}
	if p.Validate() != nil || slices.ContainsFunc(p.Wrappers, func(w SethvargoWrapper) bool {
		return w.ended(start)
	}) {
		return 0, 0, 0
	}
	lowest = p.interval(k)
	highest = lowest
	const cells = 2000
	values := slices.Repeat([]time.Duration{lowest}, cells)
	// No stride has a factor in common with cells, so that the draws of several jitters differ.
	strides := [...]int{1, 919, 607, 1201, 1733}
	for k, w := range p.Wrappers {
		lowest, highest = w.low(lowest), w.high(highest)
		for i := range values {
			u := i * strides[k%len(strides)] % cells
			values[i] = w.apply(values[i], backoff.State{},
				fixed(uint64(2*u+1)*(math.MaxUint64/(2*cells))))
		}
	}
	sum := 0.0
	for _, d := range values {
		sum += float64(d) / cells
	}
	mean = min(max(time.Duration(javaLong(sum)), lowest), highest)
	return clamp(lowest, p.Compat), clamp(mean, p.Compat), clamp(highest, p.Compat)
}

// fixed is a random source that always returns the same value.
type fixed uint64

func (f fixed) Uint64() uint64 { return uint64(f) }

func (w SethvargoWrapper) low(d time.Duration) time.Duration {
	switch w.kind {
	case sethvargoJitter:
		return max(plus(d, -w.d), 0)
	case sethvargoPercent:
		return percent(d, int64(w.percent)-1)
	case sethvargoFull, sethvargoDuration:
		return min(d, 0)
	case sethvargoCapped:
		return min(d, w.d)
	}
	return d
}

func (w SethvargoWrapper) high(d time.Duration) time.Duration {
	switch w.kind {
	case sethvargoJitter:
		return max(plus(d, w.d-1), 0)
	case sethvargoPercent:
		return percent(d, -int64(w.percent))
	case sethvargoFull:
		if d > 0 {
			return d - 1
		}
	case sethvargoCapped, sethvargoDuration:
		return min(d, w.d)
	}
	return d
}

// Validate implements backoff.Validator. The errors have the texts of the original's panics.
func (p Sethvargo) Validate() error {
	switch {
	case p.Base > 0:
		return nil
	case p.Shape == SethvargoConstant:
		return errors.New("t must be greater than 0")
	}
	return errors.New("base must be greater than 0")
}
