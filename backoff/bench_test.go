package backoff_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// every has one policy of each kind and jitter mode, with settings that reach the cap.
func every() []struct {
	name string
	p    backoff.Policy
} {
	const ms, s = time.Millisecond, time.Second
	exponential := backoff.Exponential(250*ms, 2, 30*s)
	return []struct {
		name string
		p    backoff.Policy
	}{
		{"fixed", backoff.Fixed(s)},
		{"fixed/proportional", backoff.Fixed(s).Proportional(.1)},
		{"random", backoff.Random(s)},
		{"linear/full", backoff.Linear(100*ms, 500*ms, 20*s).Full()},
		{"exponential", exponential},
		{"exponential/full", exponential.Full()},
		{"exponential/equal", exponential.Equal()},
		{"exponential/proportional", exponential.Proportional(.5)},
		{"exponential/additive", exponential.Additive(.2)},
		{"exponential/x1.5", backoff.Exponential(500*ms, 1.5, time.Minute).Full()},
		{"exponential/uncapped", backoff.Exponential(ms, 2, 0).Full()},
		{"polynomial", backoff.Polynomial(40*ms, 2, 10*s).Full()},
		{"polynomial/2.5", backoff.Polynomial(40*ms, 2.5, 10*s).Equal()},
		{"fibonacci", backoff.Fibonacci(10*ms, 10*s).Full()},
		{"table", backoff.Table(15*s, 15*s, 30*s, 3*time.Minute, 10*time.Minute).Proportional(.1)},
		{"pattern", backoff.Pattern(backoff.Point{Delay: s},
			backoff.Point{From: 5, Delay: 5 * s}).Additive(.5)},
		{"slotted", backoff.Slotted(51200, 10, 16)},
		{"slotted/endless", backoff.Slotted(51200, 10, 0)},
		{"decorrelated", backoff.Decorrelated(100*ms, 30*s)},
		{"decorrelated/uncapped", backoff.Decorrelated(100*ms, 0)},
		{"decorrelated_v2", backoff.DecorrelatedV2(s, 30*s)},
		{"recommended", backoff.Recommended(40*ms, 2*s)},
		{"limit", backoff.Limit(exponential.Full(), 10)},
		{"then", backoff.Then(backoff.Fixed(100*ms).Equal(), 3, exponential.Full())},
		{"max", backoff.Max(exponential.Full(), backoff.Random(20*s))},
		{"sum", backoff.Sum(exponential.Full(), backoff.Random(s))},
		{"first_now", backoff.FirstNow(exponential.Full())},
	}
}

// BenchmarkNext measures the time that Next takes. Each sequence restarts after 20 waits. Otherwise
// nearly all waits would be at the cap.
func BenchmarkNext(b *testing.B) {
	for _, c := range every() {
		b.Run(c.name, func(b *testing.B) {
			src := rand.NewPCG(1, 2)
			b.ReportAllocs()
			var s backoff.State
			for b.Loop() {
				_, next, ok := c.p.Next(s, src)
				if s = next; !ok || s.N >= 20 {
					s = backoff.State{}
				}
			}
		})
	}
	b.Run("exponential/full/runtime", func(b *testing.B) {
		p := backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Full()
		b.ReportAllocs()
		var s backoff.State
		for b.Loop() {
			if _, s, _ = p.Next(s, nil); s.N >= 20 {
				s = backoff.State{}
			}
		}
	})
}

func TestNextAllocatesNothing(t *testing.T) {
	for _, c := range every() {
		src := seeded(1)
		var s backoff.State
		if n := testing.AllocsPerRun(1000, func() { _, s, _ = c.p.Next(s, src) }); n != 0 {
			t.Errorf("%s: %v allocations for a wait, want 0", c.name, n)
		}
	}
}
