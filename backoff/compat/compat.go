// Package compat holds the backoff policies of other libraries, one file each, exact to the quirk: the same values,
// the same distribution, the same ends and the same refusals, compared with values taken from the libraries themselves.
//
// They are for moving a program over without changing how it waits. A new program is better served by package backoff,
// whose policies stay within their cap and keep their jitter there. What each original does wrong is in the doc comment
// of its port; where it overflows or answers with a negative wait, the port saturates, unless the field Compat asks for
// the original's value. With Compat a wait may be negative; time.Sleep and timers take that as 0, which is what makes
// it a hot loop.
//
// Every policy is a struct of its settings, an immutable value and a backoff.Policy: safe for concurrent use, with the
// state outside and the randomness from a rand.Source. Validate gives the original's error; a policy that the original
// would refuse to make gives up at once. Bounds holds every wait that Next can give. The objects that change with each
// call ([Counter], [KubernetesItems]) say so.
package compat

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// uniform returns a float in [0, 1) with 53 random bits, as Go, Java and Scala draw it.
func uniform(src rand.Source) float64 { return float64(bits64(src)>>11) / (1 << 53) }

func bits64(src rand.Source) uint64 {
	if src == nil {
		return rand.Uint64()
	}
	return src.Uint64()
}

// below returns an integer uniform in [0, n), n above 0, by Lemire's multiplication. The rejection is bounded, so that
// a source that is stuck cannot hang the caller.
func below(src rand.Source, n uint64) uint64 {
	hi, lo := bits.Mul64(bits64(src), n)
	if lo >= n {
		return hi
	}
	threshold := -n % n
	for range 100 {
		if lo >= threshold {
			break
		}
		hi, lo = bits.Mul64(bits64(src), n)
	}
	return hi
}

// javaLong converts as Java's (long) does: NaN is 0, what is outside is the nearest end.
func javaLong(x float64) int64 {
	switch {
	case x != x:
		return 0
	case x >= math.MaxInt64:
		return math.MaxInt64
	case x <= math.MinInt64:
		return math.MinInt64
	}
	return int64(x)
}

// amd64Long converts as Go does on amd64, where NaN and what is outside become the lowest int64. In Go that depends on
// the platform; the ports give this everywhere.
func amd64Long(x float64) int64 {
	if x != x || x >= math.MaxInt64 || x < math.MinInt64 {
		return math.MinInt64
	}
	return int64(x)
}

// duration converts a float of nanoseconds: with compat as Go on amd64, else cut to [0, MaxInt64].
func duration(x float64, compat bool) time.Duration {
	if compat {
		return time.Duration(amd64Long(x))
	}
	return time.Duration(max(javaLong(x), 0))
}

// scaled returns n units, saturating at both ends.
func scaled(n int64, unit time.Duration) time.Duration {
	hi, lo := bits.Mul64(uint64(max(n, -n)), uint64(unit))
	switch {
	case n == math.MinInt64 && unit > 0, n < 0 && (hi != 0 || lo > math.MaxInt64):
		return math.MinInt64
	case hi != 0 || lo > math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(n) * unit
}

// millis returns n milliseconds, saturating: the Java libraries count in them.
func millis(n int64) time.Duration { return scaled(n, time.Millisecond) }

// times returns a * b for values that are not negative, saturating.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// doubled returns a * 2^n for an a that is not negative, saturating.
func doubled(a int64, n uint32) int64 {
	if n > 62 && a > 0 {
		return math.MaxInt64
	}
	return times(a, 1<<min(n, 62))
}

// plus returns a + b, saturating at both ends.
func plus(a, b time.Duration) time.Duration {
	c := a + b
	switch {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	}
	return c
}

// step turns the int of Bounds into a step: negative counts as 0.
func step(n int) uint32 { return uint32(min(max(int64(n), 0), math.MaxUint32)) }

// maxIterations bounds the ports that have to repeat a rounding step by step to be exact; beyond, they stay where they
// are. No setting in use needs more than a few hundred.
const maxIterations = 1 << 16
