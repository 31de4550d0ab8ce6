package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// TestResendsAfterCrashes compares the number of resends with that of the published BackOffSender,
// which resends every kept message at every tick: f * k sends for k messages and f crashes. A
// Resender resends only the messages that the child had taken. From the second crash on, this is
// one message.
func TestResendsAfterCrashes(t *testing.T) {
	const k, f = 100_000, 5
	for _, c := range []struct {
		name   string
		child  func(crashes *int) recipe
		resent uint64 // at most
	}{
		{"one in hand", oneInHand, f},
		{"all of the window in hand", windowInHand, 1024 + f},
	} {
		synctest.Test(t, func(t *testing.T) {
			crashes := 0
			r, stop := resend(t,
				options{Child: c.child(&crashes), Limits: supervise.Limits{Items: k}})
			for i := range k {
				if err := r.Send(t.Context(), i, ""); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Hour)
			st := r.Status()
			if st.Held != 0 || crashes != f || st.Resent > c.resent {
				t.Errorf("%s: %d held, %d crashes, %d resends, want 0, %d, at most %d", c.name,
					st.Held, crashes, st.Resent, f, c.resent)
			}
			theirs := original(k, f)
			t.Logf("%d unacked, %d crashes, %-26s %6d resends; the original: %d", k, f, c.name+":",
				st.Resent, theirs)
			if st.Resent*100 > theirs {
				t.Errorf("%d resends, the original %d: want a hundredth at most", st.Resent, theirs)
			}
			stop()
		})
	}
}

// original runs the published BackOffSender with k messages over a child. The child crashes at its
// first message; the parameter crashes is the number of crashes. Then it acks all messages.
// BackOffSender keeps the unacked messages and sends all of them again at each Tick. original
// returns the number of repeated sends.
func original(k, crashes int) (resent uint64) {
	possiblyFailed := make(map[int]bool)
	var mailbox []int
	for i := range k { // Msg: kept and forwarded
		possiblyFailed[i] = true
		mailbox = append(mailbox, i)
	}
	for ; crashes > 0; crashes-- { // Terminated: the mailbox dies with the child
		mailbox = nil
		for i := range possiblyFailed { // Tick
			mailbox = append(mailbox, i)
			resent++
		}
	}
	for _, i := range mailbox { // Sent
		delete(possiblyFailed, i)
	}
	if len(possiblyFailed) > 0 {
		panic("the model lost a message")
	}
	return resent
}

func oneInHand(crashes *int) recipe {
	return supervise.Each("each", func(context.Context, int, string) (string, error) {
		if *crashes < 5 {
			*crashes++
			return "", errCrash
		}
		return "", nil
	})
}

// windowInHand is a child that takes as many messages as its window allows, and then crashes.
func windowInHand(crashes *int) recipe {
	return recipe{Name: "window", New: func() (supervise.Work[int, string, string], error) {
		return func(ctx context.Context, in *inbox) error {
			for {
				hand, err := takeAll(ctx, in)
				if err != nil {
					return err
				}
				if *crashes < 5 {
					*crashes++
					return errCrash
				}
				for _, m := range hand {
					m.Ack("")
				}
			}
		}, nil
	}}
}

// TestResenderProbes checks that a child gets 1, then 2, 4, ... messages after a crash. Each round
// starts when the previous one is settled.
func TestResenderProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hands []int
		first := true
		r, stop := resend(t, options{
			Backoff: fixed(time.Second), Limits: supervise.Limits{Window: 40},
			Child: recipe{Name: "c", New: func() (supervise.Work[int, string, string], error) {
				return func(ctx context.Context, in *inbox) error {
					for {
						hand, err := takeAll(ctx, in)
						if err != nil {
							return err
						}
						hands = append(hands, len(hand))
						if first {
							first = false
							return errCrash
						}
						for _, m := range hand {
							m.Ack("")
						}
					}
				}, nil
			}},
		})
		for i := range 200 {
			if err := r.Send(t.Context(), i, ""); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		want := []int{40, 1, 2, 4, 8, 16, 32, 40, 40, 40, 17}
		if !slices.Equal(hands, want) {
			t.Errorf("in hand %v, want %v", hands, want)
		}
		stop()
	})
}

