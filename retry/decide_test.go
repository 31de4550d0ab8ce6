package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// classify returns a classification by errors.Is, with Undecided for other errors.
func classify(actions map[error]retry.Action) func(error) retry.Action {
	return func(err error) retry.Action {
		for target, action := range actions {
			if errors.Is(err, target) {
				return action
			}
		}
		return retry.Undecided
	}
}

func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var visits []string
		err := retry.Do(t.Context(), func(ctx context.Context) error {
			a := retry.FromContext(ctx)
			visits = append(visits,
				fmt.Sprintf("%d: target %d at %v", a.Number, a.Target, time.Since(begun)))
			if a.Number == 6 {
				return errors.New("this one is no reason to move")
			}
			return errDown
		}, retry.Options{
			Policy: fixed, Targets: 3, MaxAttempts: 8,
			Classify: classify(map[error]retry.Action{errDown: retry.Failover}),
		})
		want := []string{
			// All targets are tried before the first wait.
			"1: target 0 at 0s", "2: target 1 at 0s", "3: target 2 at 0s",
			"4: target 0 at 1s", "5: target 1 at 1s", "6: target 2 at 1s",
			"7: target 2 at 2s", "8: target 0 at 3s",
		}
		if !slices.Equal(visits, want) || !errors.Is(err, retry.ErrExhausted) {
			t.Errorf("%v\n%q, want\n%q", err, visits, want)
		}
	})
}

func TestRefresh(t *testing.T) {
	stale := errors.New("token expired")
	onStale := classify(map[error]retry.Action{stale: retry.Refresh})
	synctest.Test(t, func(t *testing.T) {
		refreshes, token, begun := 0, 0, time.Now()
		var starts []time.Duration
		renew := func(ctx context.Context) error {
			refreshes++
			if a := retry.FromContext(ctx); a.Number != refreshes {
				t.Errorf("refresh %d has the context of attempt %d", refreshes, a.Number)
			}
			if refreshes == 2 {
				return errors.New("login service is down")
			}
			token++
			return nil
		}
		err := retry.Do(t.Context(), func(context.Context) error {
			starts = append(starts, time.Since(begun))
			if token < 2 {
				return stale
			}
			return nil
		}, retry.Options{Policy: fixed, Refresh: renew, Classify: onStale})
		// The attempt after the first refresh starts at once. The token is still refused, so each
		// later refresh waits first, as the policy demands.
		if want := seconds(0, 0, 1, 2); err != nil || !slices.Equal(starts, want) ||
			refreshes != 3 {
			t.Errorf("%v, attempts at %v, want %v; %d refreshes", err, starts, want, refreshes)
		}
	})
	t.Run("without a way to refresh", func(t *testing.T) {
		err := retry.Do(t.Context(), func(context.Context) error {
			return stale
		}, retry.Options{Classify: onStale})
		if !errors.Is(err, retry.ErrPermanent) {
			t.Errorf("%v, want ErrPermanent", err)
		}
	})
	t.Run("with a permanent failure", func(t *testing.T) {
		fired := errors.New("account closed")
		err := retry.Do(t.Context(), func(context.Context) error { return stale }, retry.Options{
			Classify: onStale, Refresh: func(context.Context) error {
				return retry.Permanent(fired)
			},
		})
		if !errors.Is(err, retry.ErrPermanent) || !errors.Is(err, fired) || !errors.Is(err, stale) {
			t.Errorf("%v, want ErrPermanent with both causes", err)
		}
	})
}

// TestProgress checks that attempts and waits are counted from a failure with the action Progress.
// An example is the failure of a stream that ran for an hour before it broke.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		n, begun := 0, time.Now()
		progress := errors.New("stream broke after an hour")
		err := retry.Do(t.Context(), func(context.Context) error {
			starts = append(starts, time.Since(begun))
			if n++; n == 3 {
				return progress
			}
			return errDown
		}, retry.Options{
			Policy: backoff.Linear(time.Second, time.Second, 0), MaxAttempts: 3,
			Classify: classify(map[error]retry.Action{progress: retry.Progress}),
		})
		e, _ := errors.AsType[*retry.Error](err)
		if want := seconds(0, 1, 3, 4, 6); !slices.Equal(starts, want) || e.Attempts != 5 {
			t.Errorf("attempts at %v, want %v; %v", starts, want, err)
		}
	})
}

