package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

var errDown = errors.New("service is down")

// fixed is a policy without randomness, so that instants are exact; atOnce does not wait.
var (
	fixed  = backoff.Fixed(time.Second)
	atOnce = retry.Options{Policy: backoff.Fixed(0)}
)

// failing returns an operation that fails n times and then succeeds, and records when it ran.
func failing(n int, starts *[]time.Duration) func(context.Context) error {
	begun := time.Now()
	return func(context.Context) error {
		*starts = append(*starts, time.Since(begun))
		if len(*starts) <= n {
			return fmt.Errorf("attempt %d: %w", len(*starts), errDown)
		}
		return nil
	}
}

func seconds(list ...float64) (ds []time.Duration) {
	for _, s := range list {
		ds = append(ds, time.Duration(s*float64(time.Second)))
	}
	return ds
}

func TestDo(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		opts     retry.Options
		timeout  time.Duration // of the caller's context
		starts   []time.Duration
		stop     error
		waited   time.Duration
	}{
		{name: "first succeeds", opts: retry.Options{Policy: fixed}, starts: seconds(0)},
		{name: "third succeeds", failures: 2, opts: retry.Options{Policy: fixed},
			starts: seconds(0, 1, 2)},
		{name: "ten attempts by default", failures: 99, opts: retry.Options{Policy: fixed},
			stop:   retry.ErrExhausted,
			starts: seconds(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), waited: 9 * time.Second},
		{name: "three attempts", failures: 99, opts: retry.Options{Policy: fixed, MaxAttempts: 3},
			stop:   retry.ErrExhausted,
			starts: seconds(0, 1, 2), waited: 2 * time.Second},
		{name: "a table has its own end", failures: 99, stop: retry.ErrExhausted,
			opts: retry.Options{Policy: backoff.Table(seconds(1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
				5)...)},
			starts: seconds(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15), waited: 15 * time.Second},
		{name: "a limit is shorter than the table", failures: 99, stop: retry.ErrExhausted,
			opts:   retry.Options{Policy: backoff.Table(seconds(1, 1, 1)...), MaxAttempts: 2},
			starts: seconds(0, 1), waited: time.Second},
		{name: "elapsed: the wait that would pass it is not begun", failures: 99,
			stop:   retry.ErrElapsed,
			opts:   retry.Options{Policy: fixed, MaxElapsed: 2500 * time.Millisecond},
			starts: seconds(0, 1, 2), waited: 2 * time.Second},
		{name: "elapsed: exactly on it is allowed", failures: 99, stop: retry.ErrElapsed,
			opts:   retry.Options{Policy: fixed, MaxElapsed: 2 * time.Second},
			starts: seconds(0, 1, 2), waited: 2 * time.Second},
		{name: "failing", failures: 99, stop: retry.ErrElapsed,
			opts:   retry.Options{Policy: fixed, MaxFailing: 1500 * time.Millisecond},
			starts: seconds(0, 1), waited: time.Second},
		{name: "no count beside a limit of time", failures: 99, stop: retry.ErrElapsed,
			opts:   retry.Options{Policy: fixed, MaxElapsed: 12 * time.Second},
			starts: seconds(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), waited: 12 * time.Second},
		{name: "no count beside a limit of failing", failures: 99, stop: retry.ErrElapsed,
			opts:   retry.Options{Policy: fixed, MaxFailing: 11 * time.Second},
			starts: seconds(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), waited: 11 * time.Second},
		{name: "a count beside a limit of time", failures: 99, stop: retry.ErrExhausted,
			opts:   retry.Options{Policy: fixed, MaxElapsed: time.Hour, MaxAttempts: 2},
			starts: seconds(0, 1), waited: time.Second},
		{name: "deadline: the wait that would outlive it is not begun", failures: 99,
			stop: context.DeadlineExceeded,
			opts: retry.Options{Policy: fixed}, timeout: 2500 * time.Millisecond,
			starts: seconds(0, 1, 2), waited: 2 * time.Second},
		{name: "unlimited ends by the deadline", failures: 99, stop: context.DeadlineExceeded,
			opts: retry.Options{Policy: fixed, MaxAttempts: -1}, timeout: 20 * time.Second,
			starts: seconds(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
			waited: 19 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				var starts []time.Duration
				err := retry.Do(ctx, failing(c.failures, &starts), c.opts)
				if !slices.Equal(starts, c.starts) {
					t.Errorf("attempts at %v, want %v", starts, c.starts)
				}
				if c.stop == nil {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				e, ok := errors.AsType[*retry.Error](err)
				if !ok || !errors.Is(e.Stop, c.stop) || !errors.Is(err, errDown) ||
					e.Attempts != len(c.starts) || e.Waited != c.waited {
					t.Fatalf("%#v, want it stopped by %q after %d attempts and %v of waiting", err,
						c.stop, len(c.starts), c.waited)
				}
				if e.Elapsed != c.waited {
					t.Errorf("elapsed %v, want %v", e.Elapsed, c.waited)
				}
			})
		})
	}
}

