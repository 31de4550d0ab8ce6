package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retry"
)

var errDown = errors.New("down")

func newBreaker(t *testing.T, o breaker.Options) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// do makes a call that ends with err, and returns the error of Do.
func do(b *breaker.Breaker, err error) error {
	return b.Do(context.Background(), func(context.Context) error { return err })
}

// wait returns the time for which an open breaker refuses calls, or -1 if err is no refusal.
func wait(err error) time.Duration {
	if e, ok := errors.AsType[*breaker.OpenError](err); ok {
		return e.RetryAfter()
	}
	return -1
}

func TestOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		b := newBreaker(t, breaker.Options{
			Failures: 3, Wait: backoff.Exponential(time.Second, 2, time.Minute),
			OnChange: func(c breaker.Change) {
				changes = append(changes, fmt.Sprint(c.From, " ", c.To, " ", c.Wait, " ", c.Err))
			},
		})
		for _, err := range []error{errDown, errDown, nil, errDown, errDown, context.Canceled,
			errDown} {
			if got := do(b, err); got != err {
				t.Fatalf("Do returned %v, want the error of the call, %v", got, err)
			}
		}
		if b.State() != breaker.Open || wait(do(b, nil)) != time.Second {
			t.Errorf("after 3 failures in a row: %v, %v", b.State(), do(b, nil))
		}
		time.Sleep(time.Second)
		probe, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		if err := do(b, nil); wait(err) != 0 || !strings.Contains(err.Error(), "half-open") {
			t.Errorf("beside a probe: %v, want a refusal", err)
		}
		probe.Done(errDown)
		if w := wait(do(b, nil)); w != 2*time.Second {
			t.Errorf("after a probe that failed it waits %v, want 2s", w)
		}
		time.Sleep(2 * time.Second)
		if err := do(b, nil); err != nil || b.State() != breaker.Closed {
			t.Errorf("after a probe that succeeded: %v, %v", b.State(), err)
		}
		want := "closed open 1s down,open half-open 0s <nil>,half-open open 2s down,open " +
			"half-open 0s <nil>," +
			"half-open closed 0s <nil>"
		if got := strings.Join(changes, ","); got != want {
			t.Errorf("changes %s\nwant    %s", got, want)
		}
	})
}

func TestOpensByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := breaker.Options{Failures: -1, FailureRate: 0.3, MinCalls: 10, Window: time.Minute}
		b := newBreaker(t, o)
		calls := func(successes, failures int) {
			for range successes {
				do(b, nil)
			}
			for range failures {
				do(b, errDown)
			}
		}
		calls(0, 9)
		if b.State() != breaker.Closed {
			t.Errorf("9 calls opened it, want at least 10")
		}
		time.Sleep(time.Minute)
		calls(21, 8)
		if b.State() != breaker.Closed {
			t.Errorf("8 failures of 29 opened it, want 30%%: those before the window count no more")
		}
		calls(0, 1)
		if b.State() != breaker.Open {
			t.Errorf("9 failures of 30 did not open it")
		}
	})
}

func TestWaitGrowsForARelapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t,
			breaker.Options{Failures: 1, Wait: backoff.Exponential(time.Second, 4, time.Hour)})
		fail := func() time.Duration {
			do(b, errDown)
			return wait(do(b, nil))
		}
		recover := func() {
			t.Helper()
			if err := do(b, nil); err != nil || b.State() != breaker.Closed {
				t.Errorf("the probe ended with %v, state %v", err, b.State())
			}
		}
		if w := fail(); w != time.Second {
			t.Errorf("first wait %v, want 1s", w)
		}
		time.Sleep(time.Second)
		recover()
		if w := fail(); w != 4*time.Second {
			t.Errorf("after a relapse at once it waits %v, want 4s", w)
		}
		time.Sleep(4 * time.Second)
		recover()
		time.Sleep(4 * time.Second)
		if w := fail(); w != time.Second {
			t.Errorf("after 4s of health it waits %v, want 1s", w)
		}
	})
}

func TestWaitPolicyThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t,
			breaker.Options{Failures: 1, Wait: backoff.Limit(backoff.Fixed(time.Second), 2)})
		for range 4 {
			do(b, errDown)
			if w := wait(do(b, nil)); w != time.Second {
				t.Fatalf("it waits %v, want 1s", w)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Options{
			Failures: 1, Probes: 3, ProbeTimeout: 10 * time.Second,
			Wait: backoff.Fixed(time.Second),
		})
		allow := func() breaker.Call {
			t.Helper()
			c, err := b.Allow()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		stale := allow()
		do(b, errDown)
		stale.Done(nil) // started before it opened
		if b.State() != breaker.Open {
			t.Error("a call from before it opened closed it")
		}
		time.Sleep(time.Second)
		first, second, third := allow(), allow(), allow()
		if _, err := b.Allow(); err == nil {
			t.Error("a fourth probe was let through")
		}
		first.Done(nil)
		second.Done(context.Canceled)
		if b.State() != breaker.HalfOpen {
			t.Errorf("after one success of 3 it is %v", b.State())
		}
		allow().Done(nil) // in place of the second
		if _, err := b.Allow(); err == nil {
			t.Error("a probe beyond 3 was let through")
		}
		third.Done(nil)
		if b.State() != breaker.Closed {
			t.Errorf("after 3 successes it is %v", b.State())
		}

		do(b, errDown)
		time.Sleep(time.Second)
		lost := []breaker.Call{allow(), allow(), allow()}
		time.Sleep(10 * time.Second)
		if w := wait(do(b, nil)); w != time.Second {
			t.Errorf("after probes that never end it waits %v, want 1s", w)
		}
		for _, c := range lost {
			c.Done(nil)
		}
		time.Sleep(time.Second)
		for range 3 {
			if err := do(b, nil); err != nil {
				t.Errorf("a probe after those that were lost: %v", err)
			}
		}
		if b.State() != breaker.Closed {
			t.Errorf("in the end it is %v", b.State())
		}
	})
}

type hinted time.Duration

func (hinted) Error() string               { return "busy" }
func (h hinted) RetryAfter() time.Duration { return time.Duration(h) }

func TestServerHintProlongsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Options{Failures: 2, Wait: backoff.Fixed(time.Second)})
		do(b, hinted(time.Hour))
		do(b, fmt.Errorf("call: %w", hinted(30*time.Second)))
		if w := wait(do(b, nil)); w != 30*time.Second {
			t.Errorf("it waits %v, want the 30s that the server asked for", w)
		}
	})
}

func TestPanicIsAFailure(t *testing.T) {
	b := newBreaker(t, breaker.Options{Failures: 1})
	func() {
		defer func() {
			if v := recover(); v != "oh" {
				t.Errorf("recovered %v, want the panic of the call", v)
			}
		}()
		_ = b.Do(t.Context(), func(context.Context) error { panic("oh") })
	}()
	if b.State() != breaker.Open {
		t.Errorf("after a panic it is %v, want open", b.State())
	}
}

// TestOnChangeMayUseTheBreaker checks that OnChange is called in order and one call at a time even
// if it causes further changes.
func TestOnChangeMayUseTheBreaker(t *testing.T) {
	var b *breaker.Breaker
	var order []breaker.State
	inside := false
	b = newBreaker(t,
		breaker.Options{Failures: 1, Wait: backoff.Fixed(0), OnChange: func(c breaker.Change) {
			if inside {
				t.Error("OnChange is called within OnChange")
			}
			inside = true
			order = append(order, c.To)
			if c.To == breaker.Open {
				do(b, nil) // half-open, closed
			}
			inside = false
		}})
	do(b, errDown)
	if got := fmt.Sprint(order); got != "[open half-open closed]" {
		t.Errorf("changes are %v", got)
	}
}

// TestPanicOfOnChange checks that the breaker lets the next probe through if OnChange panics when a
// probe begins.
func TestPanicOfOnChange(t *testing.T) {
	b := newBreaker(t,
		breaker.Options{Failures: 1, Wait: backoff.Fixed(0), OnChange: func(c breaker.Change) {
			if c.From == breaker.Open {
				panic("on change")
			}
		}})
	do(b, errDown)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of OnChange was swallowed")
			}
		}()
		b.Allow()
	}()
	if _, err := b.Allow(); err != nil {
		t.Errorf("after a panic of OnChange: %v, want a probe", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	var mu sync.Mutex
	last := breaker.Closed
	b := newBreaker(t,
		breaker.Options{Failures: 2, Wait: backoff.Fixed(0), OnChange: func(c breaker.Change) {
			mu.Lock()
			defer mu.Unlock()
			if c.From != last {
				t.Errorf("change from %v after one to %v", c.From, last)
			}
			last = c.To
		}})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 2000 {
				err := error(nil)
				if (i+j)%3 > 0 {
					err = errDown
				}
				do(b, err)
			}
		})
	}
	group.Wait()
	if last != b.State() {
		t.Errorf("the last change was to %v, the state is %v", last, b.State())
	}
}

