package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// slowBudget allows each attempt, but takes a minute to allow a retry.
type slowBudget struct{}

func (slowBudget) Allow(ctx context.Context) error {
	if retry.FromContext(ctx).Number > 1 {
		wait(ctx, time.Minute)
	}
	return nil
}

func (slowBudget) Report(context.Context, error) {}

// TestLateAttempts checks that no attempt starts after a limit of time, even if a step between two
// attempts takes long.
func TestLateAttempts(t *testing.T) {
	stale := errors.New("token expired")
	slowRefresh := func(ctx context.Context) error {
		wait(ctx, time.Minute)
		return nil
	}
	slowHook := func(ctx context.Context, e retry.Event) {
		if e.Kind == retry.Waiting {
			wait(ctx, time.Minute)
		}
	}
	elapsed := retry.Options{Policy: fixed, MaxElapsed: 30 * time.Second}
	failing := retry.Options{Policy: fixed, MaxFailing: 30 * time.Second}
	for _, c := range []struct {
		name    string
		options retry.Options
		budget  retry.Budget
		refresh func(context.Context) error
		err     error
		poll    bool
	}{
		{name: "slow refresh, MaxElapsed", options: elapsed, refresh: slowRefresh, err: stale},
		{name: "slow refresh, MaxFailing", options: failing, refresh: slowRefresh, err: stale},
		{name: "slow budget, MaxElapsed", options: elapsed, budget: slowBudget{}, err: errDown},
		{name: "slow budget, MaxFailing", options: failing, budget: slowBudget{}, err: errDown},
		{name: "slow hook of a poll", options: elapsed, err: retry.ErrNotReady, poll: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var starts []time.Duration
				begun := time.Now()
				op := func(context.Context) (int, error) {
					starts = append(starts, time.Since(begun))
					return 0, c.err
				}
				o := c.options
				o.Budget, o.Refresh = c.budget, c.refresh
				o.Classify = classify(map[error]retry.Action{stale: retry.Refresh})
				call := retry.Value[int]
				if c.poll {
					call, o.OnEvent = retry.Poll[int], slowHook
				}
				_, err := call(t.Context(), op, o)
				if !errors.Is(err, retry.ErrElapsed) || !slices.Equal(starts, seconds(0)) {
					t.Errorf("%v, attempts at %v; want ErrElapsed after the first", err, starts)
				}
			})
		})
	}
}

// TestHintBelowNoHint checks that After(0, err) does not hide the hint that err contains.
func TestHintBelowNoHint(t *testing.T) {
	unavailable := &retry.StatusError{Status: 503, Text: "503", Wait: 30 * time.Second}
	for name, err := range map[string]error{
		"After": retry.After(0, unavailable),
		"After in a text": fmt.Errorf("call: %w",
			retry.After(-1, fmt.Errorf("get: %w", unavailable))),
		"join": errors.Join(retry.After(0, errDown), unavailable),
	} {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, exact %v", name, exact), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, begun := 0, time.Now()
					got := retry.Do(t.Context(), func(context.Context) error {
						if n++; n == 1 {
							return err
						}
						return nil
					}, retry.Options{Policy: fixed, ExactHint: exact})
					if d := time.Since(begun); got != nil || d < 30*time.Second {
						t.Errorf("%v after %v, want a wait of 30s", got, d)
					}
				})
			})
		}
	}
}

// slowReport is a budget that takes a minute to handle the report of a success.
type slowReport struct{}

func (slowReport) Allow(context.Context) error { return nil }

func (slowReport) Report(ctx context.Context, err error) {
	if err == nil {
		wait(ctx, time.Minute)
	}
}

// TestHedgeAfterSuccess checks that no attempt starts after one has succeeded, even if the budget
// delays the result of the successful attempt.
func TestHedgeAfterSuccess(t *testing.T) {
	for name, first := range map[string]scriptStep{
		"a failure after the success": {takes: 1500 * time.Millisecond, err: errDown},
		"the delay has passed":        {takes: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{begun: time.Now(), steps: []scriptStep{first, {}, {}}}
				v, err := retry.Hedge(t.Context(), s.op, retry.HedgeOptions{
					Delay: time.Second, MaxAttempts: 3, Budget: slowReport{}}, nil)
				synctest.Wait()
				if v != 2 || err != nil || !slices.Equal(s.starts, seconds(0, 1)) {
					t.Errorf("%d, %v, attempts at %v; want 2, attempts at 0s and 1s", v, err,
						s.starts)
				}
			})
		})
	}
}
