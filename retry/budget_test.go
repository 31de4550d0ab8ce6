package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// contextOf returns the context of the given attempt of a call whose attempts failed with err.
func contextOf(t *testing.T, number int, err error) (ctx context.Context) {
	t.Helper()
	_ = retry.Do(t.Context(), func(attempt context.Context) error {
		if ctx = attempt; retry.FromContext(ctx).Number == number {
			return nil
		}
		return err
	}, retry.Options{Policy: backoff.Fixed(0), MaxAttempts: number})
	return ctx
}

// priced is a failure that sets the price of its retry.
type priced int

func (priced) Error() string    { return "failed" }
func (p priced) RetryCost() int { return int(p) }

func TestTokenBucket(t *testing.T) {
	b := retry.TokenBucket(20, 5, 1)
	first, plain := contextOf(t, 1, nil), contextOf(t, 2, errDown)
	costs := func(n int) context.Context {
		return contextOf(t, 3, fmt.Errorf("call: %w", priced(n)))
	}
	allow := func(ctx context.Context, want bool) {
		t.Helper()
		if err := b.Allow(ctx); (err == nil) != want {
			t.Fatalf("Allow = %v, want it allowed: %v", err, want)
		}
	}
	for range 100 {
		allow(first, true) // first attempts cost nothing
	}
	allow(plain, true)     // 15
	allow(costs(10), true) // 5
	allow(costs(6), false)
	allow(costs(0), true) // 0: the price of the bucket
	allow(plain, false)
	b.Report(plain, errDown) // 0
	allow(plain, false)
	b.Report(costs(10), context.Canceled) // 10: the attempt was given up
	allow(costs(10), true)                // 0
	b.Report(costs(10), nil)              // 11: its price, and the success
	allow(plain, true)
	allow(plain, true) // 1
	for range 4 {
		allow(plain, false)
		b.Report(first, nil) // 5
	}
	allow(plain, true)
	for range 100 {
		b.Report(first, nil)
	}
	allow(costs(20), true) // not above its size
	allow(plain, false)
}

