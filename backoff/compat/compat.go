// Package compat holds the backoff policies of other libraries, with all their quirks. Use them to
// move a program from such a library without changing its waits. A policy has the same waits and
// the same distributions of waits as the original, gives up after the same attempt, and refuses the
// same settings. If a policy has a time limit, Next counts only the waits, not the duration of the
// attempts. Tests compare the policies with values taken from the libraries.
//
// For new programs package backoff is better: its waits never exceed their cap, and still have
// jitter when they have reached it. The doc comment of each policy lists the quirks of the
// original. Where the original overflows or returns a negative wait, the policy returns 0, its cap
// or the largest Duration instead, unless Compat asks for the original's value. With Compat a wait
// may be negative. time.Sleep and timers take that as 0, so a retry loop runs without a pause (a
// hot loop).
//
// Every policy is a struct of its settings, an immutable value and a backoff.Policy. It is safe for
// concurrent use: the caller keeps the state and passes the source of randomness. Zero means zero,
// unless the field's comment says that zero means a default or no limit in the original (as for
// [Jpillora], AWS2026.Base and KubernetesWait.Cap). Functions with names that end in Defaults
// ([FlumeDefaults], [CenkaltiDefaults], ...) return the default settings of the original.
//
// Validate returns the original's error. A policy that the original would refuse to create gives up
// at once. Every wait that Next returns is within Bounds. Next counts steps from 0. If the original
// accepts any int as the number of the attempt, even a negative one, the policy has a method that
// does so, too (Delay, Decide, Sleep). [Counter] and [KubernetesItems] are no policies: they hold a
// state that changes with each call.
//
// U[a, b) is a draw from the uniform distribution from a to b. Waits pile up on a cap if each draw
// above the cap is cut to the cap: many waits then equal the cap. "Compat only" means that the
// quirk is repeated only with Compat.
//
// Java libraries count milliseconds in a long. In the policies of these libraries, the largest and
// the lowest Duration mean the largest and the lowest long.
//
// [Parse] reads a policy from text, including the policies of package backoff. The package reads no
// clock and starts no goroutine, so it runs under testing/synctest.
package compat

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
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

// below returns an integer uniform in [0, n), by Lemire's multiplication. n is above 0. The number
// of rejected draws is bounded, so that a source that always returns one value cannot hang the
// caller.
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

// javaLong converts x as a cast to long does in Java. NaN becomes 0, and a value out of range
// becomes the smallest or largest long.
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

// amd64Long converts x to an int64 as Go does on amd64, where NaN and values out of range become
// the lowest int64. In Go the result depends on the platform. This package returns the result of
// amd64 on every platform.
func amd64Long(x float64) int64 {
	if x != x || x >= math.MaxInt64 || x < math.MinInt64 {
		return math.MinInt64
	}
	return int64(x)
}

// javaRound is Math.round: the nearest long, halves up.
func javaRound(x float64) int64 {
	whole := math.Floor(x)
	if x-whole >= .5 {
		whole++
	}
	return javaLong(whole)
}

// javaMillis converts d to milliseconds in a Java long, which has a wider range than a Duration.
// Therefore the largest and the smallest Duration become the largest and the smallest long.
func javaMillis(d time.Duration) int64 {
	if d == math.MaxInt64 || d == math.MinInt64 {
		return int64(d)
	}
	return d.Milliseconds()
}

// javaDouble formats x as Double.toString does since Java 19.
func javaDouble(x float64) string {
	switch abs := math.Abs(x); {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 0):
		return strings.TrimPrefix(strconv.FormatFloat(x, 'g', -1, 64), "+") + "inity"
	case abs != 0 && (abs < 1e-3 || abs >= 1e7):
		digits, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'E', -1, 64), "E")
		if !strings.Contains(digits, ".") { // Java takes the nearest of two digits: 4.9E-324
			digits, exponent, _ = strings.Cut(strconv.FormatFloat(x, 'E', 1, 64), "E")
		}
		n, _ := strconv.Atoi(exponent)
		return digits + "E" + strconv.Itoa(n)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// duration converts a float number of nanoseconds to a Duration. If compat is true, values out of
// range are converted as Go does on amd64. Otherwise x is cut to [0, MaxInt64].
func duration(x float64, compat bool) time.Duration {
	if compat {
		return time.Duration(amd64Long(x))
	}
	return time.Duration(max(javaLong(x), 0))
}

// scaled returns n * unit. Results out of range become the nearest end of int64.
func scaled(n int64, unit time.Duration) time.Duration {
	negative := (n < 0) != (unit < 0)
	hi, lo := bits.Mul64(magnitude(n), magnitude(int64(unit)))
	switch {
	case hi == 0 && lo <= math.MaxInt64:
		return time.Duration(n) * unit
	case negative:
		return math.MinInt64
	}
	return math.MaxInt64
}

// magnitude returns the absolute value, also of the lowest int64.
func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// millis returns n milliseconds, the unit of the Java libraries. Results out of range become the
// nearest end of int64.
func millis(n int64) time.Duration { return scaled(n, time.Millisecond) }

// times returns a * b for values that are not negative, at most the largest int64.
func times(a, b int64) int64 { return int64(scaled(a, time.Duration(b))) }

// doubled returns a * 2^n, at most the largest int64. a must not be negative.
func doubled[T int64 | time.Duration](a T, n uint32) T {
	if n > 62 && a > 0 {
		return math.MaxInt64
	}
	return T(times(int64(a), 1<<min(n, 62)))
}

// plus returns a + b. Results out of range become the nearest end of int64.
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

// clamp returns d if compat is true, and otherwise d, but at least 0.
func clamp(d time.Duration, compat bool) time.Duration {
	if compat {
		return d
	}
	return max(d, 0)
}

// repeat applies f to x n times. It stops early when the value stays the same, is NaN, or
// alternates between two values.
func repeat[T int64 | float64](x T, n uint32, f func(T) T) T {
	before := x
	for i := range min(n, maxIterations) {
		next := f(x)
		switch {
		case next == x || next != next:
			return next
		case i > 0 && next == before && (n-i)%2 == 0:
			return x
		case i > 0 && next == before:
			return next
		}
		before, x = x, next
	}
	return x
}

// count converts a step, counted from 0, to an int. The result is at most 2^31-1.
func count(n uint32) int { return int(min(n, math.MaxInt32)) }

// attemptOf returns the number of the attempt at step n: n + 1, at most 2^31-1.
func attemptOf(n uint32) int { return int(min(uint64(n)+1, math.MaxInt32)) }

// step converts the n of Bounds to a step; a negative n counts as 0.
func step(n int) uint32 { return uint32(min(max(int64(n), 0), math.MaxUint32)) }

// name returns names[value], or "unknown value N" if there is no such name.
func name(names []string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return fmt.Sprintf("unknown value %d", value)
}

// maxIterations is the maximum number of steps that are computed one by one to repeat the
// original's roundings. After that many steps the wait stays the same. Real settings need at most a
// few hundred steps.
const maxIterations = 1 << 16
