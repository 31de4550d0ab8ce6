package retry_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// script is an operation. Each attempt takes the time and returns the result of its step.
type script struct {
	mu     sync.Mutex
	begun  time.Time
	starts []time.Duration
	ends   []error // causes of the attempts' contexts when they ended
	steps  []scriptStep
}

type scriptStep struct {
	takes   time.Duration
	err     error
	ignores bool // does not notice the end of its context
}

func (s *script) op(ctx context.Context) (int, error) {
	a := retry.FromContext(ctx)
	s.mu.Lock()
	s.starts = append(s.starts, time.Since(s.begun))
	s.mu.Unlock()
	step := s.steps[a.Number-1]
	if step.ignores {
		wait(context.WithoutCancel(ctx), step.takes)
	} else {
		wait(ctx, step.takes)
	}
	if ctx.Err() != nil && !step.ignores {
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
		name    string
		steps   []scriptStep
		options retry.HedgeOptions
		want    int
		after   time.Duration
		starts  []time.Duration
		stop    error
		refuse  int // the attempt that the budget refuses
	}{
		{name: "fast answer", steps: []scriptStep{{takes: second}},
			options: retry.HedgeOptions{Delay: 2 * second},
			want:    1, after: second, starts: seconds(0)},
		{name: "slow first", steps: []scriptStep{{takes: time.Hour}, {takes: second}},
			options: retry.HedgeOptions{Delay: 2 * second},
			want:    2, after: 3 * second, starts: seconds(0, 2)},
		{name: "first wins late", steps: []scriptStep{{takes: 3 * second}, {takes: time.Hour}},
			options: retry.HedgeOptions{Delay: 2 * second}, want: 1, after: 3 * second,
			starts: seconds(0, 2)},
		{name: "three", steps: []scriptStep{{takes: time.Hour}, {takes: time.Hour},
			{takes: second}},
			options: retry.HedgeOptions{Delay: second, MaxAttempts: 3}, want: 3, after: 3 * second,
			starts: seconds(0, 1, 2)},
		{name: "all at once",
			steps:   []scriptStep{{takes: 3 * second}, {takes: second}, {takes: 2 * second}},
			options: retry.HedgeOptions{MaxAttempts: 3}, want: 2, after: second,
			starts: seconds(0, 0, 0)},
		{name: "a failure is replaced at once",
			steps:   []scriptStep{{takes: second, err: errDown}, {takes: second}},
			options: retry.HedgeOptions{Delay: time.Hour}, want: 2, after: 2 * second,
			starts: seconds(0, 1)},
		{name: "a hint delays the replacement",
			steps:   []scriptStep{{err: retry.After(5*second, errDown)}, {}},
			options: retry.HedgeOptions{Delay: time.Hour}, want: 2, after: 5 * second,
			starts: seconds(0, 5)},
		{name: "all fail",
			steps:   []scriptStep{{takes: second, err: errDown}, {takes: second, err: errDown}},
			options: retry.HedgeOptions{Delay: time.Hour}, stop: retry.ErrExhausted,
			after: 2 * second, starts: seconds(0, 1)},
		{name: "permanent",
			steps: []scriptStep{{takes: time.Hour},
				{takes: second, err: retry.Permanent(errDown)}},
			options: retry.HedgeOptions{Delay: second}, stop: retry.ErrPermanent, after: 2 * second,
			starts: seconds(0, 1)},
		{name: "budget refuses the second", steps: []scriptStep{{takes: 5 * second}},
			options: retry.HedgeOptions{Delay: second}, refuse: 2, want: 1, after: 5 * second,
			starts: seconds(0)},
		{name: "budget refuses the replacement", steps: []scriptStep{{takes: second, err: errDown}},
			options: retry.HedgeOptions{Delay: time.Hour}, refuse: 2, stop: retry.ErrBudget,
			after: second, starts: seconds(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{begun: time.Now(), steps: c.steps}
				if c.refuse > 0 {
					c.options.Budget = newLedger(c.refuse)
				}
				v, err := retry.Hedge(t.Context(), s.op, c.options, nil)
				took := time.Since(s.begun)
				synctest.Wait() // the losing attempts notice the end of their contexts
				if took != c.after || v != c.want || !slices.Equal(s.starts, c.starts) {
					t.Errorf("%d after %v, attempts at %v; want %d after %v, at %v", v, took,
						s.starts, c.want, c.after, c.starts)
				}
				if c.stop == nil && err != nil || c.stop != nil && !errors.Is(err, c.stop) {
					t.Errorf("%v, want %v", err, c.stop)
				}
				if c.stop != nil && !errors.Is(err, errDown) {
					t.Errorf("%v has lost the failure", err)
				}
				for _, cause := range s.ends {
					if !errors.Is(cause, context.Canceled) || cause == context.Canceled {
						t.Errorf("an attempt ended by %v, want a cause that is Canceled", cause)
					}
				}
				if l, ok := c.options.Budget.(*ledger); ok {
					l.check(t, -1)
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
		_, err := retry.Hedge(ctx, s.op, retry.HedgeOptions{Delay: time.Second / 2}, nil)
		if !errors.Is(err, context.Canceled) || time.Since(s.begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(s.begun))
		}
		synctest.Wait()
		if _, err := retry.Hedge(ctx, s.op, retry.HedgeOptions{}, nil); !errors.Is(err,
			context.Canceled) || len(s.starts) != 2 {
			t.Errorf("%v; an attempt ran after the end of the context", err)
		}
	})
}

func TestHedgeLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		discarded := make(chan int, 5)
		s := &script{begun: time.Now(),
			steps: []scriptStep{{takes: 10 * time.Second, ignores: true}, {takes: time.Second}}}
		v, err := retry.Hedge(t.Context(), s.op, retry.HedgeOptions{Delay: time.Second},
			func(v int) {
				discarded <- v
			})
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
			s := &script{begun: time.Now(),
				steps: []scriptStep{{takes: 10 * time.Second, ignores: true}, {takes: time.Second}}}
			v, err := retry.Hedge(t.Context(), s.op,
				retry.HedgeOptions{Delay: time.Second, Wait: true}, func(v int) {
					discarded <- v
				})
			if v != 2 || err != nil || time.Since(s.begun) != 10*time.Second ||
				len(discarded) != 1 {
				t.Errorf("%d, %v after %v", v, err, time.Since(s.begun))
			}
		})
	})
}

