package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

type pollResult struct {
	verdict retry.Verdict
	err     error
}

func TestPoll(t *testing.T) {
	detail := errors.New("detail")
	repeat := func(n int, v retry.Verdict) (list []pollResult) {
		for range n {
			list = append(list, pollResult{verdict: v})
		}
		return list
	}
	for _, c := range []struct {
		name    string
		results []pollResult // the last one is repeated
		opts    retry.Options
		polls   []time.Duration
		stop    error
		is      []error
	}{
		{name: "ready at once", results: []pollResult{{verdict: retry.Success}}, polls: seconds(0)},
		{name: "ready at once, waits first", results: []pollResult{{verdict: retry.Success}}, opts: retry.Options{WaitFirst: true},
			polls: seconds(1)},
		{name: "ready after a while", polls: seconds(0, 1, 2, 3),
			results: append(repeat(3, retry.NotReady), pollResult{verdict: retry.Success})},
		{name: "never ready", results: repeat(1, retry.NotReady), opts: retry.Options{MaxAttempts: 4}, stop: retry.ErrExhausted,
			polls: seconds(0, 1, 2, 3), is: []error{retry.ErrNotReady}},
		{name: "never ready, with a reason", results: []pollResult{{retry.NotReady, detail}}, opts: retry.Options{MaxAttempts: 2},
			stop: retry.ErrExhausted, polls: seconds(0, 1), is: []error{retry.ErrNotReady, detail}},
		{name: "waits first, counts polls", results: repeat(1, retry.NotReady), stop: retry.ErrExhausted,
			opts: retry.Options{MaxAttempts: 3, WaitFirst: true}, polls: seconds(1, 2, 3), is: []error{retry.ErrNotReady}},
		{name: "server error is retried", results: append(repeat(2, retry.ServerError), pollResult{verdict: retry.Success}),
			polls: seconds(0, 1, 2)},
		{name: "throttled with a hint", polls: seconds(0, 10), opts: retry.Options{ExactHint: true},
			results: []pollResult{{retry.Throttled, retry.After(10*time.Second, detail)}, {verdict: retry.Success}}},
		{name: "throttled with a hint and no error", polls: seconds(0, 10), opts: retry.Options{ExactHint: true},
			results: []pollResult{{retry.Throttled, retry.After(10*time.Second, nil)}, {verdict: retry.Success}}},
		{name: "not ready with a hint and no error", polls: seconds(0, 10), opts: retry.Options{ExactHint: true},
			results: []pollResult{{retry.NotReady, retry.After(10*time.Second, nil)}, {verdict: retry.Success}}},
		{name: "fatal", results: []pollResult{{retry.Fatal, detail}}, stop: retry.ErrPermanent, polls: seconds(0),
			is: []error{detail}},
		{name: "permanent whatever the verdict", results: []pollResult{{retry.NotReady, retry.Permanent(detail)}}, stop: retry.ErrPermanent,
			polls: seconds(0), is: []error{detail}},
		{name: "by error", results: []pollResult{{retry.ByError, detail}, {retry.ByError, nil}}, polls: seconds(0, 1)},
		{name: "unknown verdict", results: repeat(1, 77), stop: retry.ErrPermanent, polls: seconds(0)},
		{name: "failing ends by a good answer", opts: retry.Options{MaxFailing: 1500 * time.Millisecond},
			results: []pollResult{{verdict: retry.ServerError}, {verdict: retry.NotReady}, {verdict: retry.ServerError}},
			stop:    retry.ErrElapsed, polls: seconds(0, 1, 2, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var polls []time.Duration
				begun := time.Now()
				c.opts.Policy = fixed
				v, err := retry.Poll(t.Context(), func(context.Context) (int, retry.Verdict, error) {
					a := c.results[min(len(polls), len(c.results)-1)]
					polls = append(polls, time.Since(begun))
					return len(polls), a.verdict, a.err
				}, c.opts)
				if !slices.Equal(polls, c.polls) {
					t.Errorf("polls at %v, want %v", polls, c.polls)
				}
				if c.stop == nil {
					if err != nil || v != len(c.polls) {
						t.Errorf("%d, %v; want the value %d", v, err, len(c.polls))
					}
					return
				}
				e, ok := errors.AsType[*retry.Error](err)
				if !ok || e.Stop != c.stop || v != 0 {
					t.Errorf("%d, %#v; want it stopped by %v", v, err, c.stop)
				}
				for _, want := range c.is {
					if !errors.Is(err, want) {
						t.Errorf("%v does not hold %v", err, want)
					}
				}
			})
		})
	}
}

