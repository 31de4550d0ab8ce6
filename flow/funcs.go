package flow

import "context"

// WorkerFunc makes a function a [Worker].
type WorkerFunc[T any] func(ctx context.Context, a Attempt[T]) (Report, error)

// Deliver implements Worker: it calls f.
func (f WorkerFunc[T]) Deliver(ctx context.Context, a Attempt[T]) (Report, error) {
	return f(ctx, a)
}

// ProducerFunc makes a function a [Producer].
type ProducerFunc[T any] func(ctx context.Context) (Item[T], error)

// Next implements Producer: it calls f.
func (f ProducerFunc[T]) Next(ctx context.Context) (Item[T], error) { return f(ctx) }