func TestRatio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.Ratio(0.2, 0.5, 10*time.Second) // a fifth of the calls, and five in ten seconds
		first, second := contextOf(t, 1, nil), contextOf(t, 2, errDown)
		retries := func() (n int) {
			for b.Allow(second) == nil {
				n++
			}
			return n
		}
		if n := retries(); n != 5 {
			t.Errorf("%d retries without a call, want 5", n)
		}
		for range 100 {
			_ = b.Allow(first)
		}
		if n := retries(); n != 20 {
			t.Errorf("%d retries after 100 calls, want 20", n)
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

// TestRatioAgainstAList checks the decisions of the budget Ratio against a simple model: a list of
// the times of all calls and retries.
func TestRatioAgainstAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 10 * time.Second
		b := retry.Ratio(0.3, 1, window)
		first, second := contextOf(t, 1, nil), contextOf(t, 2, errDown)
		rng := rand.New(rand.NewPCG(7, 7))
		var calls, retries []time.Time
		for range 3000 {
			wait(t.Context(), time.Duration(rng.Int64N(int64(200*time.Millisecond))))
			if rng.IntN(2) == 0 {
				_ = b.Allow(first)
				calls = append(calls, time.Now())
				continue
			}
			// The budget drops its counts in tenths of the window. So it keeps a count for at
			// least nine tenths of the window, and at most for the whole window.
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
			got := b.Allow(second) == nil
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
	first, second := contextOf(t, 1, nil), contextOf(t, 2, errDown)
	for range 3 {
		if b.Allow(second) != nil {
			t.Fatal("three retries are always allowed")
		}
	}
	if b.Allow(second) == nil {
		t.Fatal("a fourth retry of three active")
	}
	for range 20 {
		_ = b.Allow(first)
	}
	if b.Allow(second) != nil { // the fourth of 24 active
		t.Fatal("a fifth of the active calls may be retries")
	}
	if b.Allow(second) != nil {
		t.Fatal("five of 25 is a fifth")
	}
	if b.Allow(second) == nil {
		t.Fatal("six of 26 is more than a fifth")
	}
	b.Report(second, errDown)
	if b.Allow(second) != nil {
		t.Fatal("a slot was freed")
	}
	for range 20 {
		b.Report(first, nil)
	}
	if b.Allow(second) == nil {
		t.Fatal("five of five are retries")
	}
}

// TestThrottle checks that a service that can serve 20 of 100 requests per second receives about
// 40, and soon after its recovery all 100.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.Throttle(2, rand.NewPCG(1, 2))
		second := func(capacity int) (sent int) {
			for range 100 {
				wait(t.Context(), 10*time.Millisecond)
				if b.Allow(t.Context()) != nil {
					continue
				}
				if sent++; sent <= capacity {
					b.Report(t.Context(), nil)
				} else {
					b.Report(t.Context(), errDown)
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
		phase("healthy", 60, 100, 100, 100)
		phase("overloaded", 300, 20, 32, 48)
		phase("recovered", 120, 100, 99, 100)
	})
}

// TestThrottleEvidence checks that only evidence of overload makes a throttle refuse calls.
func TestThrottleEvidence(t *testing.T) {
	status := func(code int) func(context.Context) error {
		return func(context.Context) error { return retry.HTTP(&http.Response{StatusCode: code}) }
	}
	gone := errors.New("no such row")
	for _, c := range []struct {
		name     string
		op       func(context.Context) error
		overload bool
	}{
		{"200", status(200), false},
		{"400", status(400), false},
		{"404", status(404), false},
		{"409", status(409), false},
		{"422", status(422), false},
		{"500", status(500), false},
		{"429", status(429), true},
		{"503", status(503), true},
		{"504", status(504), true},
		{"522", status(522), true},
		{"permanent", func(context.Context) error { return retry.Permanent(errDown) }, false},
		{"classified as Fail", func(context.Context) error { return gone }, false},
		{"canceled by the caller", func(context.Context) error { return context.Canceled }, false},
		{"attempt timed out", func(context.Context) error { return retry.ErrAttemptTimeout }, true},
		{"deadline", func(context.Context) error { return context.DeadlineExceeded }, true},
		{"unknown failure", func(context.Context) error { return errDown }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := retry.Options{
				MaxAttempts: 1, Budget: retry.Throttle(2, rand.NewPCG(1, 2)),
				Classify: classify(map[error]retry.Action{gone: retry.Fail}),
			}
			refused := 0
			for range 1000 {
				if err := retry.Do(t.Context(), c.op, o); errors.Is(err, retry.ErrBudget) {
					refused++
				}
			}
			if c.overload && refused < 900 || !c.overload && refused > 0 {
				t.Errorf("%d of 1000 calls refused, overload: %v", refused, c.overload)
			}
		})
	}
}

// TestThrottleIgnoresCancellation checks that Throttle does not count a call that its caller
// cancels during an attempt.
func TestThrottleIgnoresCancellation(t *testing.T) {
	b := retry.Throttle(2, rand.NewPCG(1, 2))
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		err := retry.Do(ctx, func(ctx context.Context) error {
			cancel()
			return ctx.Err()
		}, retry.Options{Budget: b})
		if errors.Is(err, retry.ErrBudget) {
			t.Fatal(err)
		}
	}
}

var errRefused = errors.New("no permission")

// ledger is a Budget that records its calls.
type ledger struct {
	mu       sync.Mutex
	open     map[context.Context]bool // allowed, not reported
	allowed  int
	outcomes []error
	refuse   int // number of the attempt to refuse
}

func newLedger(refuse int) *ledger {
	return &ledger{open: map[context.Context]bool{}, refuse: refuse}
}

func (l *ledger) Allow(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if retry.FromContext(ctx).Number == l.refuse {
		return errRefused
	}
	l.open[ctx] = true
	l.allowed++
	return nil
}

