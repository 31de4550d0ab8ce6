package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/vectors"
)

func TestVectors(t *testing.T) {
	vectors.Run(t, vectors.Retry, map[string]func(*testing.T, vectors.Case){
		// In the pseudocode a server error is final.
		"polling.pseudo": func(t *testing.T, c vectors.Case) { polling(t, c, 0, fatal) },
		// The Java loop polls once more than its MAX.
		"polling.java":   func(t *testing.T, c vectors.Case) { polling(t, c, 1, errServerFault) },
		"aws.tokens":     awsTokens,
		"cenkalti.retry": cenkaltiRetry,
	})
}

var (
	errServerFault = errors.New("server error")
	fatal          = Permanent(errors.New("fatal"))
)

// polling runs the polling loops of the articles, which wait 2^n units before each poll.
func polling(t *testing.T, c vectors.Case, more int, serverError error) {
	unit := c.Params.Duration(t, "unit_ns")
	results := map[string]error{
		"SUCCESS": nil, "NOT_READY": ErrNotReady, "THROTTLED": errors.New("too many requests"),
		"SERVER_ERROR": serverError, "FATAL": fatal,
	}
	for _, d := range c.Decisions {
		result, ok := results[d.Input.Text(t, "status")]
		if !ok {
			t.Fatalf("unknown status in %v", d.Input)
		}
		limit := d.Input.Duration(t, "cap_ns")
		base := unit
		if limit > 0 {
			base = min(unit, limit)
		}
		policy := backoff.Exponential(base, 2, limit)
		synctest.Test(t, func(t *testing.T) {
			var waits []time.Duration
			last := time.Now()
			_, err := Poll(t.Context(), func(context.Context) (int, error) {
				waits, last = append(waits, time.Since(last)), time.Now()
				return 0, result
			}, Options{Policy: policy, WaitFirst: true,
				MaxAttempts: max(1, d.Input.Int(t, "max")+more)})
			action := "fail"
			if err == nil {
				action = "done"
			}
			if want := d.Output.Durations(t, "waits_ns"); len(waits) != d.Output.Int(t, "polls") ||
				!slices.Equal(waits, want) {
				t.Errorf("%v: waits %v, want %v", d.Input, waits, want)
			}
			if action != d.Output.Text(t, "action") {
				t.Errorf("%v: %v, want %v", d.Input, err, d.Output)
			}
		})
	}
}

// pricedError is a failure that sets the price of its retry (RetryCost). Zero means the price of
// the budget.
type pricedError int

func (pricedError) Error() string    { return "failed" }
func (p pricedError) RetryCost() int { return int(p) }

// awsTokens counts the retries that a new bucket of 500 tokens grants.
func awsTokens(t *testing.T, c vectors.Case) {
	price, costs := 5, map[string]int{"plain": 0, "throttle": 0, "timeout": 10}
	switch mode := c.Params.Text(t, "mode"); mode {
	case "legacy":
	case "2026":
		price, costs = 14, map[string]int{"plain": 0, "throttle": 5}
	default:
		t.Fatalf("unknown mode %q", mode)
	}
	for _, d := range c.Decisions {
		cost, ok := costs[d.Input.Text(t, "error")]
		if !ok {
			t.Fatalf("unknown error in %v", d.Input)
		}
		b := TokenBucket(500, price, 1).(*tokenBucket)
		o := Options{Policy: backoff.Fixed(0), MaxAttempts: -1, Budget: b}
		granted := -1 // the first attempt is no retry
		err := Do(t.Context(), func(context.Context) error {
			granted++
			return pricedError(cost)
		}, o)
		reason := fmt.Sprintf("%d available, %d requested", b.left, cmp.Or(cost, price))
		if granted != d.Output.Int(t, "retries_granted") || !errors.Is(err, ErrBudget) ||
			!strings.HasSuffix(d.Output.Text(t, "reason"), reason) {
			t.Errorf("%v: %d retries granted, %v, %s; want %v", d.Input, granted, err, reason,
				d.Output)
		}
		if d.Output.Text(t, "action") != "fail" {
			t.Errorf("%v: unknown action in %v", d.Input, d.Output)
		}
	}
}

// nextBackOff is a policy that always returns the same wait, like a constant BackOff of cenkalti.
// The value -1, cenkalti's Stop, makes it give up.
type nextBackOff time.Duration

