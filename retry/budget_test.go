package retry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

func TestTokenBucket(t *testing.T) {
	b := retry.TokenBucket(20, 5, 1)
	take := func(n, cost int, want bool) {
		t.Helper()
		if got := b.Take(n, cost); got != want {
			t.Fatalf("Take(%d, %d) = %v, want %v", n, cost, got, want)
		}
	}
	for range 100 {
		take(1, 0, true) // first attempts cost nothing
	}
	take(2, 0, true)  // 15
	take(2, 10, true) // 5
	take(2, 6, false)
	take(2, 0, true) // 0
	take(2, 0, false)
	b.Give(2, 0, retry.Failed) // 0
	take(2, 0, false)
	b.Give(2, 10, retry.NotMade) // 10
	take(3, 10, true)            // 0
	b.Give(3, 10, retry.Served)  // 11: what it cost, and the success
	take(2, 0, true)
	take(2, 0, true) // 1
	for range 4 {
		take(2, 0, false)
		b.Give(1, 0, retry.Served) // 5
	}
	take(2, 0, true)
	for range 100 {
		b.Give(1, 0, retry.Served)
	}
	take(2, 20, true) // not above its size
	take(2, 0, false)
}

func TestRatio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.Ratio(0.2, 0.5, 10*time.Second) // a fifth of the calls, and five in ten seconds
		retries := func() (n int) {
			for b.Take(2, 0) {
				n++
			}
			return n
		}
		if n := retries(); n != 5 {
			t.Errorf("%d retries without a call, want 5", n)
		}
		for range 100 {
			b.Take(1, 0)
		}
		if n := retries(); n != 20 {
			t.Errorf("%d retries after 100 calls, want 20", n)
		}
		b.Give(2, 0, retry.NotMade)
		if n := retries(); n != 1 {
			t.Errorf("%d retries after one was not made, want 1", n)
		}
		wait(t.Context(), 5*time.Second)
		if n := retries(); n != 0 {
			t.Errorf("%d retries within the window, want 0", n)
		}
		wait(t.Context(), 5*time.Second)
		if n := retries(); n != 5 {
			t.Errorf("%d retries after a whole window, want 5", n)
		}
	})
}

// A naive list of instants is the oracle of the sliding counts.
func TestRatioAgainstAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 10 * time.Second
		b := retry.Ratio(0.3, 1, window)
		rng := rand.New(rand.NewPCG(7, 7))
		var calls, retries []time.Time
		for range 3000 {
			wait(t.Context(), time.Duration(rng.Int64N(int64(200*time.Millisecond))))
			if rng.IntN(2) == 0 {
				b.Take(1, 0)
				calls = append(calls, time.Now())
				continue
			}
			// The window slides in tenths: what is younger than nine tenths counts, what is older than all of it does not.
			since := func(all []time.Time, d time.Duration) (n int) {
				for _, at := range all {
					if time.Since(at) < d {
						n++
					}
				}
				return n
			}
			must := float64(since(retries, window)+1) <= 0.3*float64(since(calls, window*9/10))+10
			may := float64(since(retries, window*9/10)+1) <= 0.3*float64(since(calls, window))+10
			got := b.Take(2, 0)
			if got && !may || !got && must {
				t.Fatalf("retry granted: %v, must %v, may %v", got, must, may)
			}
			if got {
				retries = append(retries, time.Now())
			}
		}
		if len(retries) < 100 {
			t.Errorf("only %d retries were granted: the test shows nothing", len(retries))
		}
	})
}

func TestInFlight(t *testing.T) {
	b := retry.InFlight(0.2, 3)
	for range 3 {
		if !b.Take(2, 0) {
			t.Fatal("three retries are always allowed")
		}
	}
	if b.Take(2, 0) {
		t.Fatal("a fourth retry of three active")
	}
	for range 20 {
		b.Take(1, 0)
	}
	if !b.Take(2, 0) { // the fourth of 24 active
		t.Fatal("a fifth of the active calls may be retries")
	}
	if !b.Take(2, 0) {
		t.Fatal("five of 25 is a fifth")
	}
	if b.Take(2, 0) {
		t.Fatal("six of 26 is more than a fifth")
	}
	b.Give(2, 0, retry.Failed)
	if !b.Take(2, 0) {
		t.Fatal("a slot was freed")
	}
	for range 20 {
		b.Give(1, 0, retry.Served)
	}
	if b.Take(2, 0) {
		t.Fatal("five of five are retries")
	}
}

