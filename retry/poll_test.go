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

type said struct {
	verdict retry.Verdict
	err     error
}

func TestPoll(t *testing.T) {
	detail := errors.New("detail")
	repeat := func(n int, v retry.Verdict) (list []said) {
		for range n {
			list = append(list, said{verdict: v})
		}
		return list
	}
	for _, c := range []struct {
		name    string
		answers []said // the last one is repeated
		opts    []retry.Option
		polls   []time.Duration
		stop    error
		is      []error
	}{
		{name: "ready at once", answers: []said{{verdict: retry.Success}}, polls: seconds(0)},
		{name: "ready at once, waits first", answers: []said{{verdict: retry.Success}}, opts: []retry.Option{retry.WaitFirst()},
			polls: seconds(1)},
		{name: "ready after a while", answers: append(repeat(3, retry.NotReady), said{verdict: retry.Success}), polls: seconds(0, 1, 2, 3)},
		{name: "never ready", answers: repeat(1, retry.NotReady), opts: []retry.Option{retry.MaxPolls(4)}, stop: retry.ErrExhausted,
			polls: seconds(0, 1, 2, 3), is: []error{retry.ErrNotReady}},
		{name: "never ready, with a reason", answers: []said{{retry.NotReady, detail}}, opts: []retry.Option{retry.MaxPolls(2)},
			stop: retry.ErrExhausted, polls: seconds(0, 1), is: []error{retry.ErrNotReady, detail}},
		{name: "waits first, counts polls", answers: repeat(1, retry.NotReady), stop: retry.ErrExhausted,
			opts: []retry.Option{retry.MaxPolls(3), retry.WaitFirst()}, polls: seconds(1, 2, 3), is: []error{retry.ErrNotReady}},
		{name: "server error is retried", answers: append(repeat(2, retry.ServerError), said{verdict: retry.Success}),
			polls: seconds(0, 1, 2)},
		{name: "server error stops", answers: []said{{retry.ServerError, detail}}, opts: []retry.Option{retry.StopOnServerError()},
			stop: retry.ErrPermanent, polls: seconds(0), is: []error{retry.ErrServerError, detail}},
		{name: "throttled with a hint", answers: []said{{retry.Throttled, retry.After(10*time.Second, detail)}, {verdict: retry.Success}},
			opts: []retry.Option{retry.Hints(retry.HintLimit{Mode: retry.Instead})}, polls: seconds(0, 10)},
		{name: "fatal", answers: []said{{retry.Fatal, detail}}, stop: retry.ErrPermanent, polls: seconds(0),
			is: []error{retry.ErrFatal, detail}},
		{name: "permanent whatever the verdict", answers: []said{{retry.NotReady, retry.Permanent(detail)}}, stop: retry.ErrPermanent,
			polls: seconds(0), is: []error{detail}},
		{name: "by error", answers: []said{{retry.ByError, detail}, {retry.ByError, nil}}, polls: seconds(0, 1)},
		{name: "unknown verdict", answers: repeat(1, 77), stop: retry.ErrPermanent, polls: seconds(0)},
		{name: "failing ends by a good answer", opts: []retry.Option{retry.MaxFailing(1500 * time.Millisecond)},
			answers: []said{{verdict: retry.ServerError}, {verdict: retry.NotReady}, {verdict: retry.ServerError}},
			stop:    retry.ErrFailing, polls: seconds(0, 1, 2, 3), is: []error{retry.ErrServerError}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var polls []time.Duration
				begun := time.Now()
				v, err := retry.Poll(t.Context(), func(context.Context) (int, retry.Verdict, error) {
					a := c.answers[min(len(polls), len(c.answers)-1)]
					polls = append(polls, time.Since(begun))
					return len(polls), a.verdict, a.err
				}, append([]retry.Option{fixed}, c.opts...)...)
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
		if !errors.Is(err, retry.ErrExhausted) || polls != retry.DefaultPolls {
			t.Errorf("%d polls, %v", polls, err)
		}
		polls = 0
		_, err = retry.Poll(t.Context(), notReady(&polls), retry.Policy(backoff.Limit(backoff.Fixed(1), 100)))
		if !errors.Is(err, retry.ErrExhausted) || polls != 100 {
			t.Errorf("%d polls of a policy that ends after 100, %v", polls, err)
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

func TestPollAndTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, n := newLedger(0), 0
		_, err := retry.Poll(t.Context(), func(context.Context) (int, retry.Verdict, error) {
			if n++; n == 50 {
				return 1, retry.Success, nil
			}
			return 0, retry.NotReady, nil
		}, fixed, retry.Spend(l))
		if err != nil || len(l.taken) != 1 || l.taken[1] != 1 {
			t.Errorf("%v; the budget was asked for %v, want the first poll only", err, l.taken)
		}
		l.balanced(t, map[retry.Result]int{retry.Served: 1})
	})
	synctest.Test(t, func(t *testing.T) {
		l, begun := newLedger(2), time.Now()
		broken := func(context.Context) (int, retry.Verdict, error) { return 0, retry.ServerError, nil }
		_, err := retry.Poll(t.Context(), broken, fixed, retry.Spend(l))
		if !errors.Is(err, retry.ErrBudget) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v: a refused poll has to wait all the same", err, time.Since(begun))
		}
	})
}

// A poll that is not ready is no failure that an outer retry could mend; a server error is.
func TestPollWithinARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		_ = retry.Do(t.Context(), func(ctx context.Context) error {
			_, err := retry.Poll(ctx, func(context.Context) (int, retry.Verdict, error) {
				if polls++; polls < 20 {
					return 0, retry.NotReady, nil
				}
				return 0, retry.ServerError, nil
			}, fixed, retry.MaxPolls(30))
			return err
		}, fixed, retry.MaxAttempts(2))
		if polls != 21 {
			t.Errorf("%d polls, want 20 by the first attempt and one by the second", polls)
		}
	})
}