func TestOptionsThatAreInvalid(t *testing.T) {
	for _, v := range []struct {
		options breaker.Options
		want    string
	}{
		{breaker.Options{FailureRate: 1.1}, "FailureRate"},
		{breaker.Options{Failures: -1, FailureRate: -1}, "both negative"},
		{breaker.Options{Window: -1}, "Window"},
		{breaker.Options{MinCalls: -1}, "MinCalls"},
		{breaker.Options{Probes: -1}, "Probes"},
		{breaker.Options{ProbeTimeout: -1}, "ProbeTimeout"},
		{breaker.Options{Wait: backoff.Fixed(-1)}, "Wait"},
	} {
		if _, err := breaker.New(v.options); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("New(%+v) returned %v, want an error with %q", v.options, err, v.want)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	for _, v := range []struct {
		err  error
		want breaker.Outcome
	}{
		{nil, breaker.Success},
		{errDown, breaker.Failure},
		{context.DeadlineExceeded, breaker.Failure},
		{fmt.Errorf("call: %w", context.Canceled), breaker.Ignored},
		{&breaker.OpenError{}, breaker.Ignored},
	} {
		if got := breaker.OutcomeOf(v.err); got != v.want {
			t.Errorf("OutcomeOf(%v) = %v, want %v", v.err, got, v.want)
		}
	}
	if got := fmt.Sprint(breaker.State(7), breaker.Outcome(7)); got != "State(7) Outcome(7)" {
		t.Errorf("unknown values are %s", got)
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Options{Failures: 2, Wait: backoff.Fixed(time.Second)})
		budget := b.Budget()
		attempt := func(err error) error {
			ctx, cancel := context.WithCancel(t.Context()) // each attempt has its own
			defer cancel()
			if refusal := budget.Allow(ctx); refusal != nil {
				return refusal
			}
			budget.Report(ctx, err)
			budget.Report(ctx, err) // does nothing
			return nil
		}
		if err := errors.Join(attempt(errDown), attempt(errDown)); err != nil {
			t.Fatal(err)
		}
		if w := wait(attempt(nil)); w != time.Second {
			t.Errorf("after 2 failures an attempt is refused for %v, want 1s", w)
		}
		time.Sleep(time.Second)
		if err := attempt(nil); err != nil || b.State() != breaker.Closed {
			t.Errorf("a probe: %v, %v", err, b.State())
		}
	})
}

func TestNoAllocations(t *testing.T) {
	b := newBreaker(t, breaker.Options{Failures: -1, FailureRate: 1})
	ctx := t.Context()
	f := func(context.Context) error { return nil }
	fails := func(context.Context) error { return errDown }
	n := testing.AllocsPerRun(1000, func() {
		if b.Do(ctx, f) != nil || b.Do(ctx, fails) != errDown {
			t.Fatal("refused")
		}
	})
	if n != 0 {
		t.Errorf("Do allocates %v times, want 0", n)
	}
}

// TestRetryBudget checks that the budget of a breaker stops the retries of all calls once the
// server fails. Unneeded hedges do not count against the server, nor do responses that are not
// retried.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Options{Failures: 4, Wait: backoff.Fixed(time.Minute)})
		o := retry.Options{Budget: b.Budget(), Policy: backoff.Fixed(0), MaxElapsed: time.Second}
		attempts := 0
		call := func(err error) error {
			return retry.Do(t.Context(), func(context.Context) error { attempts++; return err }, o)
		}
		for range 10 {
			if err := call(&retry.StatusError{Status: 404, Text: "404 Not Found"}); !errors.Is(err,
				retry.ErrPermanent) {
				t.Fatal(err)
			}
			_, err := retry.Hedge(t.Context(), func(ctx context.Context) (int, error) {
				if retry.FromContext(ctx).Number > 1 {
					return 1, nil
				}
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}, retry.HedgeOptions{Delay: time.Second, Budget: o.Budget}, nil)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // for the report of the attempt that lost
		}
		if b.State() != breaker.Closed {
			t.Fatalf("%v after answers of 404 and hedges, want closed", b.State())
		}
		attempts = 0
		err := call(errDown)
		if _, ok := errors.AsType[*breaker.OpenError](err); !ok ||
			!errors.Is(err, retry.ErrBudget) || attempts != 4 {
			t.Errorf("%d attempts and %v, want 4 and an open breaker", attempts, err)
		}
		if err = call(errDown); attempts != 4 || !errors.Is(err, retry.ErrBudget) {
			t.Errorf("another call made %d attempts and returned %v, want none", attempts-4, err)
		}
	})
}
