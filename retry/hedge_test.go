package retry_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// script is an operation whose attempts take and answer what the script says.
type script struct {
	mu     sync.Mutex
	begun  time.Time
	starts []time.Duration
	ends   []error // causes of the attempts' contexts when they ended
	steps  []scriptStep
}

type scriptStep struct {
	takes time.Duration
	err   error
	deaf  bool // does not notice the end of its context
}

func (s *script) op(ctx context.Context) (int, error) {
	a, _ := retry.FromContext(ctx)
	s.mu.Lock()
	s.starts = append(s.starts, time.Since(s.begun))
	s.mu.Unlock()
	step := s.steps[a.Number-1]
	if step.deaf {
		wait(context.WithoutCancel(ctx), step.takes)
	} else {
		wait(ctx, step.takes)
	}
	if ctx.Err() != nil && !step.deaf {
		s.mu.Lock()
		s.ends = append(s.ends, context.Cause(ctx))
		s.mu.Unlock()
		return 0, ctx.Err()
	}
	return a.Number, step.err
}

func TestHedge(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		name   string
		steps  []scriptStep
		policy retry.HedgePolicy
		want   int
		after  time.Duration
		starts []time.Duration
		stop   error
	}{
		{name: "fast answer", steps: []scriptStep{{takes: second}}, policy: retry.HedgePolicy{Delay: 2 * second},
			want: 1, after: second, starts: seconds(0)},
		{name: "slow first", steps: []scriptStep{{takes: time.Hour}, {takes: second}}, policy: retry.HedgePolicy{Delay: 2 * second},
			want: 2, after: 3 * second, starts: seconds(0, 2)},
		{name: "first wins late", steps: []scriptStep{{takes: 3 * second}, {takes: time.Hour}},
			policy: retry.HedgePolicy{Delay: 2 * second}, want: 1, after: 3 * second, starts: seconds(0, 2)},
		{name: "three", steps: []scriptStep{{takes: time.Hour}, {takes: time.Hour}, {takes: second}},
			policy: retry.HedgePolicy{Delay: second, Max: 3}, want: 3, after: 3 * second, starts: seconds(0, 1, 2)},
		{name: "all at once", steps: []scriptStep{{takes: 3 * second}, {takes: second}, {takes: 2 * second}},
			policy: retry.HedgePolicy{Max: 3}, want: 2, after: second, starts: seconds(0, 0, 0)},
		{name: "a failure is replaced at once", steps: []scriptStep{{takes: second, err: errDown}, {takes: second}},
			policy: retry.HedgePolicy{Delay: time.Hour}, want: 2, after: 2 * second, starts: seconds(0, 1)},
		{name: "a hint delays the replacement", steps: []scriptStep{{err: retry.After(5*second, errDown)}, {}},
			policy: retry.HedgePolicy{Delay: time.Hour}, want: 2, after: 5 * second, starts: seconds(0, 5)},
		{name: "all fail", steps: []scriptStep{{takes: second, err: errDown}, {takes: second, err: errDown}},
			policy: retry.HedgePolicy{Delay: time.Hour}, stop: retry.ErrExhausted, after: 2 * second, starts: seconds(0, 1)},
		{name: "permanent", steps: []scriptStep{{takes: time.Hour}, {takes: second, err: retry.Permanent(errDown)}},
			policy: retry.HedgePolicy{Delay: second}, stop: retry.ErrPermanent, after: 2 * second, starts: seconds(0, 1)},
		{name: "budget refuses the second", steps: []scriptStep{{takes: 5 * second}},
			policy: retry.HedgePolicy{Delay: second, Budget: newLedger(2)}, want: 1, after: 5 * second, starts: seconds(0)},
		{name: "budget refuses the replacement", steps: []scriptStep{{takes: second, err: errDown}},
			policy: retry.HedgePolicy{Delay: time.Hour, Budget: newLedger(2)}, stop: retry.ErrBudget, after: second, starts: seconds(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{begun: time.Now(), steps: c.steps}
				v, err := retry.Hedge(t.Context(), s.op, c.policy, nil)
				took := time.Since(s.begun)
				synctest.Wait() // the attempts that lost notice it
				if took != c.after || v != c.want || !slices.Equal(s.starts, c.starts) {
					t.Errorf("%d after %v, attempts at %v; want %d after %v, at %v", v, took, s.starts, c.want, c.after, c.starts)
				}
				if c.stop == nil && err != nil || c.stop != nil && !errors.Is(err, c.stop) {
					t.Errorf("%v, want %v", err, c.stop)
				}
				if c.stop != nil && !errors.Is(err, errDown) {
					t.Errorf("%v has lost the failure", err)
				}
				for _, cause := range s.ends {
					if cause != retry.ErrHedged {
						t.Errorf("an attempt ended by %v, want ErrHedged", cause)
					}
				}
				if l, ok := c.policy.Budget.(*ledger); ok {
					l.balanced(t, nil)
				}
			})
		})
	}
}

func TestHedgeContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s := &script{begun: time.Now(), steps: []scriptStep{{takes: time.Hour}, {takes: time.Hour}}}
		_, err := retry.Hedge(ctx, s.op, retry.HedgePolicy{Delay: time.Second / 2}, nil)
		if !errors.Is(err, context.Canceled) || time.Since(s.begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(s.begun))
		}
		synctest.Wait()
		if _, err := retry.Hedge(ctx, s.op, retry.HedgePolicy{}, nil); !errors.Is(err, context.Canceled) || len(s.starts) != 2 {
			t.Errorf("%v; an attempt ran with a dead context", err)
		}
	})
}

func TestHedgeLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		discarded := make(chan int, 5)
		s := &script{begun: time.Now(), steps: []scriptStep{{takes: 10 * time.Second, deaf: true}, {takes: time.Second}}}
		v, err := retry.Hedge(t.Context(), s.op, retry.HedgePolicy{Delay: time.Second}, func(v int) { discarded <- v })
		if v != 2 || err != nil || time.Since(s.begun) != 2*time.Second {
			t.Errorf("%d, %v after %v", v, err, time.Since(s.begun))
		}
		if v := <-discarded; v != 1 || time.Since(s.begun) != 10*time.Second {
			t.Errorf("%d was discarded at %v", v, time.Since(s.begun))
		}
	})
	t.Run("Wait returns after all of them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			discarded := make(chan int, 5)
			s := &script{begun: time.Now(), steps: []scriptStep{{takes: 10 * time.Second, deaf: true}, {takes: time.Second}}}
			v, err := retry.Hedge(t.Context(), s.op, retry.HedgePolicy{Delay: time.Second, Wait: true}, func(v int) { discarded <- v })
			if v != 2 || err != nil || time.Since(s.begun) != 10*time.Second || len(discarded) != 1 {
				t.Errorf("%d, %v after %v", v, err, time.Since(s.begun))
			}
		})
	})
}

func TestHedgePanics(t *testing.T) {
	defer func() {
		if text, ok := recover().(string); !ok || !strings.Contains(text, "attempt 1") || !strings.Contains(text, "out of range") {
			t.Errorf("recovered %q, want the attempt's panic", text)
		}
	}()
	_, _ = retry.Hedge(t.Context(), func(context.Context) (int, error) { panic("out of range") }, retry.HedgePolicy{Delay: time.Hour}, nil)
}

func TestHedgeGoexit(t *testing.T) {
	_, err := retry.Hedge(t.Context(), func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, retry.HedgePolicy{}, nil)
	if !errors.Is(err, retry.ErrExhausted) {
		t.Errorf("%v, want an error rather than a hang", err)
	}
}

// A success at the instant of the caller's end is either returned or discarded, never lost.
func TestHedgeLosesNoResult(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			got := make(chan int, 4)
			s := &script{begun: time.Now(), steps: []scriptStep{{takes: time.Second, deaf: true}, {takes: time.Second, deaf: true}}}
			v, err := retry.Hedge(ctx, s.op, retry.HedgePolicy{Wait: true}, func(v int) { got <- v })
			if err == nil {
				got <- v
			}
			if len(got) != 2 {
				t.Fatalf("%d of 2 results came to an end, %v", len(got), err)
			}
		})
	}
}

// A hedge is no retry: a retry within one of its attempts goes on as it would alone.
func TestRetryWithinAHedge(t *testing.T) {
	calls := 0
	v, err := retry.Hedge(t.Context(), func(ctx context.Context) (int, error) {
		return retry.Value(ctx, func(context.Context) (int, error) {
			if calls++; calls < 3 {
				return 0, errDown
			}
			return calls, nil
		}, retry.Policy(backoff.Fixed(0)))
	}, retry.HedgePolicy{Delay: time.Hour}, nil)
	if v != 3 || err != nil {
		t.Errorf("%d, %v; want the third attempt's", v, err)
	}
}

func TestFallback(t *testing.T) {
	second := errors.New("second is down too")
	down := func(context.Context) (string, error) { return "", retry.Permanent(errDown) }
	v, err := retry.Fallback(t.Context(), down, func(_ context.Context, cause error) (string, error) {
		if !errors.Is(cause, errDown) {
			t.Errorf("cause %v", cause)
		}
		return "second", nil
	})
	if v != "second" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	_, err = retry.Fallback(t.Context(), down, func(context.Context, error) (string, error) { return "x", second })
	if !errors.Is(err, errDown) || !errors.Is(err, second) {
		t.Errorf("%v, want both failures", err)
	}
	v, err = retry.Fallback(t.Context(), func(context.Context) (string, error) { return "first", nil },
		func(context.Context, error) (string, error) { t.Error("asked without need"); return "", nil })
	if v != "first" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = retry.Fallback(ctx, down, func(context.Context, error) (string, error) { t.Error("ran with a dead context"); return "", nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
