package retry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/penstock-io/penstock/retry"
)

// counter is a budget that counts the attempts that were allowed and not reported.
type counter struct {
	open    int
	reports []error
}

func (c *counter) Allow(context.Context) error {
	c.open++
	return nil
}

func (c *counter) Report(_ context.Context, err error) {
	c.open--
	c.reports = append(c.reports, err)
}

// TestBudgetAfterAPanic checks that the budget gets a report for each allowed attempt, even if a
// function of the options or the body of a loop panics.
func TestBudgetAfterAPanic(t *testing.T) {
	fail := func(context.Context) error { return errDown }
	do := func(ctx context.Context, o retry.Options) { _ = retry.Do(ctx, fail, o) }
	poll := func(ctx context.Context, o retry.Options) {
		_, _ = retry.Poll(ctx, func(ctx context.Context) (int, error) { return 0, fail(ctx) }, o)
	}
	loop := func(ctx context.Context, o retry.Options) {
		var loop retry.Loop
		for ctx := range loop.Attempts(ctx, o) {
			loop.End(fail(ctx))
		}
	}
	panics := retry.Options{Classify: func(error) retry.Action { panic("classify") }}
	for name, c := range map[string]struct {
		call    func(context.Context, retry.Options)
		options retry.Options
	}{
		"Classify in Do":   {do, panics},
		"Classify in Loop": {loop, panics},
		"Classify in Poll": {poll, panics},
		"OnEvent at the start": {do, retry.Options{OnEvent: func(_ context.Context, e retry.Event) {
			if e.Kind == retry.AttemptStarted {
				panic("event")
			}
		}}},
		"body after End": {call: func(ctx context.Context, o retry.Options) {
			var loop retry.Loop
			for ctx := range loop.Attempts(ctx, o) {
				loop.End(fail(ctx))
				panic("body")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var budget counter
			c.options.Budget = &budget
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				c.call(t.Context(), c.options)
			}()
			if budget.open != 0 || len(budget.reports) != 1 || budget.reports[0] == nil {
				t.Errorf("%d attempts are not reported, reports %v; want one failure", budget.open,
					budget.reports)
			}
		})
	}
}

// TestHedgeClassifyPanics checks that a panic of HedgeOptions.Classify reaches the caller of Hedge
// like a panic of the operation.
func TestHedgeClassifyPanics(t *testing.T) {
	defer func() {
		p, ok := recover().(*retry.PanicError)
		if !ok || !errors.Is(p, errDown) {
			t.Errorf("Hedge panicked with %v, want a *PanicError", p)
		}
	}()
	_, err := retry.Hedge(t.Context(), func(context.Context) (int, error) { return 0, errDown },
		retry.HedgeOptions{Classify: func(err error) retry.Action { panic(err) }}, nil)
	t.Errorf("Hedge returned %v, want a panic", err)
}