// TestMaxFailingLeavesOutTheRunThatFailedFirst checks that a long first attempt that fails is
// retried if only MaxFailing is set (cenkalti/backoff#188).
func TestMaxFailingLeavesOutTheRunThatFailedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		op := func(ctx context.Context) error {
			if n++; n == 1 {
				wait(ctx, time.Hour)
				return errDown
			}
			return nil
		}
		if err := retry.Do(t.Context(), op,
			retry.Options{Policy: fixed, MaxFailing: time.Minute}); err != nil || n != 2 {
			t.Fatalf("%v after %d attempts, want success of the second", err, n)
		}
		n = 0
		err := retry.Do(t.Context(), op, retry.Options{Policy: fixed, MaxElapsed: time.Minute})
		if !errors.Is(err, retry.ErrElapsed) || n != 1 {
			t.Fatalf("%v after %d attempts, want ErrElapsed after the first", err, n)
		}
	})
}

// wait waits for d or until ctx ends, in the virtual time of a bubble.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func TestDoNeverRunsWithADeadContext(t *testing.T) {
	why := errors.New("operator pressed stop")
	t.Run("dead at the call", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		for _, opts := range [][]retry.Options{nil, {{MaxElapsed: time.Hour}}} {
			err := retry.Do(ctx, func(context.Context) error {
				t.Error("the operation ran")
				return nil
			}, opts...)
			e, ok := errors.AsType[*retry.Error](err)
			if !ok || e.Attempts != 0 || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Errorf("%v, want context.Canceled with its cause", err)
			}
		}
	})
	t.Run("dies in the attempt", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		n := 0
		err := retry.Do(ctx, func(context.Context) error {
			n++
			cancel(why)
			return errDown
		}, atOnce)
		if n != 1 || !errors.Is(err, why) || !errors.Is(err, errDown) {
			t.Errorf("%d attempts, %v; want one, with both causes", n, err)
		}
	})
	t.Run("dies in the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(1500*time.Millisecond, func() { cancel(why) })
			n, begun := 0, time.Now()
			err := retry.Do(ctx, func(context.Context) error {
				n++
				return errDown
			}, retry.Options{Policy: fixed})
			e, ok := errors.AsType[*retry.Error](err)
			if !ok || n != 2 || !errors.Is(err, why) ||
				time.Since(begun) != 1500*time.Millisecond || e.Waited != 1500*time.Millisecond {
				t.Errorf("%d attempts in %v, %#v", n, time.Since(begun), err)
			}
		})
	})
	t.Run("a zero wait is no way around it", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := retry.Do(ctx, func(context.Context) error {
			if n++; n == 1000 {
				cancel()
			}
			return errDown
		}, retry.Options{Policy: backoff.Fixed(0), MaxAttempts: -1})
		if n != 1000 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d attempts, %v; want 1000 and canceled", n, err)
		}
	})
}

// TestStopBeforeTheDeadline checks that a stop before a wait that would outlive the deadline is
// reported as a timeout, and matches context.DeadlineExceeded.
func TestStopBeforeTheDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := retry.Do(ctx, func(context.Context) error {
		return errDown
	}, retry.Options{Policy: backoff.Fixed(time.Hour)})
	e, ok := errors.AsType[*retry.Error](err)
	if !ok || !errors.Is(e.Stop, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		!e.Timeout() || ctx.Err() != nil {
		t.Errorf("%v; want DeadlineExceeded, a timeout, before the deadline", err)
	}
}

func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, begun := 0, time.Now()
		err := retry.Do(t.Context(), func(ctx context.Context) error {
			if n++; n == 3 {
				return nil
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != retry.ErrAttemptTimeout {
				t.Errorf("cause %v", cause)
			}
			return ctx.Err()
		}, retry.Options{Policy: fixed, AttemptTimeout: 4 * time.Second})
		if err != nil || n != 3 || time.Since(begun) != 10*time.Second {
			t.Errorf("%v after %d attempts and %v, want success of the third at 10s", err, n,
				time.Since(begun))
		}
	})
}

