package compare

import (
	"cmp"
	"context"
	"fmt"
	"time"

	avast "github.com/avast/retry-go/v5"
	sethvargo "github.com/sethvargo/go-retry"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/errgroup"
	xrate "golang.org/x/time/rate"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/supervise"
)

// oursAttempts loads a user in up to 5 attempts. It does not retry a final failure.
func oursAttempts(ctx context.Context) (user, error) {
	return retry.Value(ctx, load, retry.Options{MaxAttempts: 5})
}

// theirsAttempts loads a user in up to 5 attempts with avast/retry-go.
func theirsAttempts(ctx context.Context) (user, error) {
	return avast.NewWithData[user](
		avast.Context(ctx), avast.Attempts(5), avast.DelayType(avast.FullJitterBackoffDelay),
	).Do(func() (user, error) { return load(ctx) })
}

// oursCapped retries up to 4 times. The waits grow from 1 s to 10 s and have jitter.
func oursCapped(ctx context.Context) (user, error) {
	policy := backoff.Exponential(time.Second, 2, 10*time.Second).Equal()
	return retry.Value(ctx, load, retry.Options{MaxAttempts: 5, Policy: policy})
}

// theirsCapped retries up to 4 times with sethvargo/go-retry. The waits grow from 1 s to 10 s.
func theirsCapped(ctx context.Context) (u user, err error) {
	policy := sethvargo.NewExponential(time.Second)
	policy = sethvargo.WithCappedDuration(10*time.Second, sethvargo.WithJitterPercent(50, policy))
	return sethvargo.DoValue(ctx, sethvargo.WithMaxRetries(4, policy),
		func(ctx context.Context) (user, error) {
			u, err := load(ctx)
			return u, sethvargo.RetryableError(err)
		})
}

// oursBreaker returns a function that loads a user and has a circuit breaker.
func oursBreaker() (func(context.Context) (user, error), error) {
	guard, err := breaker.New(breaker.Options{})
	return func(ctx context.Context) (u user, _ error) {
		return u, guard.Do(ctx, func(ctx context.Context) (err error) {
			u, err = load(ctx)
			return err
		})
	}, err
}

// theirsBreaker returns a function that loads a user and has a circuit breaker, by gobreaker.
func theirsBreaker() (func(context.Context) (user, error), error) {
	guard := gobreaker.NewCircuitBreaker[user](gobreaker.Settings{
		Interval:    10 * time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 5 },
	})
	return func(ctx context.Context) (user, error) {
		return guard.Execute(func() (user, error) { return load(ctx) })
	}, nil
}

// oursRate returns a function that loads a user, in the long run at most 100 times per minute, and
// at most 10 times at once after a pause.
func oursRate() (func(context.Context) (user, error), error) {
	limiter, err := rate.New(rate.Options{Events: 100, Per: time.Minute, Burst: 10})
	return func(ctx context.Context) (user, error) {
		if err := limiter.Wait(ctx); err != nil {
			return user{}, err
		}
		return load(ctx)
	}, err
}

// theirsRate returns a function that loads a user at the same rate, by x/time/rate.
func theirsRate() (func(context.Context) (user, error), error) {
	limiter := xrate.NewLimiter(xrate.Every(time.Minute/100), 10)
	return func(ctx context.Context) (user, error) {
		if err := limiter.Wait(ctx); err != nil {
			return user{}, err
		}
		return load(ctx)
	}, nil
}

// oursGroup runs functions, at most 4 at a time, until one fails.
func oursGroup(ctx context.Context, functions []func(context.Context) error) error {
	group := supervise.NewGroup(ctx)
	group.SetLimit(4)
	for i, f := range functions {
		group.Go(fmt.Sprint(i), f)
	}
	return cmp.Or(group.Wait(), context.Cause(ctx))
}

// theirsGroup runs functions, at most 4 at a time, until one fails. It uses errgroup.
func theirsGroup(ctx context.Context, functions []func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, f := range functions {
		group.Go(func() error { return f(ctx) })
	}
	return group.Wait()
}
