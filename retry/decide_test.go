package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

type wrongToken struct{ realm string }

func (e wrongToken) Error() string { return "token refused for " + e.realm }

func TestClassifiers(t *testing.T) {
	gone, busy := errors.New("gone"), errors.New("busy")
	chain := retry.Chain(nil, retry.On(retry.Fail, gone), retry.OnType[wrongToken](retry.Refresh), retry.On(retry.Failover, busy))
	only := retry.Only(retry.On(retry.Retry, busy))
	for _, c := range []struct {
		classify retry.Classifier
		err      error
		want     retry.Action
	}{
		{chain, gone, retry.Fail},
		{chain, fmt.Errorf("deep: %w", fmt.Errorf("er: %w", gone)), retry.Fail},
		{chain, fmt.Errorf("login: %w", wrongToken{"a"}), retry.Refresh},
		{chain, errors.Join(busy, gone), retry.Fail},
		{chain, busy, retry.Failover},
		{chain, errors.New("else"), retry.Undecided},
		{only, busy, retry.Retry},
		{only, gone, retry.Fail},
		{retry.Chain(), gone, retry.Undecided},
	} {
		if got := c.classify(c.err, 1).Action; got != c.want {
			t.Errorf("%q: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var visits []string
		err := retry.Do(t.Context(), func(ctx context.Context) error {
			a, ok := retry.FromContext(ctx)
			if !ok {
				t.Fatal("the context does not know the attempt")
			}
			visits = append(visits, fmt.Sprintf("%d: target %d at %v", a.Number, a.Target, time.Since(begun)))
			if a.Number == 6 {
				return errors.New("this one is no reason to move")
			}
			return errDown
		}, fixed, retry.Targets(3), retry.MaxAttempts(8), retry.Classify(retry.On(retry.Failover, errDown)))
		want := []string{
			"1: target 0 at 0s", "2: target 1 at 0s", "3: target 2 at 0s", // all are tried before the first wait
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
	synctest.Test(t, func(t *testing.T) {
		refreshes, token, begun := 0, 0, time.Now()
		var starts []time.Duration
		renew := func(ctx context.Context) error {
			if _, ok := retry.FromContext(ctx); !ok {
				t.Error("Refresh got a context without the attempt")
			}
			refreshes++
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
		}, fixed, retry.RefreshWith(renew), retry.Classify(retry.On(retry.Refresh, stale)))
		// At once after the first refresh; then the token is still refused, so the policy's waits.
		if want := seconds(0, 0, 1, 2); err != nil || !slices.Equal(starts, want) || refreshes != 3 {
			t.Errorf("%v, attempts at %v, want %v; %d refreshes", err, starts, want, refreshes)
		}
	})
	t.Run("without a way to refresh", func(t *testing.T) {
		err := retry.Do(t.Context(), func(context.Context) error { return stale }, retry.Classify(retry.On(retry.Refresh, stale)))
		if !errors.Is(err, retry.ErrPermanent) {
			t.Errorf("%v, want ErrPermanent", err)
		}
	})
	t.Run("that fails for good", func(t *testing.T) {
		fired := errors.New("account closed")
		err := retry.Do(t.Context(), func(context.Context) error { return stale }, retry.Classify(retry.On(retry.Refresh, stale)),
			retry.RefreshWith(func(context.Context) error { return retry.Permanent(fired) }))
		if !errors.Is(err, retry.ErrPermanent) || !errors.Is(err, fired) || !errors.Is(err, stale) {
			t.Errorf("%v, want ErrPermanent with both causes", err)
		}
	})
}

// A stream that ran for long and then broke begins a new row of attempts and waits.
func TestReset(t *testing.T) {
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
		}, retry.Policy(backoff.Linear(time.Second, time.Second, 0)), retry.MaxAttempts(3),
			retry.Classify(func(err error, _ int) retry.Decision {
				return retry.Decision{Reset: errors.Is(err, progress)}
			}))
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
		limit    retry.HintLimit
		low, top time.Duration
		stop     error
	}{
		{name: "longer than the policy", hint: 10 * time.Second, policy: time.Second, low: 10 * time.Second, top: 11 * time.Second},
		{name: "shorter than the policy", hint: time.Second, policy: 10 * time.Second, low: 10 * time.Second, top: 10 * time.Second},
		{name: "instead of the policy", hint: time.Second, policy: 10 * time.Second, limit: retry.HintLimit{Mode: retry.Instead},
			low: time.Second, top: time.Second},
		{name: "none at all instead of the policy", hint: -1, policy: 10 * time.Second, limit: retry.HintLimit{Mode: retry.Instead}},
		{name: "negative beside a policy", hint: -time.Hour, policy: time.Second, low: time.Second, top: time.Second},
		{name: "too long by default", hint: 5*time.Minute + 1, policy: time.Second, stop: retry.ErrHint},
		{name: "longest by default", hint: 5 * time.Minute, policy: time.Second, low: 5 * time.Minute, top: 330 * time.Second},
		{name: "clamped", hint: time.Hour, policy: time.Second, limit: retry.HintLimit{Max: time.Minute, Clamp: true},
			low: time.Minute, top: 66 * time.Second},
		{name: "without a limit", hint: 1000 * time.Hour, policy: time.Second, limit: retry.HintLimit{Max: -1},
			low: 1000 * time.Hour, top: 1100 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := map[time.Duration]bool{}
				for range 30 {
					n, begun := 0, time.Now()
					err := retry.Do(t.Context(), func(context.Context) error {
						if n++; n == 1 {
							return fmt.Errorf("call: %w", retry.After(c.hint, errDown))
						}
						return nil
					}, retry.Policy(backoff.Fixed(c.policy)), retry.Hints(c.limit))
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

func TestNested(t *testing.T) {
	policy := retry.Policy(backoff.Fixed(0))
	three := retry.MaxAttempts(3)
	run := func(t *testing.T, ctx context.Context, calls *int, opts ...retry.Option) error {
		return retry.Do(ctx, func(ctx context.Context) error {
			return retry.Do(ctx, func(ctx context.Context) error {
				inner, cancel := context.WithTimeout(ctx, time.Hour) // a context of the caller's own in between
				defer cancel()
				return retry.Do(inner, func(context.Context) error { *calls++; return errDown }, append(opts, policy, three)...)
			}, append(opts, policy, three)...)
		}, policy, three)
	}
	t.Run("the inner ones leave it to the outer", func(t *testing.T) {
		for range 3 { // a context's marks are made in the first rounds and shared in the later ones
			calls := 0
			err := run(t, t.Context(), &calls)
			e, ok := errors.AsType[*retry.Error](err)
			if calls != 3 || !ok || e.Stop != retry.ErrExhausted || !errors.Is(err, errDown) || !errors.Is(err, retry.ErrNested) {
				t.Errorf("%d calls, %v; want 3", calls, err)
			}
		}
	})
	t.Run("unless told not to", func(t *testing.T) {
		calls := 0
		if err := run(t, t.Context(), &calls, retry.Nested()); calls != 27 || !errors.Is(err, errDown) {
			t.Errorf("%d calls, %v; want 27", calls, err)
		}
	})
	t.Run("two retries one after the other do not see each other", func(t *testing.T) {
		calls := 0
		for range 2 {
			_ = retry.Do(t.Context(), func(context.Context) error { calls++; return errDown }, policy, three)
		}
		if calls != 6 {
			t.Errorf("%d calls, want 6", calls)
		}
	})
}

func TestAttemptInContext(t *testing.T) {
	if _, ok := retry.FromContext(t.Context()); ok {
		t.Error("an attempt outside of any retry")
	}
	var kept []context.Context
	collect := func(ctx context.Context) error {
		kept = append(kept, ctx)
		if len(kept)%20 != 0 {
			return errDown
		}
		return nil
	}
	type key struct{}
	parent := context.WithValue(t.Context(), key{}, "mine")
	for _, opts := range [][]retry.Option{{}, {retry.Key("order-42")}, {retry.MaxElapsed(time.Hour)}} {
		kept = kept[:0]
		opts = append(opts, retry.Policy(backoff.Fixed(0)), retry.MaxAttempts(20))
		if err := retry.Do(parent, collect, opts...); err != nil {
			t.Fatal(err)
		}
		for i, ctx := range kept { // after the call: an operation may keep its context
			a, ok := retry.FromContext(ctx)
			if !ok || a.Number != i+1 || ctx.Value(key{}) != "mine" || (len(opts) == 3 && a.Key != "" && a.Key != "order-42") {
				t.Errorf("attempt %d reads %+v, %v", i+1, a, ok)
			}
		}
	}
	t.Run("an inner retry takes over the key", func(t *testing.T) {
		_ = retry.Do(t.Context(), func(ctx context.Context) error {
			return retry.Do(ctx, func(ctx context.Context) error {
				if a, _ := retry.FromContext(ctx); a.Key != "order-42" || a.Number != 1 {
					t.Errorf("inner attempt reads %+v", a)
				}
				return nil
			})
		}, retry.Key("order-42"))
	})
	if a, b := retry.NewKey(), retry.NewKey(); a == b || len(a) != 26 {
		t.Errorf("keys %q and %q", a, b)
	}
}

// Marks are shared between the sequences on one context: concurrently they must still tell every attempt its number.
func TestMarksAreSafeToShare(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	for range 8 {
		go func() {
			for range 500 {
				n := 0
				err := retry.Do(ctx, func(ctx context.Context) error {
					n++
					if a, _ := retry.FromContext(ctx); a.Number != n || a.Key != "" {
						return retry.Permanent(fmt.Errorf("attempt %d reads %+v", n, a))
					}
					if n < 4 {
						return errDown
					}
					return nil
				}, retry.Policy(backoff.Fixed(0)))
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		note := retry.OnEvent(func(e retry.Event) {
			log = append(log, fmt.Sprintf("%v %d at %v, wait %v, err %v, stop %v",
				e.Kind, e.Attempt.Number, e.Elapsed, e.Wait, e.Err, e.Stop))
		})
		n := 0
		_ = retry.Do(t.Context(), func(context.Context) error {
			if n++; n == 2 {
				return nil
			}
			return errDown
		}, fixed, note)
		_ = retry.Do(t.Context(), func(context.Context) error { return retry.Permanent(errDown) }, note)
		want := []string{
			"attempt started 1 at 0s, wait 0s, err <nil>, stop <nil>",
			"attempt failed 1 at 0s, wait 1s, err service is down, stop <nil>",
			"attempt started 2 at 1s, wait 0s, err <nil>, stop <nil>",
			"succeeded 2 at 1s, wait 0s, err <nil>, stop <nil>",
			"attempt started 1 at 0s, wait 0s, err <nil>, stop <nil>",
			"stopped 1 at 0s, wait 0s, err service is down, stop retry: not worth another attempt",
		}
		if !slices.Equal(log, want) {
			t.Errorf("events\n%q, want\n%q", log, want)
		}
	})
}