func TestPermanent(t *testing.T) {
	bad := errors.New("no such account")
	for name, err := range map[string]error{
		"itself":              retry.Permanent(bad),
		"wrapped":             fmt.Errorf("pay: %w", retry.Permanent(bad)),
		"joined":              errors.Join(errDown, retry.Permanent(bad)),
		"around a hint":       retry.Permanent(retry.After(time.Hour, bad)),
		"beneath a hint":      retry.After(time.Hour, retry.Permanent(bad)),
		"on the last attempt": retry.Permanent(bad),
		"from a retry within": &retry.Error{Stop: retry.ErrNested, Last: retry.Permanent(bad),
			Errs: []error{bad}},
		"whatever Classify has": retry.Permanent(bad),
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			o := retry.Options{Classify: func(error) retry.Action { return retry.Retry }}
			if name == "on the last attempt" {
				o.MaxAttempts = 1
			}
			got := retry.Do(t.Context(), func(context.Context) error { n++; return err }, o)
			e, ok := errors.AsType[*retry.Error](got)
			if !ok || n != 1 || e.Stop != retry.ErrPermanent || !errors.Is(got, bad) {
				t.Errorf("%d attempts, %v; want one and ErrPermanent", n, got)
			}
		})
	}
	if retry.Permanent(nil) != nil {
		t.Error("Permanent(nil) is not nil")
	}
}

func TestErrorKeepsFirstAndLast(t *testing.T) {
	n := 0
	err := retry.Do(t.Context(), func(context.Context) error {
		n++
		return fmt.Errorf("failure %d", n)
	},
		retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 100})
	e, ok := errors.AsType[*retry.Error](err)
	if !ok {
		t.Fatal(err)
	}
	var got []string
	for _, err := range e.Errs {
		got = append(got, strings.TrimPrefix(err.Error(), "failure "))
	}
	if want := "1 94 95 96 97 98 99 100"; strings.Join(got, " ") != want ||
		e.Last.Error() != "failure 100" {
		t.Errorf("kept %v, last %q; want %s", got, e.Last, want)
	}
	if want := "failure 100 (no attempts left, attempt 100)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

type refusal struct{}

func (refusal) Error() string { return "breaker is open" }
func (refusal) Refused() bool { return true }

func TestErrorText(t *testing.T) {
	refused := fmt.Errorf("get: %w", refusal{})
	for want, e := range map[string]*retry.Error{
		"no (not retryable, attempt 1)": {Stop: retry.ErrPermanent, Attempts: 1,
			Last: errors.New("no")},
		"context canceled": {Stop: context.Canceled},
		"busy (context canceled, attempt 3)": {Stop: context.Canceled, Attempts: 3,
			Last: errors.New("busy")},
		"no (no attempts left, attempt 2 after 2s)": {Stop: retry.ErrExhausted, Attempts: 2,
			Elapsed: 2e9, Last: errors.New("no")},
		"busy (asked to wait too long, attempt 2, asked to wait 1h0m0s)": {
			Stop: retry.ErrHint, Attempts: 2, After: time.Hour, Last: errors.New("busy")},
		"get: breaker is open (no attempts left, attempt 1)": {Stop: retry.ErrExhausted,
			Attempts: 1, Last: refused, Errs: []error{refused}},
		"get: breaker is open, after no route (no attempts left, attempt 4)": {
			Stop: retry.ErrExhausted, Attempts: 4, Last: refused,
			Errs: []error{errors.New("busy"), errors.New("no route"), refused, refused}},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
	}
}

func TestValue(t *testing.T) {
	n := 0
	v, err := retry.Value(t.Context(), func(context.Context) (int, error) {
		if n++; n < 3 {
			return n, errDown
		}
		return n, nil
	}, atOnce)
	if v != 3 || err != nil {
		t.Errorf("%v, %v; want 3", v, err)
	}
	v, err = retry.Value(t.Context(), func(context.Context) (int, error) {
		return 7, retry.Permanent(errDown)
	})
	if v != 0 || !errors.Is(err, errDown) {
		t.Errorf("%v, %v; want 0 and the failure", v, err)
	}
}

