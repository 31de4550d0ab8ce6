package compare

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retry"
)

// oursHedge returns a function that loads a user. If the request is slow, the function sends a
// second one, within a budget. A breaker protects the service.
func oursHedge() func(context.Context) (user, error) {
	guard, err := breaker.New(breaker.Options{})
	budget := retry.InFlight(0.2, 3)
	return func(ctx context.Context) (u user, _ error) {
		if err != nil {
			return u, err
		}
		return u, guard.Do(ctx, func(ctx context.Context) (err error) {
			u, err = retry.Hedge(ctx, load,
				retry.HedgeOptions{Delay: 100 * time.Millisecond, Budget: budget}, nil)
			return err
		})
	}
}

// theirsHedge does the same as oursHedge, with failsafe-go.
func theirsHedge() func(context.Context) (user, error) {
	guard := circuitbreaker.NewBuilder[user]().
		WithFailureRateThreshold(0.5, 20, 10*time.Second).
		WithDelay(500 * time.Millisecond).
		Build()
	hedge := hedgepolicy.NewBuilderWithDelay[user](100 * time.Millisecond).
		WithBudget(budget.NewBuilder().WithMaxRate(0.2).WithMinConcurrency(3).Build()).
		Build()
	return func(ctx context.Context) (user, error) {
		return failsafe.With(guard, hedge).WithContext(ctx).GetWithExecution(
			func(e failsafe.Execution[user]) (user, error) {
				return load(e.Context())
			})
	}
}
