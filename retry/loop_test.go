package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var starts []time.Duration
		loop := retry.NewLoop(t.Context(), retry.Options{Policy: fixed, Key: "k"})
		for a := range loop.Attempts() {
			starts = append(starts, time.Since(begun))
			if in := retry.FromContext(a.Context()); in != a.Attempt || in.Number != len(starts) || in.Key != "k" {
				t.Errorf("attempt %+v, its context reads %+v", a.Attempt, in)
			}
			if a.Number < 3 {
				a.End(errDown)
				a.End(nil) // the first call counts
				continue
			}
			a.End(nil)
		}
		if err := loop.Err(); err != nil || !slices.Equal(starts, seconds(0, 1, 2)) {
			t.Errorf("%v, attempts at %v", err, starts)
		}
		for range loop.Attempts() {
			t.Error("a second range made an attempt")
		}
	})
}

func TestLoopEnds(t *testing.T) {
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		body     func(a retry.Try) (leave bool)
		attempts int
		stop     error
	}{
		{"exhausted", t.Context(), func(a retry.Try) bool { a.End(errDown); return false }, 4, retry.ErrExhausted},
		{"permanent", t.Context(), func(a retry.Try) bool { a.End(retry.Permanent(errDown)); return false }, 1, retry.ErrPermanent},
		{"left without End", t.Context(), func(retry.Try) bool { return true }, 1, nil},
		{"went on without End", t.Context(), func(retry.Try) bool { return false }, 1, retry.ErrAbandoned},
		{"left after a failure", t.Context(), func(a retry.Try) bool { a.End(errDown); return true }, 1, retry.ErrAbandoned},
		{"left after a success", t.Context(), func(a retry.Try) bool { a.End(nil); return true }, 1, nil},
		{"dead context", dead, func(retry.Try) bool { t.Error("it ran"); return true }, 0, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 3 {
				n := 0
				loop := retry.NewLoop(c.ctx, retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 4})
				for a := range loop.Attempts() {
					n++
					if c.body(a) {
						break
					}
				}
				if n != c.attempts || !errors.Is(loop.Err(), c.stop) || c.stop == nil && loop.Err() != nil {
					t.Errorf("%d attempts, %v; want %d and %v", n, loop.Err(), c.attempts, c.stop)
				}
				if e, ok := errors.AsType[*retry.Error](loop.Err()); ok && e.Attempts != n {
					t.Errorf("the error counts %d attempts of %d", e.Attempts, n)
				}
			}
		})
	}
}

func TestLoopAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		loop := retry.NewLoop(t.Context(), retry.Options{Policy: fixed, AttemptTimeout: 2 * time.Second, MaxAttempts: 2})
		for a := range loop.Attempts() {
			<-a.Context().Done()
			a.End(context.Cause(a.Context()))
		}
		if err := loop.Err(); !errors.Is(err, retry.ErrAttemptTimeout) || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// A Try that outlives its range must not reach into the next loop, which uses the same memory.
func TestTryAfterItsRange(t *testing.T) {
	var kept retry.Try
	loop := retry.NewLoop(t.Context())
	for a := range loop.Attempts() {
		kept = a
		a.End(nil)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic from a Try used after its range")
		}
	}()
	kept.End(errDown)
}
