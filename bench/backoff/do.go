package main

import (
	"context"
	"errors"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"
	cenkalti "github.com/cenkalti/backoff/v7"
	failsafe "github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	sethvargo "github.com/sethvargo/go-retry"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

var errFailed = errors.New("failed")

// The benchmarks in this file call every library in its fastest form that allows repeated calls.
// The loop of each benchmark calls the library directly and not through a function value, so that
// only this call is measured. In the benchmarks without a retry, the operation does nothing.

// parent returns the context for the calls of a benchmark. If cancellable is set, it can be
// canceled, like the contexts of most programs. It is canceled only after the benchmark.
func parent(cancellable bool) (context.Context, context.CancelFunc) {
	if cancellable {
		return context.WithCancel(context.Background())
	}
	return context.Background(), func() {}
}

// fails is an operation that fails at every other call. n counts the calls.
func fails(n *int) error {
	if *n++; *n%2 == 1 {
		return errFailed
	}
	return nil
}

func ours(again, cancellable bool) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := parent(cancellable)
		defer cancel()
		b.ReportAllocs()
		if !again {
			op := func(context.Context) error { return nil }
			for b.Loop() {
				if err := retry.Do(ctx, op); err != nil {
					b.Fatal(err)
				}
			}
			return
		}
		n, o := 0, retry.Options{Policy: backoff.Fixed(0)}
		op := func(context.Context) error { return fails(&n) }
		for b.Loop() {
			if err := retry.Do(ctx, op, o); err != nil {
				b.Fatal(err)
			}
		}
	}
}

type floorKey struct{}

// floor measures the cost of the two checks that retry.Do makes before its first attempt: it makes
// them, and then calls op. The first check is whether the context has ended. The second one is
// whether the call is nested: made by the op of an outer retry.Do. A nested call numbers its own
// attempts, so in its op retry.FromContext must not return the outer attempt. No other library
// makes the second check.
//
//go:noinline
func floor(ctx context.Context, op func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Value(floorKey{}) != nil {
		return errFailed
	}
	return op(ctx)
}

func ofFloor(cancellable bool) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := parent(cancellable)
		defer cancel()
		op := func(context.Context) error { return nil }
		b.ReportAllocs()
		for b.Loop() {
			if err := floor(ctx, op); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func ofAvast(again, cancellable bool) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := parent(cancellable)
		defer cancel()
		r := avast.New(avast.Context(ctx), avast.Delay(0), avast.MaxJitter(0),
			avast.DelayType(avast.FixedDelay))
		n, op := 0, func() error { return nil }
		if again {
			op = func() error { return fails(&n) }
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := r.Do(op); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func ofCenkalti(again, cancellable bool) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := parent(cancellable)
		defer cancel()
		n, op := 0, func() (struct{}, error) { return struct{}{}, nil }
		if again {
			op = func() (struct{}, error) { return struct{}{}, fails(&n) }
		}
		zero := cenkalti.WithBackOff(&cenkalti.ZeroBackOff{})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cenkalti.Retry(ctx, op, zero); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// ofSethvargo returns a benchmark of sethvargo.Do. If fresh is set, each call gets a new backoff.
// Programs must do the same, because a call uses up the retries of its backoff. If fresh is not
// set, all calls share a backoff that has no limit and does not wait. This measures Do alone.
func ofSethvargo(again, cancellable, fresh bool) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := parent(cancellable)
		defer cancel()
		retryable := sethvargo.RetryableError(errFailed)
		n, op := 0, func(context.Context) error { return nil }
		if again {
			op = func(context.Context) error {
				if fails(&n) != nil {
					return retryable
				}
				return nil
			}
		}
		zero := sethvargo.BackoffFunc(func() (time.Duration, bool) { return 0, false })
		b.ReportAllocs()
		if fresh {
			for b.Loop() {
				if err := sethvargo.Do(ctx, sethvargo.WithMaxRetries(9, zero), op); err != nil {
					b.Fatal(err)
				}
			}
			return
		}
		for b.Loop() {
			if err := sethvargo.Do(ctx, zero, op); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func ofFailsafe(again, cancellable bool) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := parent(cancellable)
		defer cancel()
		n, op := 0, func() error { return nil }
		if again {
			op = func() error { return fails(&n) }
		}
		executor := failsafe.With[any](retrypolicy.NewBuilder[any]().WithMaxRetries(
			3).Build()).WithContext(ctx)
		b.ReportAllocs()
		for b.Loop() {
			if err := executor.Run(op); err != nil {
				b.Fatal(err)
			}
		}
	}
}