func (l *ledger) Report(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open[ctx] {
		l.outcomes = append(l.outcomes, errors.New("report without permission"))
	}
	delete(l.open, ctx)
	l.outcomes = append(l.outcomes, err)
}

// check checks that the budget has allowed the given number of attempts (unless allowed is
// negative), that each of them was reported, and that the first reports match outcomes (errors.Is).
func (l *ledger) check(t *testing.T, allowed int, outcomes ...error) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if allowed >= 0 && l.allowed != allowed || len(l.open) > 0 || len(l.outcomes) != l.allowed {
		t.Errorf("%d attempts allowed, %d reported, %d open; want %d", l.allowed, len(l.outcomes),
			len(l.open), allowed)
	}
	if !slices.EqualFunc(l.outcomes[:min(len(outcomes), len(l.outcomes))], outcomes, errors.Is) {
		t.Errorf("outcomes %v, want %v", l.outcomes, outcomes)
	}
}

func TestBudgetIsAskedAndTold(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, begun := newLedger(3), time.Now()
			err := retry.Do(t.Context(), func(context.Context) error {
				return errDown
			}, retry.Options{Policy: fixed, Budget: l})
			e, _ := errors.AsType[*retry.Error](err)
			if !errors.Is(err, retry.ErrBudget) || !errors.Is(err, errRefused) || e.Attempts != 2 {
				t.Errorf("%v: want ErrBudget after the second attempt", err)
			}
			// Allow is called right before the attempt, after the wait.
			if time.Since(begun) != 2*time.Second {
				t.Errorf("refused after %v, want 2s", time.Since(begun))
			}
			l.check(t, 2, errDown, errDown)
		})
	})
	t.Run("first attempt refused", func(t *testing.T) {
		l := newLedger(1)
		err := retry.Do(t.Context(), func(context.Context) error {
			t.Error("it ran")
			return nil
		}, retry.Options{Budget: l})
		if !errors.Is(err, retry.ErrBudget) {
			t.Error(err)
		}
		l.check(t, 0)
	})
	t.Run("success", func(t *testing.T) {
		l, n := newLedger(0), 0
		err := retry.Do(t.Context(), func(context.Context) error {
			if n++; n < 3 {
				return errDown
			}
			return nil
		}, retry.Options{Policy: backoff.Fixed(0), Budget: l})
		if err != nil {
			t.Error(err)
		}
		l.check(t, 3, errDown, errDown, nil)
	})
	t.Run("a failure that is not retried is marked", func(t *testing.T) {
		l := newLedger(0)
		onDown := classify(map[error]retry.Action{errDown: retry.Fail})
		_ = retry.Do(t.Context(), func(context.Context) error {
			return errDown
		}, retry.Options{Budget: l, Classify: onDown})
		l.check(t, 1, errDown)
		if len(l.outcomes) == 1 && retry.Classify(l.outcomes[0]) != retry.Fail {
			t.Errorf("told %v without the mark", l.outcomes[0])
		}
	})
}

func TestBudgetIsToldOfEveryAllowedAttempt(t *testing.T) {
	t.Run("ended while waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger(0)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second/2, cancel)
			_ = retry.Do(ctx, func(context.Context) error {
				return errDown
			}, retry.Options{Policy: fixed, Budget: l})
			l.check(t, 1, errDown)
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
			_ = retry.Do(t.Context(), func(context.Context) error {
				panic("op")
			}, retry.Options{Budget: l})
		}()
		func() {
			defer func() { _ = recover() }()
			for range new(retry.Loop).Attempts(t.Context(), retry.Options{Budget: l}) {
				panic("body")
			}
		}()
		if l.check(t, 2); slices.Contains(l.outcomes, nil) {
			t.Errorf("a panic was reported as success: %v", l.outcomes)
		}
	})
	t.Run("loop", func(t *testing.T) {
		l := newLedger(0)
		var loop retry.Loop
		o := retry.Options{Policy: backoff.Fixed(0), Budget: l}
		for ctx := range loop.Attempts(t.Context(), o) {
			if retry.FromContext(ctx).Number == 3 {
				break
			}
			loop.End(errDown)
		}
		l.check(t, 3, errDown, errDown, nil)
	})
}

