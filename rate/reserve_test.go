package rate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/rate"
)

// TestReserveKeepsBurst checks that reserved events do not happen together with other events if the
// burst is 1.
func TestReserveKeepsBurst(t *testing.T) {
	const step = 100 * time.Millisecond
	for name, want := range map[string]func(l *rate.Limiter) []time.Duration{
		"after a cancel": func(l *rate.Limiter) []time.Duration {
			l.Allow()
			first, second := delay(l)
			first.Cancel()
			third, _ := l.Reserve(1)
			return []time.Duration{second.Delay - 2*step, third.Delay - 3*step}
		},
		"beside a waiting caller": func(l *rate.Limiter) []time.Duration {
			l.Allow()
			var group sync.WaitGroup
			begun := time.Now()
			group.Go(func() { _ = l.Wait(context.Background()) })
			synctest.Wait()
			booked, _ := l.Reserve(1)
			group.Wait()
			return []time.Duration{booked.Delay - step, time.Since(begun) - 2*step}
		},
		"after a pause": func(l *rate.Limiter) []time.Duration {
			l.Observe(rate.Advice{RetryAfter: time.Minute})
			pause := l.Status().PausedFor
			first, second := delay(l)
			return []time.Duration{first.Delay - pause, second.Delay - pause - step}
		},
		"after a quota": func(l *rate.Limiter) []time.Duration {
			l.Observe(rate.Advice{Reset: time.Minute})
			window := l.Status().ExpectedWait
			first, second := delay(l)
			return []time.Duration{first.Delay - window, second.Delay - window - step}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, rate.Options{Events: 10})
			for i, off := range want(l) {
				if off.Abs() > time.Microsecond {
					t.Errorf("%s: event %d happens %v from its time", name, i+1, off)
				}
			}
		})
	}
}

func delay(l *rate.Limiter) (first, second rate.Reservation) {
	first, _ = l.Reserve(1)
	second, _ = l.Reserve(1)
	return first, second
}

// TestReservationsKeepRate checks random calls, cancellations and pauses: no span of time may have
// more events than the burst and the rate allow.
func TestReservationsKeepRate(t *testing.T) {
	const events, callers = 10, 200
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			burst := 1 + random.IntN(5)
			l := newLimiter(t, rate.Options{Events: events, Burst: burst})
			var mu sync.Mutex
			var times []time.Time
			var group sync.WaitGroup
			for range callers {
				start := time.Duration(random.IntN(5000)) * time.Millisecond
				patience := time.Duration(random.IntN(3000)) * time.Millisecond
				n, kind := 1+random.IntN(burst), random.IntN(20)
				group.Go(func() {
					time.Sleep(start)
					if !event(t.Context(), l, n, kind, patience) {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					times = append(times, slices.Repeat([]time.Time{time.Now()}, n)...)
				})
			}
			group.Wait()
			if fault := tooMany(times, events, burst); fault != "" {
				t.Errorf("seed %d, burst %d: %s", seed, burst, fault)
			}
		})
	}
}

// event reports whether n events have happened.
func event(
	ctx context.Context, l *rate.Limiter, n, kind int, patience time.Duration,
) bool {
	switch {
	case kind == 0:
		l.Observe(rate.Advice{RetryAfter: patience})
		return false
	case kind < 5:
		return l.AllowN(n)
	case kind < 10:
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(patience, cancel)
		return l.WaitN(ctx, n) == nil
	}
	booked, ok := l.Reserve(n)
	if kind < 15 && ok && booked.Delay > 0 {
		time.Sleep(booked.Delay / 2)
		booked.Cancel()
		return false
	}
	time.Sleep(booked.Delay)
	return ok
}

// tooMany describes a span of time with too many events, or returns "".
func tooMany(times []time.Time, rate float64, burst int) string {
	for i, first := range times {
		for j, last := range times[i:] {
			span := last.Sub(first)
			if float64(j+1) > float64(burst)+rate*span.Seconds()+1e-6 {
				return fmt.Sprintf("%d events within %v", j+1, span)
			}
		}
	}
	return ""
}