func TestHints(t *testing.T) {
	for _, c := range []struct {
		name     string
		hint     time.Duration
		policy   time.Duration
		limit    retry.Options
		low, top time.Duration
		stop     error
	}{
		{name: "longer than the policy", hint: 10 * time.Second, policy: time.Second,
			low: 10 * time.Second, top: 11 * time.Second},
		{name: "shorter than the policy", hint: time.Second, policy: 10 * time.Second,
			low: 10 * time.Second, top: 10 * time.Second},
		{name: "instead of the policy", hint: time.Second, policy: 10 * time.Second,
			limit: retry.Options{ExactHint: true},
			low:   time.Second, top: time.Second},
		{name: "none at all instead of the policy", hint: -1, policy: 10 * time.Second,
			limit: retry.Options{ExactHint: true}},
		{name: "negative beside a policy", hint: -time.Hour, policy: time.Second, low: time.Second,
			top: time.Second},
		{name: "too long by default", hint: 5*time.Minute + 1, policy: time.Second,
			stop: retry.ErrHint},
		{name: "longest by default", hint: 5 * time.Minute, policy: time.Second,
			low: 5 * time.Minute, top: 330 * time.Second},
		{name: "clamped", hint: time.Hour, policy: time.Second,
			limit: retry.Options{MaxHint: time.Minute, ClampHint: true},
			low:   time.Minute, top: 66 * time.Second},
		{name: "without a limit", hint: 1000 * time.Hour, policy: time.Second,
			limit: retry.Options{MaxHint: math.MaxInt64},
			low:   1000 * time.Hour, top: 1100 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := map[time.Duration]bool{}
				c.limit.Policy = backoff.Fixed(c.policy)
				for range 30 {
					n, begun := 0, time.Now()
					err := retry.Do(t.Context(), func(context.Context) error {
						if n++; n == 1 {
							return fmt.Errorf("call: %w", retry.After(c.hint, errDown))
						}
						return nil
					}, c.limit)
					if c.stop != nil {
						e, ok := errors.AsType[*retry.Error](err)
						if !ok || e.Stop != c.stop || e.After != c.hint || n != 1 {
							t.Fatalf("%#v, want %v with the hint", err, c.stop)
						}
						return
					}
					d := time.Since(begun)
					seen[d] = true
					if err != nil || d < c.low || d > c.top {
						t.Fatalf("%v, waited %v, want %v to %v", err, d, c.low, c.top)
					}
				}
				if c.top > c.low && len(seen) < 25 {
					t.Errorf("%d different waits in 30: those with the same hint come back together", len(seen))
				}
			})
		})
	}
}

func TestSuppressNested(t *testing.T) {
	three := retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 3}
	run := func(t *testing.T, outermost retry.Options, calls *int) error {
		return retry.Do(t.Context(), func(ctx context.Context) error {
			return retry.Do(ctx, func(ctx context.Context) error {
				// a context of the caller between the two retries
				inner, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				return retry.Do(inner, func(context.Context) error {
					*calls++
					return errDown
				}, three)
			}, three)
		}, outermost)
	}
	t.Run("off", func(t *testing.T) {
		calls := 0
		if err := run(t, three, &calls); calls != 27 || !errors.Is(err, errDown) {
			t.Errorf("%d calls, %v; want 27", calls, err)
		}
	})
	t.Run("on", func(t *testing.T) {
		calls := 0
		outermost := three
		outermost.SuppressNested = true
		err := run(t, outermost, &calls)
		e, ok := errors.AsType[*retry.Error](err)
		if calls != 3 || !ok || e.Stop != retry.ErrExhausted || !errors.Is(err, errDown) ||
			!errors.Is(err, retry.ErrNested) {
			t.Errorf("%d calls, %v; want 3", calls, err)
		}
	})
	t.Run("a success ends it too", func(t *testing.T) {
		var kept context.Context
		var loop retry.Loop
		for ctx := range loop.Attempts(t.Context(), retry.Options{SuppressNested: true}) {
			kept = ctx
			loop.End(nil)
		}
		calls := 0
		_ = retry.Do(kept, func(context.Context) error { calls++; return errDown }, three)
		if calls != 3 {
			t.Errorf("%d calls, want 3", calls)
		}
	})
}