func TestPollDefaults(t *testing.T) {
	notReady := func(polls *int) func(context.Context) (struct{}, retry.Verdict, error) {
		return func(context.Context) (struct{}, retry.Verdict, error) {
			*polls++
			return struct{}{}, retry.NotReady, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		_, err := retry.Poll(t.Context(), notReady(&polls))
		if !errors.Is(err, retry.ErrExhausted) || polls != 60 {
			t.Errorf("%d polls, %v", polls, err)
		}
		polls = 0
		_, err = retry.Poll(t.Context(), notReady(&polls), retry.Options{Policy: backoff.Limit(backoff.Fixed(1), 100)})
		if !errors.Is(err, retry.ErrExhausted) || polls != 100 {
			t.Errorf("%d polls of a policy that ends after 100, %v", polls, err)
		}
		polls = 0
		_, err = retry.Poll(t.Context(), notReady(&polls), retry.Options{Policy: fixed, MaxElapsed: 2 * time.Minute})
		if !errors.Is(err, retry.ErrElapsed) || polls != 121 {
			t.Errorf("%d polls in two minutes, %v; want 121", polls, err)
		}
	})
}

// Success may come with an error, which is the caller's to judge.
func TestPollReturnsTheErrorOfASuccess(t *testing.T) {
	warn := errors.New("done, with warnings")
	v, err := retry.Poll(t.Context(), func(context.Context) (string, retry.Verdict, error) { return "v", retry.Success, warn })
	if v != "v" || err != warn {
		t.Errorf("%q, %v; want both", v, err)
	}
}

// The budget is asked for the first poll and for those after a failure, not for those after
// NotReady.
func TestPollAndTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, n := newLedger(0), 0
		_, err := retry.Poll(t.Context(), func(context.Context) (int, retry.Verdict, error) {
			if n++; n == 50 {
				return 1, retry.Success, nil
			}
			return 0, retry.NotReady, nil
		}, retry.Options{Policy: fixed, Budget: l})
		if err != nil {
			t.Error(err)
		}
		l.check(t, 1, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		l, begun := newLedger(2), time.Now()
		broken := func(context.Context) (int, retry.Verdict, error) { return 0, retry.ServerError, nil }
		_, err := retry.Poll(t.Context(), broken, retry.Options{Policy: fixed, Budget: l})
		if !errors.Is(err, retry.ErrBudget) || !errors.Is(err, errRefused) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v: want ErrBudget after one wait", err, time.Since(begun))
		}
	})
}

// A poll that is not ready goes on inside an attempt that suppresses retries; a server error is
// left to the outer retry.
func TestPollWithinARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		_ = retry.Do(t.Context(), func(ctx context.Context) error {
			_, err := retry.Poll(ctx, func(context.Context) (int, retry.Verdict, error) {
				if polls++; polls < 20 {
					return 0, retry.NotReady, nil
				}
				return 0, retry.ServerError, nil
			}, retry.Options{Policy: fixed, MaxAttempts: 30})
			return err
		}, retry.Options{Policy: fixed, MaxAttempts: 2, SuppressNested: true})
		if polls != 21 {
			t.Errorf("%d polls, want 20 by the first attempt and one by the second", polls)
		}
	})
}
