package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

type (
	options = supervise.Options[int, string, string]
	dead    = supervise.Dead[int, string]
	inbox   = supervise.Inbox[int, string, string]
	recipe  = supervise.Recipe[int, string, string]
)

// resend runs a Resender in the background.
func resend(t *testing.T,
	o options) (r *supervise.Resender[int, string, string], stop func() error) {
	t.Helper()
	r, err := supervise.NewResender("sender", o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	end := make(chan error, 1)
	go func() { end <- r.Serve(ctx) }()
	return r, func() error {
		cancel(supervise.ErrStopped)
		err := <-end
		r.Close()
		return err
	}
}

// TestResenderAnswersAfterEightFailures is a test of the published BackOffSender: a child fails
// eight times in a row and then succeeds, and the caller gets its reply.
func TestResenderAnswersAfterEightFailures(t *testing.T) {
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				r, stop := resend(t, options{
					Child: supervise.Each("http",
						func(_ context.Context, _ int, m string) (string, error) {
							if tries++; tries <= 8 {
								return "", crash()
							}
							return "answer to " + m, nil
						}),
					Backoff: backoff.Exponential(10*time.Millisecond, 2, 0), // 10, 20, ... 1280 ms
				})
				begun := time.Now()
				reply, err := r.Call(t.Context(), 1, "question")
				if err != nil || reply != "answer to question" {
					t.Errorf("Call: %q, %v", reply, err)
				}
				if got := time.Since(begun); got != 2550*time.Millisecond {
					t.Errorf("answered after %v, want the sum of the eight waits, 2.55s", got)
				}
				synctest.Wait()
				if s := r.Status(); s.Streak != 0 || s.Backoff != (backoff.State{}) ||
					s.Held != 0 || s.Probing {
					t.Errorf("after the answer: %+v", s)
				}
				stop()
			})
		})
	}
}

var crashes = map[string]func() error{
	"error": func() error { return errCrash },
	"panic": func() error { panic(errCrash) },
}

// TestResenderAnswersTheTenBehind is a test of the published BackOffSender: all ten messages behind
// a failing one get replies.
func TestResenderAnswersTheTenBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		seen := map[int]int{}
		r, stop := resend(t, options{
			Child: supervise.Each("http",
				func(_ context.Context, key int, m string) (string, error) {
					seen[key]++
					if tries++; tries <= 8 {
						return "", errCrash
					}
					return m, nil
				}),
			Backoff: backoff.Exponential(10*time.Millisecond, 2, 0),
		})
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 11 {
			wg.Go(func() {
				if i > 0 {
					time.Sleep(time.Millisecond)
				}
				if reply, err := r.Call(t.Context(), i, fmt.Sprint(i)); err != nil ||
					reply != fmt.Sprint(i) {
					t.Errorf("Call %d: %q, %v", i, reply, err)
				}
			})
		}
		wg.Wait()
		if got := time.Since(begun); got > 10*time.Second {
			t.Errorf("all answered after %v", got)
		}
		if seen[0] != 9 {
			t.Errorf("the first was tried %d times, want 9", seen[0])
		}
		for i := 1; i <= 10; i++ {
			if seen[i] != 1 {
				t.Errorf("message %d was sent %d times: it never was in hand at a crash", i,
					seen[i])
			}
		}
		stop()
	})
}

// TestResenderFindsThePoison checks that a message that crashes its child is found among a thousand
// taken ones, and that all others get replies.
func TestResenderFindsThePoison(t *testing.T) {
	for _, poison := range []int{0, 1, 2, 3, 500, 997, 999} {
		synctest.Test(t, func(t *testing.T) {
			var found []dead
			crashes := 0
			r, stop := resend(t, options{
				Child:   recipe{Name: "pipelined", New: pipelined(poison, &crashes)},
				Backoff: fixed(time.Second),
				Limits:  supervise.Limits{MaxDeaths: 3},
				DeadLetter: func(_ context.Context, d dead) error {
					found = append(found, d)
					return nil
				},
			})
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					reply, err := r.Call(t.Context(), i, fmt.Sprint(i))
					if i == poison {
						if !isDead(err) || !errors.Is(err, supervise.ErrPoison) ||
							!errors.Is(err, errCrash) {
							t.Errorf("the poison's answer: %v", err)
						}
					} else if err != nil || reply != fmt.Sprint(i) {
						t.Errorf("Call %d: %q, %v", i, reply, err)
					}
				})
			}
			wg.Wait()
			if len(found) != 1 || found[0].Key != poison || found[0].Deaths != 3 {
				t.Errorf("dead letters %+v", found)
			}
			if crashes > 14 {
				t.Errorf("poison at %d: %d crashes, want at most log2(1000) and three more", poison,
					crashes)
			}
			stop()
		})
	}
}

// pipelined takes all ready messages before it works on them, and crashes on poison.
func pipelined(poison int, crashes *int) func() (supervise.Work[int, string, string], error) {
	return func() (supervise.Work[int, string, string], error) {
		return func(ctx context.Context, in *inbox) error {
			for {
				hand, err := takeAll(ctx, in)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(hand, func(m supervise.Message[int, string, string]) bool {
					return m.Key == poison
				}) {
					*crashes++
					return errCrash // a crash with all these messages taken
				}
				for _, m := range hand {
					m.Ack(m.Value)
				}
			}
		}, nil
	}
}

