package backoff

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// draw returns an integer that is uniform in [0, span], by Lemire's nearly divisionless method
// (Fast Random Integer Generation in an Interval, 2019). It takes no rand.Rand, so that nothing is
// allocated.
func draw(src rand.Source, span uint64) uint64 {
	n := span + 1
	if n == 0 {
		return bits64(src)
	}
	hi, lo := bits.Mul64(bits64(src), n)
	if lo < n {
		return drawAgain(src, n, hi, lo)
	}
	return hi
}

// drawAgain is the rare part of draw: it rejects draws that would make some integers more likely
// than others. It stops after 100 rejections, so that a source stuck on one value cannot hang the
// caller. With a random source, 100 rejections in a row are practically impossible.
func drawAgain(src rand.Source, n, hi, lo uint64) uint64 {
	threshold := -n % n
	for range 100 {
		if lo >= threshold {
			break
		}
		hi, lo = bits.Mul64(bits64(src), n)
	}
	return hi
}

func bits64(src rand.Source) uint64 {
	if src == nil {
		return runtimeBits()
	}
	return src.Uint64()
}

// runtimeBits is the only use of the runtime's random source in this package.
func runtimeBits() uint64 { return rand.Uint64() }

// scale returns d * f cut to [0, MaxInt64] and truncated to whole nanoseconds. A NaN gives 0. The
// conversion float64() forbids a fused multiply-add, so every platform gets the same result.
func scale(d time.Duration, f float64) time.Duration {
	x := float64(float64(d) * f)
	switch {
	case x >= math.MaxInt64: // the float is 2^63
		return math.MaxInt64
	case x > 0:
		return time.Duration(x)
	}
	return 0
}

// times returns d * n, at most the largest Duration. d must not be negative.
func times(d time.Duration, n uint64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), n)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// plus returns a + b, at most the largest Duration. Neither may be negative.
func plus(a, b time.Duration) time.Duration {
	if c := a + b; c >= 0 {
		return c
	}
	return math.MaxInt64
}
