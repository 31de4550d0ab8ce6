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

// notReady is the probe of an operation that never ends; it counts its calls in polls.
func notReady(polls *int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		*polls++
		return 0, retry.ErrNotReady
	}
}

func TestPoll(t *testing.T) {
	detail := errors.New("detail")
	reason := fmt.Errorf("%w: %w", retry.ErrNotReady, detail)
	hint := retry.After(10*time.Second, detail)
	ready := []error{retry.ErrNotReady, retry.ErrNotReady, retry.ErrNotReady, nil}
	for _, c := range []struct {
		name    string
		results []error // the last one is repeated
		opts    retry.Options
		polls   []time.Duration
		stop    error
		is      []error
	}{
		{name: "ready at once", results: []error{nil}, polls: seconds(0)},
		{name: "ready at once, waits first", results: []error{nil},
			opts: retry.Options{WaitFirst: true}, polls: seconds(1)},
		{name: "ready after a while", results: ready, polls: seconds(0, 1, 2, 3)},
		{name: "never ready", results: ready[:1], opts: retry.Options{MaxAttempts: 4},
			stop: retry.ErrExhausted, polls: seconds(0, 1, 2, 3), is: []error{retry.ErrNotReady}},
		{name: "never ready, with a reason", results: []error{reason},
			opts: retry.Options{MaxAttempts: 2}, stop: retry.ErrExhausted, polls: seconds(0, 1),
			is: []error{retry.ErrNotReady, detail}},
		{name: "waits first, counts polls", results: ready[:1], stop: retry.ErrExhausted,
			opts: retry.Options{MaxAttempts: 3, WaitFirst: true}, polls: seconds(1, 2, 3),
			is: []error{retry.ErrNotReady}},
		{name: "a failure is retried", results: []error{detail, detail, nil},
			polls: seconds(0, 1, 2)},
		{name: "throttled with a hint", results: []error{hint, nil}, polls: seconds(0, 10),
			opts: retry.Options{ExactHint: true}},
		{name: "a hint and no failure", results: []error{retry.After(10*time.Second, nil), nil},
			polls: seconds(0, 10), opts: retry.Options{ExactHint: true}},
		{name: "not ready with a hint", polls: seconds(0, 10), opts: retry.Options{ExactHint: true},
			results: []error{retry.After(10*time.Second, retry.ErrNotReady), nil}},
		{name: "fatal", results: []error{retry.Permanent(detail)}, stop: retry.ErrPermanent,
			polls: seconds(0), is: []error{detail}},
		{name: "not ready and permanent", results: []error{retry.Permanent(reason)},
			stop: retry.ErrPermanent, polls: seconds(0), is: []error{detail}},
		{name: "not ready in spite of the classifier", results: ready, polls: seconds(0, 1, 2, 3),
			opts: retry.Options{Classify: func(error) retry.Action { return retry.Fail }}},
		{name: "classified as final", results: []error{detail}, polls: seconds(0),
			opts: retry.Options{Classify: func(error) retry.Action { return retry.Fail }},
			stop: retry.ErrPermanent, is: []error{detail}},
		{name: "not ready ends the time of failing", polls: seconds(0, 1, 2, 3),
			opts:    retry.Options{MaxFailing: 1500 * time.Millisecond},
			results: []error{detail, retry.ErrNotReady, detail}, stop: retry.ErrElapsed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var polls []time.Duration
				begun := time.Now()
				c.opts.Policy = fixed
				v, err := retry.Poll(t.Context(), func(context.Context) (int, error) {
					err := c.results[min(len(polls), len(c.results)-1)]
					polls = append(polls, time.Since(begun))
					return len(polls), err
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
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		_, err := retry.Poll(t.Context(), notReady(&polls))
		if !errors.Is(err, retry.ErrExhausted) || polls != 60 {
			t.Errorf("%d polls, %v", polls, err)
		}
		polls = 0
		_, err = retry.Poll(t.Context(), notReady(&polls),
			retry.Options{Policy: backoff.Limit(backoff.Fixed(1), 100)})
		if !errors.Is(err, retry.ErrExhausted) || polls != 100 {
			t.Errorf("%d polls of a policy that ends after 100, %v", polls, err)
		}
		polls = 0
		_, err = retry.Poll(t.Context(), notReady(&polls),
			retry.Options{Policy: fixed, MaxElapsed: 2 * time.Minute})
		if !errors.Is(err, retry.ErrElapsed) || polls != 121 {
			t.Errorf("%d polls in two minutes, %v; want 121", polls, err)
		}
	})
}

// TestPollAndTheBudget checks that Poll asks the budget before the first poll and after a failure,
// but not after ErrNotReady.
func TestPollAndTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, n := newLedger(0), 0
		_, err := retry.Poll(t.Context(), func(context.Context) (int, error) {
			if n++; n == 50 {
				return 1, nil
			}
			return 0, retry.ErrNotReady
		}, retry.Options{Policy: fixed, Budget: l})
		if err != nil {
			t.Error(err)
		}
		l.check(t, 1, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		l, begun := newLedger(2), time.Now()
		broken := func(context.Context) (int, error) { return 0, errDown }
		_, err := retry.Poll(t.Context(), broken, retry.Options{Policy: fixed, Budget: l})
		if !errors.Is(err, retry.ErrBudget) || !errors.Is(err, errRefused) ||
			time.Since(begun) != time.Second {
			t.Errorf("%v after %v: want ErrBudget after one wait", err, time.Since(begun))
		}
	})
}

// TestPollWithinARetry checks that inside an attempt that suppresses retries, a poll continues
// after ErrNotReady or a hint, and leaves any other failure to the outer retry.
func TestPollWithinARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		_ = retry.Do(t.Context(), func(ctx context.Context) error {
			_, err := retry.Poll(ctx, func(context.Context) (int, error) {
				switch polls++; {
				case polls == 10:
					return 0, retry.After(time.Second, errDown) // too many requests
				case polls < 20:
					return 0, retry.ErrNotReady
				}
				return 0, errDown
			}, retry.Options{Policy: fixed, MaxAttempts: 30})
			return err
		}, retry.Options{Policy: fixed, MaxAttempts: 2, SuppressNested: true})
		if polls != 21 {
			t.Errorf("%d polls, want 20 by the first attempt and one by the second", polls)
		}
	})
}
