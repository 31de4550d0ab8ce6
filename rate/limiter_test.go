package rate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/retry"
)

const ms = time.Millisecond

func newLimiter(t *testing.T, o rate.Options) *rate.Limiter {
	t.Helper()
	l, err := rate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refusal returns the reason and the wait of err.
func refusal(err error) (rate.Reason, time.Duration) {
	if e, ok := errors.AsType[*rate.RefusedError](err); ok {
		return e.Reason, e.RetryAfter()
	}
	return 0, 0
}

func TestAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, rate.Options{Events: 10, Burst: 3})
		if !l.AllowN(3) || l.Allow() {
			t.Error("want a burst of 3 and no more")
		}
		time.Sleep(100 * ms)
		if !l.Allow() || l.Allow() {
			t.Error("want one event after 100ms")
		}
		if !l.AllowN(0) {
			t.Error("no event is refused")
		}
		unlimited := newLimiter(t, rate.Options{})
		for range 1000 {
			if !unlimited.Allow() {
				t.Fatal("without a limit an event is refused")
			}
		}
	})
}

func TestWaitersGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, rate.Options{Events: 60, Per: time.Minute})
		began := time.Now()
		var mu sync.Mutex
		var order []string
		var group sync.WaitGroup
		for i, n := range []int{1, 1, 1, 1} {
			group.Go(func() {
				if err := l.WaitN(t.Context(), n); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(i, "@", time.Since(began)))
			})
			synctest.Wait()
		}
		if l.Allow() || l.Status().Waiting != 3 || l.Status().ExpectedWait != 4*time.Second {
			t.Errorf("beside three that wait: status %+v", l.Status())
		}
		group.Wait()
		if got := strings.Join(order, " "); got != "0@0s 1@1s 2@2s 3@3s" {
			t.Errorf("events: %s", got)
		}
	})
}

// TestWaiterThatGivesUp checks that callers behind one that gives up proceed sooner.
func TestWaiterThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, rate.Options{Events: 1, Burst: 5})
		l.AllowN(5)
		began := time.Now()
		cause := errors.New("no longer needed")
		ctx, cancel := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := l.WaitN(ctx, 5); err != cause {
				t.Errorf("a waiter whose context ended got %v, want its cause", err)
			}
		})
		synctest.Wait()
		group.Go(func() {
			if err := l.Wait(t.Context()); err != nil || time.Since(began) != 2*time.Second {
				t.Errorf("the one behind: %v after %v, want 2s", err, time.Since(began))
			}
		})
		time.Sleep(2 * time.Second)
		cancel(cause)
		group.Wait()
		if err := l.Wait(ctx); err != cause {
			t.Errorf("a context that had ended: %v, want its cause", err)
		}
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, rate.Options{Events: 1, Burst: 2, MaxWaiting: 1})
		if why, _ := refusal(l.WaitN(t.Context(), 3)); why != rate.TooMany {
			t.Errorf("3 events of a burst of 2: %v", why)
		}
		if _, ok := l.Reserve(3); ok {
			t.Error("3 events of a burst of 2 are reserved")
		}
		l.AllowN(2)
		var group sync.WaitGroup
		group.Go(func() { _ = l.Wait(t.Context()) })
		synctest.Wait()
		soon, cancel := context.WithTimeout(t.Context(), 1900*ms)
		defer cancel()
		began := time.Now()
		why, wait := refusal(l.Wait(soon))
		if why != rate.DeadlineSoon || wait != 2*time.Second || time.Since(began) != 0 {
			t.Errorf("a deadline too soon: %v, wait %v, after %v; want a refusal at once", why,
				wait, time.Since(began))
		}
		err := l.Wait(t.Context())
		if err == nil || err.Error() != "rate limit: queue is full (expected wait 2s)" {
			t.Errorf("behind one that waits: %v, want a full queue", err)
		}
		group.Wait()
	})
}

