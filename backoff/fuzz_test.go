package backoff_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// FuzzPolicies calls every policy, with arbitrary settings, at arbitrary states. It checks that no
// call panics and that no wait is negative, outside Bounds or above the cap.
func FuzzPolicies(f *testing.F) {
	for _, a := range []int64{0, 1, -1, 1e9, math.MaxInt64, math.MinInt64, 1 << 62} {
		for _, x := range []float64{0, 1, 1.5, 2, -1, .3, math.NaN(), math.Inf(1), math.Inf(-1),
			math.MaxFloat64, 1e-320} {
			f.Add(a, int64(30e9), x, .5, uint32(a), int64(3e9), uint64(7))
			f.Add(int64(100e6), a, x, x, uint32(70), a, uint64(8))
		}
	}
	f.Fuzz(func(t *testing.T, a, b int64, x, y float64, n uint32, prev int64, seed uint64) {
		first, limit := time.Duration(a), time.Duration(b)
		for _, l := range []backoff.Ladder{
			backoff.Fixed(first), backoff.Linear(first, limit, limit),
			backoff.Exponential(first, x, limit),
			backoff.Polynomial(first, x, limit), backoff.Fibonacci(first, limit),
			backoff.Table(first, limit),
			backoff.Pattern(backoff.Point{From: n, Delay: first},
				backoff.Point{From: n / 2, Delay: limit}),
			backoff.Recommended(first, limit),
		} {
			for _, p := range []backoff.Policy{l, l.Full(), l.Equal(), l.Proportional(y),
				l.Additive(y)} {
				ask(t, p, n, prev, seed)
			}
		}
		exponential := backoff.Exponential(first, x, limit).Full()
		for _, p := range []backoff.Policy{
			backoff.Random(first), backoff.Slotted(first, int(b), int(int32(n))),
			backoff.Decorrelated(first, limit),
			backoff.DecorrelatedV2(first, limit), backoff.Limit(exponential, int(int32(n))),
			backoff.Then(exponential, int(int32(b)), backoff.Random(limit)),
			backoff.FirstNow(exponential),
			backoff.Sum(exponential, backoff.Decorrelated(first, limit),
				backoff.DecorrelatedV2(first, limit)),
			backoff.Max(exponential, backoff.Random(first), backoff.DecorrelatedV2(limit, first)),
			backoff.Sum(), backoff.Max(),
		} {
			ask(t, p, n, prev, seed)
		}
		adaptive := backoff.Adaptive{Min: first, Max: limit, Grow: x, Shrink: y}
		if d := adaptive.Next(time.Duration(prev), n&1 == 0); d < 0 {
			t.Errorf("%+v after %d: %d", adaptive, prev, d)
		}
	})
}

func ask(t *testing.T, p backoff.Policy, n uint32, prev int64, seed uint64) {
	t.Helper()
	text, err := fmt.Sprint(p), backoff.Validate(p)
	for _, n := range []uint32{n, n % 100} {
		low, mean, high := backoff.Bounds(p, int(min(n, math.MaxInt32)))
		if low < 0 || mean < low || high < mean {
			t.Errorf("%s at %d: bounds %d, %d, %d (%v)", text, n, low, mean, high, err)
		}
		s := backoff.State{N: n, Step: uint32(seed), Prev: time.Duration(prev),
			Slept: time.Duration(prev)}
		d, next, ok := p.Next(s, seeded(seed))
		if d < 0 || !ok && d != 0 || ok && n <= math.MaxInt32 && (d < low || d > high) {
			t.Errorf("%s at %d: %d, %v, with bounds %d to %d (%v)", text, n, d, ok, low, high, err)
		}
		if ok && (next.N < n || next.Prev != d) || !ok && next != s {
			t.Errorf("%s at %d: state %+v after %+v", text, n, next, s)
		}
	}
}