// TestResenderGivesUp checks that a message is dead-lettered with the right reason after too many
// attempts, at its maximum age, or when Options.Retry gives up. The child keeps running.
func TestResenderGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		limits   supervise.Limits
		retry    backoff.Policy
		reason   error
		after    time.Duration
		attempts int
	}{
		"attempts": {supervise.Limits{MaxAttempts: 4}, fixed(s), supervise.ErrAttempts, 3 * s, 4},
		"age": {supervise.Limits{MaxAge: 2500 * time.Millisecond}, fixed(s), supervise.ErrAge,
			2500 * time.Millisecond, 3},
		"policy": {supervise.Limits{}, backoff.Limit(fixed(s), 3), nil, 2 * s, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var letters []dead
				failing := true
				r, stop := resend(t, options{
					Child: nacking(), Retry: c.retry, Limits: c.limits,
					DeadLetter: func(_ context.Context, d dead) error {
						if failing {
							failing = false
							return errors.New("no disk")
						}
						letters = append(letters, d)
						return nil
					},
				})
				begun := time.Now()
				_, err := r.Call(t.Context(), 1, "m")
				gone, ok := errors.AsType[*supervise.DeadError](err)
				if !ok || !errors.Is(err, errCrash) || c.reason != nil &&
					!errors.Is(err, c.reason) {
					t.Errorf("Call: %v", err)
				}
				if ok && gone.Attempts != c.attempts || len(letters) != 1 ||
					letters[0].State.N < uint32(c.attempts-1) {
					t.Errorf("dead letter %+v, want one after %d attempts", letters, c.attempts)
				}
				if took := time.Since(begun); took != c.after+s { // the record was closed once
					t.Errorf("given up after %v, want %v and 1 s for the second DeadLetter", took,
						c.after)
				}
				stop()
			})
		})
	}
}

// nacking is a child that nacks every message.
func nacking() recipe {
	return recipe{Name: "nacking", New: func() (supervise.Work[int, string, string], error) {
		return func(ctx context.Context, in *inbox) error {
			for {
				m, err := in.Next(ctx)
				if err != nil {
					return err
				}
				if !m.Nack(errCrash) || m.Nack(errCrash) {
					return errors.New("the first Nack counts, and no other")
				}
			}
		}, nil
	}}
}

// TestResenderAgeWhileAway checks that a message reaches its maximum age while the child is not
// running, to the nanosecond.
func TestResenderAgeWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := resend(t, options{
			Child: recipe{Name: "away", New: func() (supervise.Work[int, string, string], error) {
				return nil, errCrash
			}},
			Backoff: fixed(time.Hour), Limits: supervise.Limits{MaxAge: time.Minute},
			DeadLetter: func(context.Context, dead) error { return nil },
		})
		pass(s)
		_, err := r.Call(t.Context(), 1, "m")
		if !errors.Is(err, supervise.ErrAge) ||
			!time.Now().Equal(time.Date(2000, 1, 1, 0, 1, 1, 0, time.UTC)) {
			t.Errorf("at %v: %v", time.Now(), err)
		}
		stop()
	})
}

// TestResenderFallback checks that Options.Fallback replaces Options.Child after FallbackAfter
// crashes in a row, and that Options.Child is tried again later.
func TestResenderFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		broken := true
		r, stop := resend(t, options{
			Child: supervise.Each("first", func(context.Context, int, string) (string, error) {
				if broken {
					return "", errCrash
				}
				return "first", nil
			}),
			Fallback: supervise.Each("second", func(context.Context, int, string) (string, error) {
				return "second", nil
			}),
			FallbackAfter: 3, FallbackFor: time.Minute, Backoff: fixed(s), OnEvent: d.event,
		})
		call := func(key int, want string) {
			t.Helper()
			if got, err := r.Call(t.Context(), key, "m"); got != want || err != nil {
				t.Errorf("answer %q, %v; want %q", got, err, want)
			}
		}
		call(1, "second")
		call(2, "second")
		d.want(t, "0s first starts", "1s first starts", "2s first starts", "3s second starts")
		pass(90 * s)
		call(3, "second") // the first was tried again at 62 s, and crashes now
		broken = false
		pass(2 * time.Minute)
		call(4, "first")
		d.want(t, "1m2s first starts", "1m34s second starts", "2m33s first starts")
		stop()
	})
}

