package retry

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// FuzzPlan checks, for all settings and histories, that a wait is never negative, never shorter
// than a hint that is followed, and never leads past a limit. A call with a limit of attempts ends.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), 0, int64(0), int64(0), int64(0), int64(time.Second), uint8(1), uint8(0))
	f.Add(uint64(2), -1, int64(time.Hour), int64(time.Minute), int64(1<<62), int64(-5), uint8(3),
		uint8(1))
	f.Add(uint64(3), 3, int64(math.MaxInt64), int64(math.MinInt64), int64(-1), int64(math.MaxInt64),
		uint8(4), uint8(2))
	f.Fuzz(func(t *testing.T, seed uint64, attempts int, elapsed, failing, longest, hint int64,
		action, flags uint8) {
		src := rand.NewPCG(seed, 1)
		o := Options{
			Policy: backoff.Exponential(time.Duration(hint/3), 2,
				time.Duration(elapsed/2)).Full(),
			MaxAttempts: attempts, MaxElapsed: time.Duration(elapsed),
			MaxFailing: time.Duration(failing), Rand: src,
			MaxHint: time.Duration(longest), ClampHint: flags&1 != 0, ExactHint: flags>>1&1 != 0,
			Targets: int(flags >> 2 & 3),
		}
		if flags&64 != 0 {
			o.Policy = nil
		}
		var p plan
		now := time.Duration(0)
		for n := 1; n <= 100; n++ {
			p.row++
			s := step{action: Action(action % 5), after: time.Duration(hint), now: now,
				notReady: flags&32 != 0}
			if flags&16 != 0 && n%3 == 0 {
				s.action = Progress
			}
			wait, stop := p.decide(&o, &s)
			if stop != nil {
				return
			}
			switch {
			case attempts > 0 && flags&16 == 0 && n >= attempts:
				t.Fatalf("attempt %d was not the last of %d", n, attempts)
			case attempts == 0 && elapsed <= 0 && failing <= 0 && flags&16 == 0 &&
				n >= defaultAttempts:
				t.Fatalf("attempt %d was not the last of %d", n, attempts)
			case wait < 0:
				t.Fatalf("wait %v", wait)
			case elapsed > 0 && wait > o.MaxElapsed-now:
				t.Fatalf("wait %v at %v passes %v", wait, now, o.MaxElapsed)
			case s.action == Retry && hint > 0 && flags&1 == 0 && wait < time.Duration(hint):
				t.Fatalf("wait %v is shorter than the hint %v", wait, time.Duration(hint))
			}
			now = addSaturating(now, wait)
		}
	})
}

func TestDrawBelow(t *testing.T) {
	src := rand.NewPCG(1, 2)
	var counts [5]int
	for range 50000 {
		counts[drawBelow(src, 4)]++
	}
	for v, n := range counts { // five values, each in 9,500 to 10,500: ten standard deviations
		if n < 9500 || n > 10500 {
			t.Errorf("%d came %d times of 50,000", v, n)
		}
	}
	if drawBelow(src, 0) != 0 || drawBelow(src, -5) != 0 || drawBelow(src, math.MaxInt64) < 0 {
		t.Error("draws at the ends of the range")
	}
}

func TestEndless(t *testing.T) {
	for _, c := range []struct {
		p    backoff.Policy
		want bool
	}{
		{backoff.Fixed(1), true},
		{backoff.Exponential(1, 2, 0).Full(), true},
		{backoff.Decorrelated(1, 5), true},
		{backoff.Table(1, 2), false},
		{backoff.Limit(backoff.Fixed(1), 3), false},
		{backoff.Slotted(1, 10, 16), false},
		{backoff.Then(backoff.Fixed(1), 3, backoff.Table(1)), false},
	} {
		if got := endless(c.p); got != c.want {
			t.Errorf("%v: endless %v, want %v", c.p, got, c.want)
		}
	}
}

// TestFailoverAtOnceDoesNotAdvanceThePolicy checks that an attempt at the next target that starts
// without a wait (Failover) does not use up a step of the policy.
func TestFailoverAtOnceDoesNotAdvanceThePolicy(t *testing.T) {
	o := Options{Policy: backoff.Linear(time.Second, time.Second, 0), Targets: 2, MaxAttempts: -1}
	var p plan
	var waits []time.Duration
	for range 6 {
		p.row++
		wait, stop := p.decide(&o, &step{action: Failover})
		if stop != nil {
			t.Fatal(stop)
		}
		waits = append(waits, wait)
	}
	want := []time.Duration{0, time.Second, 0, 2 * time.Second, 0, 3 * time.Second}
	for i := range want {
		if waits[i] != want[i] {
			t.Fatalf("waits %v, want %v", waits, want)
		}
	}
}

// TestOrderOfReasons checks which reason to stop is returned if several apply. The first of these
// counts: permanent, attempts, context, nested, policy, time limits. Except for nested, this is the
// order of cenkalti/backoff.
func TestOrderOfReasons(t *testing.T) {
	dead := errors.New("dead")
	o := Options{Policy: backoff.Table(), MaxAttempts: 1, MaxElapsed: 1}
	s := step{action: Fail, contextErr: dead, suppressed: true, now: time.Hour}
	p := plan{row: 1}
	for _, want := range []error{ErrPermanent, ErrExhausted, dead, ErrNested, ErrExhausted,
		ErrElapsed} {
		if _, got := p.decide(&o, &s); got != want {
			t.Fatalf("stopped by %v, want %v", got, want)
		}
		switch want {
		case ErrPermanent:
			s.action = Retry
		case ErrExhausted:
			if o.MaxAttempts == 5 {
				o.Policy = backoff.Fixed(0)
			}
			o.MaxAttempts = 5
		case dead:
			s.contextErr = nil
		case ErrNested:
			s.suppressed = false
		}
	}
}
