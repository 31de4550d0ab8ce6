package retry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

var errBench = errors.New("no")

func BenchmarkDoSuccess(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	op := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := retry.Do(ctx, op); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValueSuccess(b *testing.B) {
	ctx := b.Context()
	op := func(context.Context) (int, error) { return 1, nil }
	b.ReportAllocs()
	for b.Loop() {
		if v, err := retry.Value(ctx, op); err != nil || v != 1 {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkLoopSuccess(b *testing.B) {
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		var loop retry.Loop
		for range loop.Attempts(ctx) {
			loop.End(nil)
		}
		if err := loop.Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDoOneRetry measures the work between two attempts: one failure, a wait of 0, one
// success.
func BenchmarkDoOneRetry(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := retry.Options{Policy: backoff.Fixed(0)}
	n := 0
	op := func(context.Context) error {
		if n++; n%2 == 1 {
			return errBench
		}
		return nil
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := retry.Do(ctx, op, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDoOptions(b *testing.B) {
	ctx := b.Context()
	policy := backoff.Fixed(0)
	op := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := retry.Do(ctx, op, retry.Options{MaxAttempts: 5, Policy: policy}); err != nil {
			b.Fatal(err)
		}
	}
}