// takeAll waits for a message and takes all that are ready.
func takeAll(ctx context.Context,
	in *inbox) (hand []supervise.Message[int, string, string], err error) {
	m, err := in.Next(ctx)
	for err == nil {
		hand = append(hand, m)
		soon, cancel := context.WithTimeout(ctx, time.Millisecond)
		m, err = in.Next(soon)
		cancel()
	}
	if len(hand) > 0 {
		err = nil
	}
	return hand, err
}

// TestResenderBackoffGrowsOverGoodMessages checks that the delays grow from crash to crash, even if
// the messages around the poison one are acknowledged.
func TestResenderBackoffGrowsOverGoodMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration
		r, stop := resend(t, options{
			Child:      recipe{Name: "c", New: pipelined(7, new(int))},
			Backoff:    backoff.Exponential(time.Second, 2, 0),
			Limits:     supervise.Limits{MaxDeaths: 3},
			DeadLetter: func(context.Context, dead) error { return nil },
			OnEvent: func(_ context.Context, e supervise.Event) {
				if e.Kind == supervise.Ended && e.Restart {
					delays = append(delays, e.Delay)
				}
			},
		})
		for i := range 8 {
			if err := r.Send(t.Context(), i, "m"); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Hour)
		if s := r.Status(); s.Held != 0 || !s.Probing {
			t.Errorf("after an hour: %+v, want it on probation: the last incarnation has shown "+
				"nothing", s)
		}
		if _, err := r.Call(t.Context(), 100, "good"); err != nil || r.Status().Probing ||
			r.Status().Streak != 0 {
			t.Errorf("after an answer: %v, %+v", err, r.Status())
		}
		for i, d := range delays {
			if d != time.Second<<i {
				t.Errorf("wait %d is %v: acks of other messages must not reset the delays: %v", i,
					d, delays)
			}
		}
		if len(delays) < 3 {
			t.Errorf("waits %v", delays)
		}
		stop()
	})
}

func TestResenderBounds(t *testing.T) {
	size := func(s string) int64 { return int64(len(s)) }
	limits := func(o supervise.Overflow) supervise.Limits {
		return supervise.Limits{Items: 3, Bytes: 10, Overflow: o}
	}
	var deadLetters []dead
	var spilled []int
	deadLetter := func(_ context.Context, d dead) error {
		deadLetters = append(deadLetters, d)
		return nil
	}
	spill := func(_ context.Context, key int, _ string) error {
		spilled = append(spilled, key)
		return nil
	}
	idle := recipe{Name: "none", New: func() (supervise.Work[int, string, string], error) {
		return nil, errCrash
	}}
	for _, o := range []supervise.Overflow{supervise.Block, supervise.Reject, supervise.DropOldest,
		supervise.Spill} {
		for _, big := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				deadLetters, spilled = nil, nil
				r, err := supervise.NewResender("r",
					options{Child: idle, Limits: limits(o), Size: size, DeadLetter: deadLetter,
						Spill: spill})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				value, fit := "x", 3
				if big {
					value, fit = "123456", 1
				}
				for i := range fit {
					if err := r.Send(ctx, i, value); err != nil {
						t.Fatalf("Send %d: %v", i, err)
					}
				}
				if err := r.Send(ctx, 0, "twice"); !errors.Is(err, supervise.ErrHeld) {
					t.Errorf("a key that is held: %v", err)
				}
				err = r.Send(ctx, 99, value)
				want := map[supervise.Overflow]error{supervise.Block: context.DeadlineExceeded,
					supervise.Reject: supervise.ErrFull}[o]
				if !errors.Is(err, want) {
					t.Errorf("overflow %d, big %v: %v, want %v", o, big, err, want)
				}
				if drops := len(deadLetters) == 1 &&
					deadLetters[0].Key == 0; drops != (o == supervise.DropOldest) {
					t.Errorf("overflow %d: deadLetters %v", o, deadLetters)
				}
				if spills := slices.Equal(spilled, []int{99}); spills != (o == supervise.Spill) {
					t.Errorf("overflow %d: spilled %v", o, spilled)
				}
				r.Close()
				if err := r.Send(ctx, 5, value); !errors.Is(err, supervise.ErrStopped) {
					t.Errorf("Send after Close: %v", err)
				}
				r.Close()
			})
		}
	}
}

// TestResenderBlockedSendersGoOn checks that one message is allowed whatever its size. Blocked
// senders continue in order of arrival when an ack makes room.
func TestResenderBlockedSendersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := resend(t, options{
			Child: supervise.Each("slow", func(context.Context, int, string) (string, error) {
				time.Sleep(time.Second)
				return "", nil
			}),
			Limits: supervise.Limits{Items: 100, Bytes: 1}, Size: func(m string) int64 {
				return int64(len(m))
			},
		})
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if err := r.Send(t.Context(), i, "too large by far"); err != nil {
					t.Errorf("Send %d: %v", i, err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		pass(10 * time.Second)
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("sent in the order %v", order)
		}
		stop()
	})
}
