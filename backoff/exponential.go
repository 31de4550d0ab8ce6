//penstock:pure

package backoff

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Exponential returns a policy that waits base, base*factor, base*factor^2, ... at most max. A max
// of 0 means no cap but the largest Duration. A factor that is not above 0 counts as 1. Without a
// jitter mode the waits are not random: see [Ladder.Full].
//
//	Exponential(250*time.Millisecond, 2, 30*time.Second).Full()
//
// With a whole factor the waits are exact. With a fractional factor they are computed in floats and
// truncated to whole nanoseconds.
func Exponential(base time.Duration, factor float64, max time.Duration) Ladder {
	return newLadder(exponentialGrowth{base, factor}, jitter{}, max)
}

type exponentialGrowth struct {
	base   time.Duration
	factor float64
}

func (g exponentialGrowth) interval(n uint32) (time.Duration, bool) {
	if g.base <= 0 {
		return 0, true
	}
	if !(g.factor > 0) {
		return g.base, true
	}
	if g.factor < 1<<63 && g.factor == math.Trunc(g.factor) {
		return power(g.base, uint64(g.factor), n), true
	}
	return scale(g.base, floatPower(g.factor, n)), true
}

func (g exponentialGrowth) constantFrom(n uint32) bool {
	d, _ := g.interval(n)
	return g.base <= 0 || !(g.factor > 0) || g.factor == 1 || d == math.MaxInt64 || d == 0
}

func (g exponentialGrowth) validate(max time.Duration) error {
	if err := checkBase("base", g.base, max); err != nil {
		return err
	}
	if !(g.factor >= 1) || math.IsInf(g.factor, 1) {
		return fmt.Errorf("factor %v: want 1 or more, and finite", g.factor)
	}
	return nil
}

func (g exponentialGrowth) spec() string {
	return "exponential base=" + g.base.String() + " factor=" + number(g.factor)
}

// power returns d * f^n, at most the largest Duration. It computes the power by squaring. d must be
// above 0.
func power(d time.Duration, f uint64, n uint32) time.Duration {
	if f == 2 {
		if n >= uint32(bits.LeadingZeros64(uint64(d))) { // d is above 0, so at least 1
			return math.MaxInt64
		}
		return d << n
	}
	for square := f; n > 0 && d < math.MaxInt64; n >>= 1 {
		if n&1 == 1 {
			d = times(d, square)
		}
		if hi, lo := bits.Mul64(square, square); hi != 0 {
			square = math.MaxUint64
		} else {
			square = lo
		}
	}
	return d
}

// floatPower returns f^n by squaring. It rounds after each multiplication, so the result is the
// same on every platform. The results of math.Pow may differ between platforms.
func floatPower(f float64, n uint32) float64 {
	x := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			x = float64(x * f)
		}
		f = float64(f * f)
	}
	return x
}