// TestResenderStall checks that a stalled child is stopped and that its messages go to the next
// incarnation. A stalled child that does not return is reported by name.
func TestResenderStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, n := make(chan struct{}), 0
		r, stop := resend(t, options{
			Child: supervise.Each("c", func(ctx context.Context, _ int, m string) (string, error) {
				switch n++; n {
				case 1:
					<-ctx.Done()
					return "", context.Cause(ctx)
				case 2:
					return m, nil
				}
				<-release
				return "late", nil
			}),
			Backoff: fixed(s), Limits: supervise.Limits{Stall: 10 * s, Shutdown: 3 * s},
		})
		begun := time.Now()
		if got, err := r.Call(t.Context(), 1, "answer"); got != "answer" ||
			time.Since(begun) != 11*s {
			t.Errorf("after %v: %q, %v", time.Since(begun), got, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got, err := r.Call(t.Context(), 2, "m"); got != "late" || err != nil {
				t.Errorf("the late answer counts: %q, %v", got, err)
			}
		})
		pass(time.Minute)
		close(release)
		wg.Wait()
		err := stop()
		if _, ok := errors.AsType[*supervise.EscalatedError](err); !ok {
			t.Errorf("Serve: %v", err)
		}
		if gone, ok := errors.AsType[*supervise.StuckError](err); !ok ||
			!slices.Equal(gone.Children, []string{"c"}) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// TestResenderUnderASupervisor checks that a Resender keeps its messages when it escalates and the
// supervisor serves it again.
func TestResenderUnderASupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		r, err := supervise.NewResender("sender", options{
			Child: supervise.Each("c", func(context.Context, int, string) (string, error) {
				if n++; n < 10 {
					return "", fmt.Errorf("%w: broken for now", supervise.ErrEscalate)
				}
				return "answer", nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		same := func() (supervise.Service, error) { return r, nil }
		_, stop := serve(t, supervise.Spec{Backoff: fixed(s)},
			supervise.Child{Name: "sender", New: same})
		if got, err := r.Call(t.Context(), 1, "m"); got != "answer" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		stop()
		r.Close()
	})
}

// TestResenderCloseAndAck checks that Close ends waiting calls, and that an ack by key counts once,
// from any goroutine.
func TestResenderCloseAndAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := supervise.NewResender("r", options{Child: nacking()})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.Call(t.Context(), 1, "m"); !errors.Is(err, supervise.ErrStopped) {
				t.Errorf("after Close: %v", err)
			}
		})
		wg.Go(func() {
			if got, err := r.Call(t.Context(), 2, "m"); got != "by hand" || err != nil {
				t.Errorf("after Ack: %q, %v", got, err)
			}
		})
		synctest.Wait()
		if n := len(slices.Collect(r.Messages())); n != 2 || !r.Ack(2, "by hand") ||
			r.Ack(2, "again") || r.Ack(3, "") {
			t.Errorf("%d messages, or an Ack that counted twice", n)
		}
		r.Close()
		wg.Wait()
	})
}

// TestResenderKeepsNackedMessages checks that a nacked message is kept if Backoff gives up, Retry
// is nil, and there is no DeadLetter to store the message.
func TestResenderKeepsNackedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nacks []time.Duration
		begun := time.Now()
		r, stop := resend(t, options{
			Child: recipe{Name: "a", New: func() (supervise.Work[int, string, string], error) {
				return func(ctx context.Context, in *inbox) error {
					for {
						m, err := in.Next(ctx)
						if err != nil {
							return err
						}
						if nacks = append(nacks, time.Since(begun)); len(nacks) < 5 {
							m.Nack(errors.New("busy"))
							continue
						}
						m.Ack("done")
					}
				}, nil
			}},
			Backoff: backoff.Limit(backoff.Fixed(2*time.Second), 3),
		})
		reply, err := r.Call(t.Context(), 1, "m")
		if want := []time.Duration{0, 2 * time.Second, 4 * time.Second, 6 * time.Second,
			8 * time.Second}; reply != "done" || err != nil || !slices.Equal(nacks, want) {
			t.Errorf("%q, %v after attempts at %v, want them at %v", reply, err, nacks, want)
		}
		stop()
	})
}

// TestResenderWantsDeadLetter checks that a Retry that gives up is refused without a DeadLetter.
func TestResenderWantsDeadLetter(t *testing.T) {
	o := options{Child: supervise.Each("a",
		func(context.Context, int, string) (string, error) { return "", nil })}
	o.Retry = backoff.Table(time.Second)
	if _, err := supervise.NewResender("sender", o); err == nil ||
		!strings.Contains(err.Error(), "DeadLetter") {
		t.Errorf("error %v, want one that demands a DeadLetter", err)
	}
	o.DeadLetter = func(context.Context, dead) error { return nil }
	if _, err := supervise.NewResender("sender", o); err != nil {
		t.Errorf("with a DeadLetter: %v", err)
	}
}