// TestDefaults checks the default policy: ten attempts, each wait drawn from [0, min(30 s, 100 ms *
// 2^n)].
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits [10]time.Duration
		last, seen := time.Now(), 0
		for range 50 {
			n := 0
			err := retry.Do(t.Context(), func(context.Context) error {
				if n > 0 {
					d := time.Since(last)
					if ceiling := min(30*time.Second, 100*time.Millisecond<<(n-1)); d > ceiling {
						t.Errorf("wait %d is %v, above %v", n, d, ceiling)
					}
					waits[n] = max(waits[n], d)
				}
				n, last = n+1, time.Now()
				seen++
				return errDown
			})
			if !errors.Is(err, retry.ErrExhausted) || n != 10 {
				t.Fatalf("%d attempts, %v", n, err)
			}
		}
		if waits[9] < 10*time.Second {
			t.Errorf("the longest of 50 ninth waits is %v: it has not grown", waits[9])
		}
	})
}

func TestAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	succeed := func(context.Context) error { return nil }
	second := func(context.Context) error {
		if n++; n%2 == 1 {
			return errDown
		}
		return nil
	}
	value := func(context.Context) (string, error) { return "v", nil }
	policy := backoff.Fixed(0)
	limits := retry.Options{Policy: policy, MaxAttempts: 5, MaxElapsed: time.Hour,
		Budget: retry.TokenBucket(500, 5, 1)}
	check := func(name string, want float64, f func()) {
		t.Helper()
		if got := testing.AllocsPerRun(1000, f); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	three := retry.Options{MaxAttempts: 3, Policy: policy}
	check("Do, success", 0, func() { must(retry.Do(ctx, succeed)) })
	check("Do, success, context.Background", 0, func() {
		must(retry.Do(context.Background(), succeed))
	})
	check("Do, success, options", 0, func() { must(retry.Do(ctx, succeed, three)) })
	check("Do, success, limits and budget", 0, func() { must(retry.Do(ctx, succeed, limits)) })
	check("Value, success", 0, func() { _, err := retry.Value(ctx, value); must(err) })
	check("Value, success, options", 0, func() {
		_, err := retry.Value(ctx, value, three)
		must(err)
	})
	check("Loop, success", 0, func() {
		var loop retry.Loop
		for ctx := range loop.Attempts(ctx) {
			loop.End(succeed(ctx))
		}
		must(loop.Err())
	})
	// One allocation: the context of the second attempt.
	check("Do, one retry", 1, func() { must(retry.Do(ctx, second, three)) })
	check("Do, one retry, limits and budget", 1, func() { must(retry.Do(ctx, second, limits)) })
	check("Loop, one retry", 1, func() {
		var loop retry.Loop
		for ctx := range loop.Attempts(ctx, three) {
			loop.End(second(ctx))
		}
		must(loop.Err())
	})
}

// TestExactHintEnds checks that hints do not prolong a policy that ends by itself.
func TestExactHintEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := retry.Do(t.Context(), func(context.Context) error {
			if calls++; calls > 100 {
				return retry.Permanent(errDown)
			}
			return retry.After(time.Second, errDown)
		}, retry.Options{ExactHint: true, Policy: backoff.Limit(fixed, 3)})
		if calls != 3 || !errors.Is(err, retry.ErrExhausted) {
			t.Errorf("%d calls, %v; want 3 and ErrExhausted", calls, err)
		}
	})
}

// hour is a policy that waits a minute each time, and gives up after an hour.
type hour struct{}

func (hour) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	if s.Slept >= time.Hour {
		return 0, s, false
	}
	return time.Minute, s.After(time.Minute), true
}

// TestPolicyEndsByTime checks that the default number of attempts does not limit a policy that ends
// after a time.
func TestPolicyEndsByTime(t *testing.T) {
	for _, exact := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var starts []time.Duration
			op := failing(1000, &starts)
			err := retry.Do(t.Context(), func(ctx context.Context) error {
				return retry.After(time.Second, op(ctx))
			}, retry.Options{Policy: hour{}, ExactHint: exact})
			if len(starts) != 61 || !errors.Is(err, retry.ErrExhausted) {
				t.Errorf("exact hints %v: %d attempts, %v; want 61", exact, len(starts), err)
			}
		})
	}
}

func TestZeroErrorText(t *testing.T) {
	if got := (&retry.Error{}).Error(); got != "stopped" {
		t.Errorf("the zero Error is %q", got)
	}
	if got := (&retry.Error{}).LogValue().Group()[0].Value.String(); got != "stopped" {
		t.Errorf("the reason in the log value of the zero Error is %q", got)
	}
}
