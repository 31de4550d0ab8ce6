package retry

import (
	"context"
	"errors"
)

// Fallback is Value with somebody else to ask in the end: where op has failed for good, it calls other once with the
// *Error that op's retry ended with, and returns its answer. It does not do so with a context that has ended, nor
// where an outer retry will try op again. If other fails too, the error holds both.
//
// To let the attempts themselves go from one service to the next, see Retrier.Targets and the action Failover.
func Fallback[T any](
	ctx context.Context, op func(context.Context) (T, error), other func(context.Context, error) (T, error), opts ...Option,
) (T, error) {
	v, err := Value(ctx, op, opts...)
	if err == nil || ctx.Err() != nil {
		return v, err
	}
	if e, ok := errors.AsType[*Error](err); ok && errors.Is(e.Stop, ErrNested) {
		return v, err
	}
	second, failed := other(ctx, err)
	if failed != nil {
		var zero T
		return zero, errors.Join(err, failed)
	}
	return second, nil
}