func TestHedgePanics(t *testing.T) {
	cause := errors.New("out of range")
	defer func() {
		e, ok := recover().(*retry.PanicError)
		if !ok || e.Value != cause || !errors.Is(e, cause) ||
			!strings.Contains(string(e.Stack), "TestHedgePanics") {
			t.Errorf("recovered %v, want the value and the stack of the attempt's panic", e)
		}
	}()
	_, _ = retry.Hedge(t.Context(), func(context.Context) (int, error) { panic(cause) },
		retry.HedgeOptions{Delay: time.Hour}, nil)
}

// TestHedgeResponseBody checks that the winner's response can be read after Hedge has returned,
// until its body is closed.
func TestHedgeResponseBody(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "second")
	}))
	defer srv.Close()
	var contexts []context.Context
	get := func(ctx context.Context) (*http.Response, error) {
		contexts = append(contexts, ctx)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
		if err != nil {
			return nil, err
		}
		return http.DefaultClient.Do(req)
	}
	resp, err := retry.Hedge(t.Context(), get, retry.HedgeOptions{Delay: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != "first second" {
		t.Errorf("read %q, %v", text, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if contexts[0].Err() == nil {
		t.Error("the context outlives the body")
	}
}

// TestHedgeContextOfTheWinner checks when the context of the winner ends if its value has no body:
// when Hedge returns or, with KeepContext, when the caller's context ends.
func TestHedgeContextOfTheWinner(t *testing.T) {
	for _, keep := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		won, err := retry.Hedge(ctx, func(ctx context.Context) (context.Context, error) {
			return ctx, nil
		},
			retry.HedgeOptions{Delay: time.Hour, KeepContext: keep}, nil)
		if err != nil || (won.Err() == nil) != keep {
			t.Errorf("keep %v: %v, context %v", keep, err, won.Err())
		}
		if cancel(); won.Err() == nil {
			t.Errorf("keep %v: the context outlives the caller's", keep)
		}
	}
}

// TestHedgeClosesLateResponses checks that Hedge closes a response that comes too late.
func TestHedgeClosesLateResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		get := func(ctx context.Context) (*http.Response, error) {
			number := retry.FromContext(ctx).Number
			// The first takes 20s, the second 10s.
			wait(t.Context(), time.Duration(3-number)*10*time.Second)
			return &http.Response{Body: &closeCounter{Reader: strings.NewReader(""), s: s},
				StatusCode: number}, nil
		}
		s.open = 2
		resp, err := retry.Hedge(t.Context(), get, retry.HedgeOptions{Wait: true}, nil)
		if err != nil || resp.StatusCode != 2 || s.open != 1 {
			t.Errorf("%v, %v; %d bodies open, want the winner's", resp, err, s.open)
		}
	})
}

