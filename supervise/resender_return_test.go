package supervise_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// forgetful is a child that takes messages, does not settle them, and returns nil: after the first
// message, or when it is told to stop if waits is set.
func forgetful(waits bool) recipe {
	return recipe{Name: "forgetful", New: func() (supervise.Work[int, string, string], error) {
		return func(ctx context.Context, in *inbox) error {
			if _, err := in.Next(ctx); err != nil {
				return err
			}
			if waits {
				<-ctx.Done()
			}
			return nil
		}, nil
	}}
}

// TestResenderReturnsWithoutAck checks that a message is dead-lettered after MaxAttempts even if
// the child returns nil each time and does not settle the message.
func TestResenderReturnsWithoutAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letters := 0
		r, stop := resend(t, options{
			Child: forgetful(false), Backoff: fixed(s), Limits: supervise.Limits{MaxAttempts: 3},
			DeadLetter: func(context.Context, dead) error {
				letters++
				return nil
			},
		})
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := r.Call(ctx, 1, "m")
		if took := time.Since(begun); !errors.Is(err, supervise.ErrAttempts) || took != 2*s {
			t.Errorf("after %v: %v, want ErrAttempts after 2s", took, err)
		}
		if letters != 1 {
			t.Errorf("%d dead letters, want 1", letters)
		}
		stop()
	})
}

// TestReturnsWithoutDelay checks that a child that returns nil at once is restarted once a second
// if its policy gives up at the first step.
func TestReturnsWithoutDelay(t *testing.T) {
	starts, stop := 0, func() {}
	started := func() {
		if starts++; starts > 10 {
			stop() // a busy loop
		}
	}
	services := map[string]func() (supervise.Service, error){
		"resender": func() (supervise.Service, error) {
			return supervise.NewResender("sender", options{
				Backoff: backoff.Limit(fixed(s), 1),
				Child: recipe{Name: "idle", New: func() (
					supervise.Work[int, string, string], error,
				) {
					return func(context.Context, *inbox) error {
						started()
						return nil
					}, nil
				}},
			})
		},
		"supervisor": func() (supervise.Service, error) {
			return supervise.New("tree", supervise.Spec{},
				supervise.Child{Name: "idle", Backoff: backoff.Limit(fixed(s), 1),
					Run: func(context.Context) error {
						started()
						return nil
					}})
		},
	}
	for name, build := range services {
		synctest.Test(t, func(t *testing.T) {
			service, err := build()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*s-1)
			defer cancel()
			starts = 0
			stop = cancel
			if err := service.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Serve: %v", name, err)
			}
			if starts != 10 {
				t.Errorf("%s: %d starts in 10 s, want 10", name, starts)
			}
		})
	}
}

// TestResenderStopIsNoFailure checks that a message of a child that is told to stop stays held,
// even if it was the last attempt of the message.
func TestResenderStopIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := supervise.NewResender("sender", options{
			Child: forgetful(true), Limits: supervise.Limits{MaxAttempts: 1},
			DeadLetter: func(context.Context, dead) error {
				t.Error("the message was dead-lettered")
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Send(t.Context(), 1, "m"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		if err := r.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Serve: %v", err)
		}
		if n := r.Status().Held; n != 1 {
			t.Errorf("%d messages are held, want 1", n)
		}
	})
}

// TestResenderFallbackEndsDuringBackoff checks that Options.Child is the next incarnation if
// FallbackFor passes while Options.Fallback waits for its restart.
func TestResenderFallbackEndsDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		crash := func(context.Context, int, string) (string, error) { return "", errCrash }
		r, stop := resend(t, options{
			Child: supervise.Each("first", crash), Fallback: supervise.Each("second", crash),
			FallbackAfter: 2, FallbackFor: 15 * s, Backoff: fixed(10 * s), OnEvent: d.event,
		})
		if err := r.Send(t.Context(), 1, "m"); err != nil {
			t.Fatal(err)
		}
		pass(45 * s)
		// The fallback begins at 10 s, so its time is over at 25 s.
		d.want(t, "0s first starts", "10s first starts", "20s second starts", "30s first starts",
			"40s second starts")
		stop()
	})
}

// TestResenderFallbackEndsDuringStop checks that a stall of Options.Fallback does not count as a
// crash of Options.Child if FallbackFor passes before the stalled Fallback has returned.
func TestResenderFallbackEndsDuringStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, crashes := newEventLog(), 0
		stalls := recipe{Name: "second", New: func() (supervise.Work[int, string, string], error) {
			return func(ctx context.Context, in *inbox) error {
				m, err := in.Next(ctx)
				if err != nil {
					return err
				}
				<-ctx.Done()
				m.Nack(errCrash) // it makes progress again; the message is ready 1.5 s later
				time.Sleep(4 * s)
				return nil
			}, nil
		}}
		r, stop := resend(t, options{
			Child: supervise.Each("first", func(context.Context, int, string) (string, error) {
				if crashes++; crashes == 1 {
					return "", errCrash
				}
				return "", nil
			}),
			Fallback: stalls, FallbackAfter: 1, FallbackFor: 12 * s, Backoff: fixed(s),
			Retry: fixed(1500 * time.Millisecond), OnEvent: d.event,
			Limits: supervise.Limits{Stall: 10 * s},
		})
		if err := r.Send(t.Context(), 1, "m"); err != nil {
			t.Fatal(err)
		}
		pass(20 * s)
		d.want(t, "0s first starts", "1s second starts", "16s first starts")
		stop()
	})
}

// TestResenderHugeSizes checks that the sum of the sizes does not overflow.
func TestResenderHugeSizes(t *testing.T) {
	r, err := supervise.NewResender("sender", options{
		Child: nacking(), Size: func(string) int64 { return math.MaxInt64 },
		Limits: supervise.Limits{Overflow: supervise.Reject}, Backoff: backoff.Fixed(s),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(t.Context(), 1, "the first is always allowed"); err != nil {
		t.Fatal(err)
	}
	if err := r.Send(t.Context(), 2, "m"); !errors.Is(err, supervise.ErrFull) {
		t.Errorf("the second message: %v, want ErrFull", err)
	}
}