// TestContextKeptFromAnAttempt checks that a context that outlives its attempt affects no later
// retry, not even through context.WithoutCancel.
func TestContextKeptFromAnAttempt(t *testing.T) {
	for _, suppress := range []bool{false, true} {
		var kept []context.Context
		_ = retry.Do(t.Context(), func(ctx context.Context) error {
			kept = append(kept, ctx, context.WithoutCancel(ctx))
			if len(kept) == 2 {
				return errDown
			}
			return nil
		}, retry.Options{Policy: backoff.Fixed(0), SuppressNested: suppress})
		for i, ctx := range kept {
			calls := 0
			err := retry.Do(ctx, func(context.Context) error { calls++; return errDown },
				retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 3})
			if calls != 3 || !errors.Is(err, retry.ErrExhausted) {
				t.Errorf("suppress %v, context %d: %d calls, %v; want 3", suppress, i, calls, err)
			}
		}
	}
}

// TestRetryInsideALongAttempt checks that retries inside the attempts of a reconnect loop work as
// they do outside, because the loop does not suppress them.
func TestRetryInsideALongAttempt(t *testing.T) {
	calls := 0
	err := retry.Do(t.Context(), func(ctx context.Context) error {
		return retry.Do(ctx, func(context.Context) error {
			if calls++; calls < 4 {
				return errDown
			}
			return nil
		}, retry.Options{Policy: backoff.Fixed(0)})
	}, retry.Options{MaxAttempts: 1})
	if err != nil || calls != 4 {
		t.Errorf("%v after %d calls, want success of the fourth", err, calls)
	}
}