func (d nextBackOff) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	if d == -1 {
		return 0, s, false
	}
	return time.Duration(d), s.After(time.Duration(d)), true
}

// cenkaltiRetry checks that this package decides after a failure as cenkalti's Retry did in the
// recorded case. The settings are those of cenkalti: a hint replaces the wait of the policy and
// restarts the policy.
func cenkaltiRetry(t *testing.T, c vectors.Case) {
	for _, d := range c.Decisions {
		in := d.Input
		o := Options{
			Policy:      nextBackOff(in.Duration(t, "policy_next_ns")),
			MaxAttempts: in.Int(t, "max_tries"),
			MaxElapsed:  in.Duration(t, "max_elapsed_ns"),
			MaxHint:     math.MaxInt64,
			ExactHint:   true,
		}
		if o.MaxAttempts == 0 {
			o.MaxAttempts = -1
		}
		var after time.Duration
		if in.Has("retry_after_ns") {
			after = in.Duration(t, "retry_after_ns")
		}
		failure := map[string]error{
			"plain":     errors.New("plain"),
			"permanent": Permanent(errors.New("plain")),
			"wrapped permanent": fmt.Errorf("wrapped: %w",
				Permanent(errors.New("plain"))),
			"retry_after": After(after, fmt.Errorf("retry after %v", after)),
			"permanent holding retry_after": Permanent(After(after,
				fmt.Errorf("retry after %v", after))),
		}[in.Text(t, "error")]
		if failure == nil || in.Int(t, "try") != 1 {
			t.Fatalf("unknown form of input: %v", in)
		}
		ran, live := in.Duration(t, "elapsed_ns"), in.Text(t, "context") == "live"
		synctest.Test(t, func(t *testing.T) { runCenkaltiRetry(t, o, failure, ran, live, d) })
		checkResets(t, &o, failure, ran, live, d)
	}
}

func runCenkaltiRetry(t *testing.T, o Options, failure error, ran time.Duration, live bool,
	d vectors.Decision) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, notified := 0, false
	var ended time.Time
	var waited time.Duration
	o.OnEvent = func(_ context.Context, e Event) { notified = notified || e.Kind == AttemptFailed }
	err := Do(ctx, func(ctx context.Context) error {
		if n++; n > 1 {
			waited = time.Since(ended)
			return nil
		}
		timer := time.NewTimer(ran)
		<-timer.C
		if !live {
			cancel()
		}
		ended = time.Now()
		return failure
	}, o)
	out := d.Output
	switch action := out.Text(t, "action"); action {
	case "retry":
		if err != nil || n != 2 || waited != out.Duration(t, "waited_ns") ||
			waited != out.Duration(t, "delay_ns") {
			t.Errorf("%v: %v after %d attempts and a wait of %v; want %v", d.Input, err, n, waited,
				out)
		}
	case "fail":
		stop := map[string]error{
			"backoff: permanent error":               ErrPermanent,
			"backoff: retries exhausted":             ErrExhausted,
			"backoff: maximum elapsed time exceeded": ErrElapsed,
			"context canceled":                       context.Canceled,
		}[out.Text(t, "reason")]
		e, ok := errors.AsType[*Error](err)
		if !ok || stop == nil || !errors.Is(e.Stop, stop) || n != 1 ||
			notified != out.Bool(t, "notified") {
			t.Errorf("%v: %v after %d attempts, notified %v; want %v", d.Input, err, n, notified,
				out)
			return
		}
		if last := strings.TrimPrefix(e.Last.Error(), "wrapped: "); last != out.Text(t,
			"last_error") {
			t.Errorf("%v: last error %q, want %q", d.Input, last, out.Text(t, "last_error"))
		}
	default:
		t.Errorf("%v: unknown action %q", d.Input, action)
	}
}

// checkResets compares the number of restarts of the policy, which only the plan shows.
func checkResets(t *testing.T, o *Options, failure error, ran time.Duration, live bool,
	d vectors.Decision) {
	begun := backoff.State{N: 7}
	p := plan{row: 1, state: begun}
	action, after := o.classify(failure)
	s := step{action: action, after: after, now: ran}
	if !live {
		s.contextErr = context.Canceled
	}
	_, _ = p.decide(o, &s)
	resets := 1
	if p.state == (backoff.State{}) {
		resets++
	}
	if want := d.Output.Int(t, "policy_resets"); resets != want {
		t.Errorf("%v: the policy restarts %d times, want %d", d.Input, resets, want)
	}
}