// limiter is a typical rate limiter of another package: it waits for permission.
type limiter struct{ next time.Time }

func (l *limiter) Allow(ctx context.Context) error {
	now := time.Now()
	at := l.next
	if at.Before(now) {
		at = now
	}
	l.next = at.Add(10 * time.Second)
	wait(ctx, at.Sub(now))
	return ctx.Err()
}

func (l *limiter) Report(context.Context, error) {}

func TestBudgetThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		l := &limiter{}
		err := retry.Do(t.Context(), failing(2, &starts), retry.Options{Policy: fixed, Budget: l})
		if err != nil || !slices.Equal(starts, seconds(0, 10, 20)) {
			t.Errorf("%v, attempts at %v", err, starts)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = retry.Do(ctx, func(context.Context) error {
			t.Error("it ran")
			return nil
		}, retry.Options{Budget: l})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, retry.ErrBudget) {
			t.Errorf("%v, want the end of the context", err)
		}
		starts = nil
		err = retry.Do(t.Context(), failing(9, &starts),
			retry.Options{Policy: fixed, Budget: l, MaxElapsed: 15 * time.Second})
		if !errors.Is(err, retry.ErrElapsed) || len(starts) != 1 {
			t.Errorf("%v, attempts at %v; want ErrElapsed before the second", err, starts)
		}
	})
}

// TestBudgetBoundsAStorm checks that a failing service receives three times its load without a
// budget, and at most a tenth more with one.
func TestBudgetBoundsAStorm(t *testing.T) {
	for _, c := range []struct {
		budget retry.Budget
		most   int
	}{{nil, 30000}, {retry.Ratio(0.1, 0, time.Minute), 11000},
		{retry.TokenBucket(500, 5, 1), 10100}} {
		attempts := 0
		for range 10000 {
			_ = retry.Do(t.Context(), func(context.Context) error { attempts++; return errDown },
				retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 3, Budget: c.budget})
		}
		if attempts != c.most {
			t.Errorf("%T: %d attempts for 10,000 calls, want %d", c.budget, attempts, c.most)
		}
	}
}

// TestBudgetsWithExtremeSettings checks that huge settings do not overflow, and that NaN counts as
// the lowest setting.
func TestBudgetsWithExtremeSettings(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	first, second := contextOf(t, 1, nil), contextOf(t, 2, errDown)
	for name, c := range map[string]struct {
		budget retry.Budget
		want   int // retries allowed after one successful call, at most 50
	}{
		"token bucket, huge refill": {retry.TokenBucket(10, 5, math.MaxInt), 2},
		"token bucket, huge":        {retry.TokenBucket(math.MaxInt, 1, math.MaxInt), 50},
		"ratio of NaN":              {retry.Ratio(nan, nan, time.Second), 0},
		"ratio of Inf":              {retry.Ratio(inf, 0, time.Second), 50},
		"in flight, NaN":            {retry.InFlight(nan, 1), 1},
		"in flight, Inf":            {retry.InFlight(inf, 1), 50},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.budget.Allow(first); err != nil {
				t.Fatal(err)
			}
			c.budget.Report(first, nil)
			allowed := 0
			for allowed < 50 && c.budget.Allow(second) == nil {
				allowed++
			}
			if allowed != c.want {
				t.Errorf("%d retries were allowed, want %d", allowed, c.want)
			}
		})
	}
	for name, k := range map[string]float64{"NaN": nan, "Inf": inf} {
		t.Run("throttle "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := retry.Throttle(k, nil)
				for n := range 50 {
					if err := budget.Allow(first); err != nil {
						t.Fatalf("call %d, of which all succeeded: %v", n, err)
					}
					budget.Report(first, nil)
				}
			})
		})
	}
}
