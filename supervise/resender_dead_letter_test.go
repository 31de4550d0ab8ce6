package supervise_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// TestServeEndsWhileDeadLettering checks that Serve returns soon after the end of its context, even
// if there are always further messages to dead-letter.
func TestServeEndsWhileDeadLettering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := supervise.NewResender("r", options{
			Child: nacking(), Limits: supervise.Limits{Items: 3, MaxAttempts: 1},
			DeadLetter: func(context.Context, dead) error {
				time.Sleep(s)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		sending, stopSending := context.WithCancel(t.Context())
		go func() {
			for key := 0; r.Send(sending, key, "m") == nil; key++ {
			}
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		end := make(chan error, 1)
		go func() { end <- r.Serve(ctx) }()
		pass(10 * s)
		cancel(errCrash)
		pass(time.Minute)
		select {
		case err := <-end:
			if err != errCrash {
				t.Errorf("Serve returned %v, want the cause", err)
			}
		default:
			t.Error("Serve still runs a minute after the end of its context")
		}
		stopSending()
	})
}

// TestNoDeadLetterAfterAck checks that DeadLetter is not called for a message that was acknowledged
// while it waited for that call.
func TestNoDeadLetterAfterAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *supervise.Resender[int, string, string]
		var keys []int
		r, stop := resend(t, options{
			Child: nacking(), Limits: supervise.Limits{MaxAttempts: 1},
			DeadLetter: func(_ context.Context, d dead) error {
				time.Sleep(s) // meanwhile, the child nacks all messages
				keys = append(keys, d.Key)
				for key := range 3 {
					if key != d.Key && !r.Ack(key, "reply") {
						t.Errorf("message %d is not held", key)
					}
				}
				return nil
			},
		})
		for key := range 3 {
			if err := r.Send(t.Context(), key, "m"); err != nil {
				t.Fatal(err)
			}
		}
		pass(10 * s)
		if n := r.Status().Held; len(keys) != 1 || n != 0 {
			t.Errorf("DeadLetter got %v, %d messages are held; want one call and none held", keys,
				n)
		}
		stop()
	})
}

// panicsAtFirst is a policy that panics at the first call and then returns delays of 1 s.
type panicsAtFirst struct{ calls *int }

func (p panicsAtFirst) Next(state backoff.State, src rand.Source) (time.Duration, backoff.State,
	bool) {
	if *p.calls++; *p.calls == 1 {
		panic("policy")
	}
	return fixed(s).Next(state, src)
}

// TestDropOldestRepeatsDeadLetter checks that Serve calls DeadLetter again for a message after the
// call by Send has failed, also if the policy Retry panics.
func TestDropOldestRepeatsDeadLetter(t *testing.T) {
	for name, policy := range map[string]backoff.Policy{
		"fixed delay": fixed(s), "panic": panicsAtFirst{new(int)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				idle := recipe{Name: "idle", New: func() (supervise.Work[int, string, string],
					error) {
					return func(ctx context.Context, _ *inbox) error { return wait(ctx) }, nil
				}}
				r, stop := resend(t, options{
					Child: idle, Backoff: fixed(s), Retry: policy,
					Limits: supervise.Limits{Items: 1, Overflow: supervise.DropOldest},
					DeadLetter: func(context.Context, dead) error {
						if calls++; calls == 1 {
							return errCrash
						}
						return nil
					},
				})
				pass(s)
				if err := r.Send(t.Context(), 1, "m"); err != nil {
					t.Fatal(err)
				}
				pass(s)
				var err error
				p := panicOf(func() { err = r.Send(t.Context(), 2, "m") })
				if err == nil && p == nil {
					t.Error("Send returned nil although DeadLetter failed")
				}
				pass(10 * s)
				if n := r.Status().Held; calls != 2 || n != 0 {
					t.Errorf("%d calls of DeadLetter, %d messages are held; want 2 and none",
						calls, n)
				}
				stop()
			})
		})
	}
}
