package breaker_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retry"
)

// TestBudgetSharedContext checks that each attempt counts once if attempts of several calls run
// concurrently with one context.
func TestBudgetSharedContext(t *testing.T) {
	b, err := breaker.New(breaker.Options{Failures: 4, FailureRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	const calls = 4
	budget := b.Budget()
	begun, end, ended := make(chan bool), make(chan bool), make(chan error)
	for range calls {
		go func() {
			once := func(context.Context) error {
				begun <- true
				<-end
				return errors.New("failed")
			}
			ended <- retry.Do(context.Background(), once,
				retry.Options{Budget: budget, MaxAttempts: 1})
		}()
	}
	for range calls {
		<-begun
	}
	for i := range calls {
		if got := b.State(); got != breaker.Closed {
			t.Errorf("after %d failures it is %v, want closed", i, got)
		}
		end <- true
		<-ended
	}
	if got := b.State(); got != breaker.Open {
		t.Errorf("after %d failures it is %v, want open", calls, got)
	}
}

// TestCauseOfACancellation checks that canceled calls do not open the breaker, even if their error
// is only the cause of the cancellation, and does not wrap context.Canceled.
func TestCauseOfACancellation(t *testing.T) {
	b, err := breaker.New(breaker.Options{Failures: 2})
	if err != nil {
		t.Fatal(err)
	}
	giveUp := func(call func(context.Context, func(context.Context) error) error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_ = call(ctx, func(ctx context.Context) error {
			cancel(errors.New("user left"))
			return context.Cause(ctx)
		})
	}
	budget := b.Budget()
	for range 10 {
		giveUp(b.Do)
		giveUp(func(ctx context.Context, op func(context.Context) error) error {
			return retry.Do(ctx, op, retry.Options{Budget: budget})
		})
	}
	if got := b.State(); got != breaker.Closed {
		t.Errorf("after canceled calls it is %v, want closed", got)
	}
}

// mapContext is a context that cannot be the key of a map.
type mapContext struct {
	context.Context
	values map[string]string
}

// TestBudgetWithAnyContext checks that a context of any type works, in concurrent calls, too.
func TestBudgetWithAnyContext(t *testing.T) {
	b, err := breaker.New(breaker.Options{Failures: 2, FailureRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	budget := b.Budget()
	first := mapContext{t.Context(), map[string]string{"user": "a"}}
	second := mapContext{t.Context(), map[string]string{"user": "b"}}
	for _, ctx := range []context.Context{first, second} {
		if err := budget.Allow(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, ctx := range []context.Context{second, first} {
		if got := b.State(); got != breaker.Closed {
			t.Errorf("before the second failure it is %v, want closed", got)
		}
		budget.Report(ctx, errors.New("failed"))
	}
	if got := b.State(); got != breaker.Open {
		t.Errorf("after two failures it is %v, want open", got)
	}
}

// TestOutcomeOfRetryErrors checks that failures which a healthy server causes, and which package
// retry does not repeat, are ignored.
func TestOutcomeOfRetryErrors(t *testing.T) {
	status := func(code int) error { return retry.HTTP(&http.Response{StatusCode: code}) }
	fail := func(error) retry.Action { return retry.Fail }
	do := func(err error, o retry.Options) error {
		o.MaxAttempts = 1
		return retry.Do(t.Context(), func(context.Context) error { return err }, o)
	}
	for _, v := range []struct {
		err  error
		want breaker.Outcome
	}{
		{status(401), breaker.Ignored},
		{status(404), breaker.Ignored},
		{retry.After(time.Second, status(404)), breaker.Ignored},
		{do(status(404), retry.Options{}), breaker.Ignored},
		{do(errors.New("x"), retry.Options{Classify: fail}), breaker.Ignored},
		{do(nil, retry.Options{MaxHint: -1}), breaker.Ignored},
		{status(429), breaker.Failure},
		{status(503), breaker.Failure},
		{retry.After(time.Second, status(503)), breaker.Failure},
		{do(status(503), retry.Options{}), breaker.Failure},
		{do(errors.New("x"), retry.Options{}), breaker.Failure},
	} {
		if got := breaker.OutcomeOf(v.err); got != v.want {
			t.Errorf("%v: %v, want %v", v.err, got, v.want)
		}
	}
}