func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, rate.Options{Events: 1})
		delays := func(want ...time.Duration) (last rate.Reservation) {
			t.Helper()
			for i, d := range want {
				r, ok := l.Reserve(1)
				if !ok || r.Delay != d {
					t.Errorf("reservation %d: delay %v, %v; want %v", i, r.Delay, ok, d)
				}
				last = r
			}
			return last
		}
		last := delays(0, time.Second, 2*time.Second)
		last.Cancel()
		last = delays(2 * time.Second)
		time.Sleep(2 * time.Second)
		last.Cancel() // too late
		delays(time.Second)
		rate.Reservation{}.Cancel() // the zero value does nothing
	})
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, rate.Options{})
		l.Observe(rate.Advice{RetryAfter: 10 * time.Second})
		if s := l.Status(); s.PausedFor < 10*time.Second || s.PausedFor > 11*time.Second ||
			s.Remaining != -1 {
			t.Errorf("status in a pause of 10s: %+v", s)
		}
		began := time.Now()
		if err := l.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("waited %v, want 10s and up to a tenth more", d)
		}
		// A pause that is observed while a caller waits delays that caller.
		slow := newLimiter(t, rate.Options{Events: 1})
		slow.Allow()
		var group sync.WaitGroup
		began = time.Now()
		group.Go(func() {
			if err := slow.Wait(t.Context()); err != nil || time.Since(began) < time.Minute {
				t.Errorf("waited %v, %v; want the pause to hold it back", time.Since(began), err)
			}
		})
		synctest.Wait()
		slow.Observe(rate.Advice{RetryAfter: time.Minute})
		group.Wait()
		slow.Observe(rate.Advice{Remaining: 7, Reset: time.Minute})
		if got := slow.Status().Remaining; got != 7 {
			t.Errorf("%d remain, want 7", got)
		}
	})
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newLimiter(t, rate.Options{Events: 1}).Budget()
		began := time.Now()
		for range 3 {
			if err := budget.Allow(t.Context()); err != nil {
				t.Error(err)
			}
			budget.Report(t.Context(), errors.New("failed"))
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("three attempts took %v, want 2s", d)
		}
	})
}

// TestRetryBudget checks that the retries of two calls share one rate.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := retry.Options{
			Budget: newLimiter(t, rate.Options{Events: 1}).Budget(), Policy: backoff.Fixed(0),
			MaxAttempts: 3,
		}
		began := time.Now()
		var attempts atomic.Int64
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				err := retry.Do(t.Context(), func(context.Context) error {
					attempts.Add(1)
					return errors.New("failed")
				}, o)
				if !errors.Is(err, retry.ErrExhausted) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if d := time.Since(began); attempts.Load() != 6 || d != 5*time.Second {
			t.Errorf("%d attempts took %v, want 6 in 5s", attempts.Load(), d)
		}
	})
}

// TestRateIsKept checks that no period has more events than burst and rate allow. It also checks
// that callers that give up do not lower the rate for the others.
func TestRateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 5
		l := newLimiter(t, rate.Options{Events: 100, Burst: burst})
		var mu sync.Mutex
		var events []time.Time
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				for j := range 50 {
					ctx, cancel := context.WithCancel(t.Context())
					if (i+j)%3 == 0 { // no deadline, so that it waits at first
						time.AfterFunc(time.Duration(i)*10*ms, cancel)
					}
					if l.Wait(ctx) == nil {
						mu.Lock()
						events = append(events, time.Now())
						mu.Unlock()
					}
					cancel()
				}
			})
		}
		group.Wait()
		for i := range events {
			for j := i; j < len(events); j++ {
				if most := burst + 100*events[j].Sub(events[i]).Seconds() +
					1e-3; float64(j-i+1) > most {
					t.Fatalf("%d events in %v, want at most %v", j-i+1, events[j].Sub(events[i]),
						most)
				}
			}
		}
		span := events[len(events)-1].Sub(events[0]).Seconds()
		if n := len(events); float64(n) < 100*span {
			t.Errorf("%d events in %vs, want 100 a second", n, span)
		}
	})
}

func TestOptionsThatAreInvalid(t *testing.T) {
	for _, v := range []struct {
		options rate.Options
		want    string
	}{
		{rate.Options{Events: -1}, "Events"},
		{rate.Options{Per: -1}, "Per"},
		{rate.Options{Burst: -1}, "Burst"},
		{rate.Options{MaxPause: -1}, "MaxPause"},
	} {
		if _, err := rate.New(v.options); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("New(%+v) returned %v, want an error with %q", v.options, err, v.want)
		}
	}
	none := newLimiter(t, rate.Options{Events: 1, MaxWaiting: -1})
	none.Allow()
	if why, _ := refusal(none.Wait(t.Context())); why != rate.QueueFull ||
		rate.Reason(0).String() != "Reason(0)" {
		t.Errorf("without a queue: %v, want a refusal", why)
	}
}

func TestNoAllocations(t *testing.T) {
	l := newLimiter(t, rate.Options{Events: 1e9, Burst: 1e6})
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		r, _ := l.Reserve(1)
		r.Cancel()
		if !l.Allow() || l.Wait(ctx) != nil {
			t.Fatal("refused")
		}
	})
	if n != 0 {
		t.Errorf("Allow, Wait and Reserve allocate %v times, want 0", n)
	}
}
