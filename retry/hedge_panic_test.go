package retry_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// TestHedgeWaitPanics checks that with Wait, Hedge does not return before all attempts have
// returned, and panics if one of them does, whether it loses or not.
func TestHedgeWaitPanics(t *testing.T) {
	for _, panicking := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var running atomic.Int64
			discarded := 0
			hedge := func() (value any) {
				defer func() { value = recover() }()
				_, _ = retry.Hedge(t.Context(), func(ctx context.Context) (int, error) {
					running.Add(1)
					defer running.Add(-1)
					if retry.FromContext(ctx).Number == panicking {
						if panicking == 2 {
							<-ctx.Done() // the first attempt has succeeded
						}
						panic(errDown)
					}
					if panicking == 1 {
						<-ctx.Done()
						time.Sleep(time.Second)
					}
					return 7, nil
				}, retry.HedgeOptions{Wait: true}, func(int) { discarded++ })
				return nil
			}
			p, ok := hedge().(*retry.PanicError)
			if !ok || !errors.Is(p, errDown) {
				t.Errorf("Hedge panicked with %v, want a *PanicError of attempt %d", p, panicking)
			}
			if n := running.Load(); n != 0 {
				t.Errorf("%d attempts run after Hedge", n)
			}
			if discarded != 1 {
				t.Errorf("%d results were discarded, want 1", discarded)
			}
		})
	}
}

// TestHedgeDiscardPanics checks that with Wait, a panic of discard reaches the caller of Hedge, and
// that the budget gets the report of each attempt.
func TestHedgeDiscardPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &countingBudget{}
		var value any
		func() {
			defer func() { value = recover() }()
			_, _ = retry.Hedge(t.Context(), func(ctx context.Context) (int, error) {
				number := retry.FromContext(ctx).Number
				time.Sleep(time.Duration(number) * time.Second)
				return number, nil
			}, retry.HedgeOptions{Wait: true, Budget: budget}, func(n int) {
				if n == 2 {
					panic(errDown)
				}
			})
		}()
		if p, ok := value.(*retry.PanicError); !ok || !errors.Is(p, errDown) {
			t.Errorf("Hedge panicked with %v, want a *PanicError of discard", value)
		}
		if n := budget.open.Load(); n != 0 {
			t.Errorf("%d attempts were not reported to the budget", n)
		}
	})
}

// countingBudget counts the attempts that it has allowed and that were not yet reported.
type countingBudget struct{ open atomic.Int64 }

func (b *countingBudget) Allow(context.Context) error {
	b.open.Add(1)
	return nil
}

func (b *countingBudget) Report(context.Context, error) { b.open.Add(-1) }