func TestHedgeGoexit(t *testing.T) {
	_, err := retry.Hedge(t.Context(), func(context.Context) (int, error) {
		runtime.Goexit()
		return 0, nil
	}, retry.HedgeOptions{}, nil)
	if !errors.Is(err, retry.ErrExhausted) {
		t.Errorf("%v, want an error rather than a hang", err)
	}
}

// TestHedgeLosesNoResult checks that a success at the instant at which the caller's context ends is
// either returned or discarded, never lost.
func TestHedgeLosesNoResult(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			got := make(chan int, 4)
			s := &script{begun: time.Now(),
				steps: []scriptStep{{takes: time.Second, ignores: true},
					{takes: time.Second, ignores: true}}}
			v, err := retry.Hedge(ctx, s.op, retry.HedgeOptions{Wait: true}, func(v int) {
				got <- v
			})
			if err == nil {
				got <- v
			}
			if len(got) != 2 {
				t.Fatalf("%d of 2 results came to an end, %v", len(got), err)
			}
		})
	}
}

// TestRetryWithinAHedge checks that a retry inside an attempt of a hedge works as it does alone.
func TestRetryWithinAHedge(t *testing.T) {
	calls := 0
	v, err := retry.Hedge(t.Context(), func(ctx context.Context) (int, error) {
		return retry.Value(ctx, func(context.Context) (int, error) {
			if calls++; calls < 3 {
				return 0, errDown
			}
			return calls, nil
		}, atOnce)
	}, retry.HedgeOptions{Delay: time.Hour}, nil)
	if v != 3 || err != nil {
		t.Errorf("%d, %v; want the third attempt's", v, err)
	}
}

func TestFallback(t *testing.T) {
	second := errors.New("second is down too")
	down := func(context.Context) (string, error) { return "", retry.Permanent(errDown) }
	v, err := retry.Fallback(t.Context(), down,
		func(_ context.Context, cause error) (string, error) {
			if !errors.Is(cause, errDown) {
				t.Errorf("cause %v", cause)
			}
			return "second", nil
		})
	if v != "second" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	_, err = retry.Fallback(t.Context(), down, func(context.Context, error) (string, error) {
		return "x", second
	})
	if !errors.Is(err, errDown) || !errors.Is(err, second) {
		t.Errorf("%v, want both failures", err)
	}
	v, err = retry.Fallback(t.Context(), func(context.Context) (string, error) {
		return "first", nil
	},
		func(context.Context, error) (string, error) {
			t.Error("the alternative ran")
			return "", nil
		})
	if v != "first" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	_, err = retry.Fallback(t.Context(), down,
		func(context.Context, error) (string, error) {
			t.Error("the options are invalid")
			return "", nil
		},
		retry.Options{Targets: -1})
	if !errors.Is(err, retry.ErrOptions) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = retry.Fallback(ctx, down, func(context.Context, error) (string, error) {
		t.Error("the alternative ran after the end of the context")
		return "", nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHedgeWithoutALimit checks that MaxAttempts may be the largest int, for no limit.
func TestHedgeWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		got, err := retry.Hedge(t.Context(), func(ctx context.Context) (int, error) {
			if n := retry.FromContext(ctx).Number; n >= 100 {
				return n, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}, retry.HedgeOptions{Delay: time.Second, MaxAttempts: math.MaxInt}, nil)
		if took := time.Since(begun); got != 100 || err != nil || took != 99*time.Second {
			t.Errorf("%d, %v after %v; want the attempt 100 after 99s", got, err, took)
		}
	})
}
