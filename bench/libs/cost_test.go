package libs

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sony/gobreaker/v2"
	xrate "golang.org/x/time/rate"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/rate"
)

// BenchmarkLimit is one call through a limiter that is not full.
func BenchmarkLimit(b *testing.B) {
	b.Run("lib=limit", func(b *testing.B) {
		l, err := limit.New(limit.Options{})
		if err != nil {
			b.Fatal(err)
		}
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			p, err := l.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			p.Done(limit.Success)
		}
	})
	for _, l := range libraries() {
		if l.ours { // without the closure that the interface of TestServers needs
			continue
		}
		b.Run("lib="+l.name, func(b *testing.B) {
			acquire, err := l.make()
			if err != nil {
				b.Fatal(err)
			}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				done, err := acquire(ctx)
				if err != nil {
					b.Fatal(err)
				}
				done()
			}
		})
	}
}

// BenchmarkBreaker is one call through a breaker that is closed.
func BenchmarkBreaker(b *testing.B) {
	ctx := b.Context()
	ours, err := breaker.New(breaker.Options{})
	if err != nil {
		b.Fatal(err)
	}
	call := func(context.Context) error { return nil }
	sony := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{Interval: 10 * time.Second})
	value := func() (any, error) { return nil, nil }
	fails := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 20, 10*time.Second).Build()
	for _, v := range []struct {
		name string
		call func() error
	}{
		{"breaker", func() error { return ours.Do(ctx, call) }},
		{"gobreaker", func() error { _, err := sony.Execute(value); return err }},
		{"failsafe-go", func() error {
			if !fails.TryAcquirePermit() {
				return circuitbreaker.ErrOpen
			}
			fails.RecordSuccess()
			return nil
		}},
	} {
		b.Run("lib="+v.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := v.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRate is one event that is allowed at once.
func BenchmarkRate(b *testing.B) {
	const events = 1e9
	ours, err := rate.New(rate.Options{Events: events, Burst: events})
	if err != nil {
		b.Fatal(err)
	}
	standard := xrate.NewLimiter(events, events)
	fails := ratelimiter.NewBursty[any](1<<40, time.Second)
	for _, v := range []struct {
		name  string
		allow func() bool
	}{
		{"rate", ours.Allow},
		{"x/time/rate", standard.Allow},
		{"failsafe-go bursty", fails.TryAcquirePermit},
	} {
		b.Run("lib="+v.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !v.allow() {
					b.Fatal("refused")
				}
			}
		})
	}
}