// A service that can take 20 of 100 requests a second gets about twice of what it takes, and all of them soon after it
// has recovered.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.Throttle(2, rand.NewPCG(1, 2))
		second := func(capacity int) (sent int) {
			for range 100 {
				wait(t.Context(), 10*time.Millisecond)
				if !b.Take(1, 0) {
					continue
				}
				if sent++; sent <= capacity {
					b.Give(1, 0, retry.Served)
				} else {
					b.Give(1, 0, retry.Failed)
				}
			}
			return sent
		}
		phase := func(name string, seconds, capacity, low, high int) {
			t.Helper()
			for range seconds {
				second(capacity)
			}
			sent := 0
			for range 60 {
				sent += second(capacity)
			}
			if mean := sent / 60; mean < low || mean > high {
				t.Errorf("%s: %d sent a second, want %d to %d", name, mean, low, high)
			}
		}
		phase("well", 60, 100, 100, 100)
		phase("overloaded", 300, 20, 32, 48)
		phase("recovered", 120, 100, 99, 100)
	})
}

// ledger is a Budget that notes what it is asked.
type ledger struct {
	taken, given map[int]int
	results      map[retry.Result]int
	refuse       int // the attempt that is refused
}

func newLedger(refuse int) *ledger {
	return &ledger{taken: map[int]int{}, given: map[int]int{}, results: map[retry.Result]int{}, refuse: refuse}
}

func (l *ledger) Take(n, _ int) bool {
	if n == l.refuse {
		return false
	}
	l.taken[n]++
	return true
}

func (l *ledger) Give(n, _ int, r retry.Result) {
	l.given[n]++
	l.results[r]++
}

func (l *ledger) balanced(t *testing.T, want map[retry.Result]int) {
	t.Helper()
	for n, took := range l.taken {
		if l.given[n] != took {
			t.Errorf("attempt %d was granted %d times and given back %d times", n, took, l.given[n])
		}
	}
	for r, n := range want {
		if l.results[r] != n {
			t.Errorf("result %d came %d times, want %d (%v)", r, l.results[r], n, l.results)
		}
	}
}

func TestBudgetIsAskedBeforeTheWaitAndToldTheEnd(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, begun := newLedger(3), time.Now()
			err := retry.Do(t.Context(), func(context.Context) error { return errDown }, fixed, retry.Spend(l))
			e, _ := errors.AsType[*retry.Error](err)
			if !errors.Is(err, retry.ErrBudget) || e.Attempts != 2 || time.Since(begun) != time.Second {
				t.Errorf("%v after %v: want ErrBudget after the second attempt and one wait", err, time.Since(begun))
			}
			l.balanced(t, map[retry.Result]int{retry.Failed: 2})
		})
	})
	t.Run("first attempt refused", func(t *testing.T) {
		l := newLedger(1)
		err := retry.Do(t.Context(), func(context.Context) error { t.Error("it ran"); return nil }, retry.Spend(l))
		if !errors.Is(err, retry.ErrBudget) {
			t.Error(err)
		}
	})
	t.Run("success", func(t *testing.T) {
		l, n := newLedger(0), 0
		err := retry.Do(t.Context(), func(context.Context) error {
			if n++; n < 3 {
				return errDown
			}
			return nil
		}, retry.Policy(backoff.Fixed(0)), retry.Spend(l))
		if err != nil {
			t.Error(err)
		}
		l.balanced(t, map[retry.Result]int{retry.Failed: 2, retry.Served: 1})
	})
	t.Run("ended while waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger(0)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second/2, cancel)
			_ = retry.Do(ctx, func(context.Context) error { return errDown }, fixed, retry.Spend(l))
			l.balanced(t, map[retry.Result]int{retry.Failed: 1, retry.NotMade: 1})
		})
	})
	t.Run("panic", func(t *testing.T) {
		l := newLedger(0)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not come through")
				}
			}()
			_ = retry.Do(t.Context(), func(context.Context) error { panic("op") }, retry.Spend(l))
		}()
		func() {
			defer func() { _ = recover() }()
			for range retry.NewLoop(t.Context(), retry.Spend(l)).Attempts() {
				panic("body")
			}
		}()
		l.balanced(t, map[retry.Result]int{retry.Failed: 2})
	})
}

// Without a budget a service that fails gets three times its load; with one a tenth more.
func TestBudgetBoundsAStorm(t *testing.T) {
	for _, c := range []struct {
		budget retry.Budget
		most   int
	}{{nil, 30000}, {retry.Ratio(0.1, 0, time.Minute), 11000}, {retry.TokenBucket(500, 5, 1), 10100}} {
		attempts := 0
		for range 10000 {
			_ = retry.Do(t.Context(), func(context.Context) error { attempts++; return errDown },
				retry.Policy(backoff.Fixed(0)), retry.MaxAttempts(3), retry.Spend(c.budget))
		}
		if attempts != c.most {
			t.Errorf("%T: %d attempts for 10,000 calls, want %d", c.budget, attempts, c.most)
		}
	}
}
