package compare

import (
	"context"
	"errors"
	"time"

	cenkalti "github.com/cenkalti/backoff/v7"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// oursPoll asks each second for a report until it is done, for up to an hour. Failed requests are
// retried.
func oursPoll(ctx context.Context) (report, error) {
	return retry.Poll(ctx, func(ctx context.Context) (report, error) {
		r, err := ask(ctx)
		if err == nil && !r.Done {
			return r, retry.ErrNotReady
		}
		return r, err
	}, retry.Options{Policy: backoff.Fixed(time.Second), MaxElapsed: time.Hour})
}

// theirsPoll asks each second for a report until it is done, for up to an hour. It uses
// cenkalti/backoff.
func theirsPoll(ctx context.Context) (report, error) {
	return cenkalti.Retry(ctx, func() (report, error) {
		r, err := ask(ctx)
		if err == nil && !r.Done {
			return r, errors.New("not ready")
		}
		return r, err
	}, cenkalti.WithBackOff(cenkalti.NewConstantBackOff(time.Second)),
		cenkalti.WithMaxElapsedTime(time.Hour))
}