// TestInnerVerdictReachesTheOuterRetry checks that an outer retry does not repeat an inner retry
// that stopped for a permanent failure.
func TestInnerVerdictReachesTheOuterRetry(t *testing.T) {
	onDown := classify(map[error]retry.Action{errDown: retry.Fail})
	for name, inner := range map[string]func(context.Context) error{
		"classified by the inner retry": func(ctx context.Context) error {
			return retry.Do(ctx, func(context.Context) error {
				return errDown
			}, retry.Options{Classify: onDown})
		},
		"fatal poll": func(ctx context.Context) error {
			_, err := retry.Poll(ctx, func(context.Context) (int, error) {
				return 0, retry.Permanent(errDown)
			})
			return err
		},
		"invalid options": func(ctx context.Context) error {
			return errors.Join(errDown, retry.Do(ctx, func(context.Context) error {
				return nil
			}, retry.Options{Targets: -1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := retry.Do(t.Context(), func(ctx context.Context) error {
				calls++
				return fmt.Errorf("layer: %w", inner(ctx))
			}, atOnce)
			e, _ := errors.AsType[*retry.Error](err)
			if calls != 1 || e.Stop != retry.ErrPermanent || !errors.Is(err, errDown) {
				t.Errorf("%d calls, %v; want one and ErrPermanent", calls, err)
			}
		})
	}
}

func TestAttemptInContext(t *testing.T) {
	if a := retry.FromContext(t.Context()); a != (retry.Attempt{Number: 1}) {
		t.Errorf("%+v outside of a retry", a)
	}
	var kept []context.Context
	collect := func(ctx context.Context) error {
		kept = append(kept, ctx)
		if len(kept)%20 != 0 {
			return fmt.Errorf("failure %d", len(kept))
		}
		return nil
	}
	type key struct{}
	parent := context.WithValue(t.Context(), key{}, "mine")
	for _, o := range []retry.Options{{}, {Key: "order-42"}, {MaxElapsed: time.Hour}} {
		kept = kept[:0]
		o.Policy, o.MaxAttempts = backoff.Fixed(0), 20
		if err := retry.Do(parent, collect, o); err != nil {
			t.Fatal(err)
		}
		for i, ctx := range kept { // after the call: an operation may keep its context
			a := retry.FromContext(ctx)
			if a.Number != i+1 || ctx.Value(key{}) != "mine" || a.Key != o.Key {
				t.Errorf("attempt %d reads %+v", i+1, a)
			}
			if (i == 0) != (a.Err == nil) || i > 0 &&
				a.Err.Error() != fmt.Sprintf("failure %d", i) {
				t.Errorf("attempt %d reads the previous failure %v", i+1, a.Err)
			}
		}
	}
	t.Run("an inner retry takes over the key", func(t *testing.T) {
		calls := 0
		_ = retry.Do(t.Context(), func(ctx context.Context) error {
			if calls++; calls == 1 {
				return errDown
			}
			return retry.Do(ctx, func(ctx context.Context) error {
				if a := retry.FromContext(ctx); a.Key != "order-42" || a.Number != 1 ||
					a.Err != nil {
					t.Errorf("inner attempt reads %+v", a)
				}
				return nil
			})
		}, retry.Options{Policy: backoff.Fixed(0), Key: "order-42"})
	})
}

// TestContextIsNotRetained checks that the package does not keep a caller's context alive after the
// call.
func TestContextIsNotRetained(t *testing.T) {
	freed := make(chan struct{})
	func() {
		type key struct{}
		payload := new([1 << 16]byte)
		runtime.SetFinalizer(payload, func(*[1 << 16]byte) { close(freed) })
		ctx := context.WithValue(t.Context(), key{}, payload)
		for range 3 {
			_ = retry.Do(ctx, func(context.Context) error { return nil })
			_ = retry.Do(ctx, func(context.Context) error {
				return errDown
			}, retry.Options{MaxAttempts: 2, Policy: backoff.Fixed(0)})
		}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-freed:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the context of a finished call is still reachable")
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "trace-1")
		var log []string
		o := retry.Options{Policy: fixed, OnEvent: func(ctx context.Context, e retry.Event) {
			log = append(log, fmt.Sprintf("%v %d at %v, wait %v, err %v, stop %v",
				e.Kind, e.Attempt.Number, e.Elapsed, e.Wait, e.Err, e.Stop))
			if ctx.Value(key{}) != "trace-1" || retry.FromContext(ctx).Number != e.Attempt.Number {
				t.Errorf("%v has a context of %+v with trace %v", e.Kind, retry.FromContext(ctx),
					ctx.Value(key{}))
			}
		}}
		n := 0
		_ = retry.Do(ctx, func(context.Context) error {
			if n++; n == 2 {
				return nil
			}
			return errDown
		}, o)
		_ = retry.Do(ctx, func(context.Context) error { return retry.Permanent(errDown) }, o)
		want := []string{
			"attempt started 1 at 0s, wait 0s, err <nil>, stop <nil>",
			"attempt failed 1 at 0s, wait 1s, err service is down, stop <nil>",
			"attempt started 2 at 1s, wait 0s, err <nil>, stop <nil>",
			"succeeded 2 at 1s, wait 0s, err <nil>, stop <nil>",
			"attempt started 1 at 0s, wait 0s, err <nil>, stop <nil>",
			"stopped 1 at 0s, wait 0s, err service is down, stop retry: not retryable",
		}
		if !slices.Equal(log, want) {
			t.Errorf("events\n%q, want\n%q", log, want)
		}
	})
}
