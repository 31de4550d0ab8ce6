package supervise_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// panicsOnce returns a hook that panics at its call number n.
func panicsOnce(n int) func(context.Context, supervise.Event) {
	return func(context.Context, supervise.Event) {
		if n--; n == 0 {
			panic("hook")
		}
	}
}

// panicOf calls f and returns the value of its panic.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// TestSupervisorHookPanics checks that Serve ends the contexts of its children if OnEvent panics,
// and that Serve can be called again when they have returned.
func TestSupervisorHookPanics(t *testing.T) {
	for n := 1; n <= 4; n++ { // the events: two starts, a failure, a restart
		synctest.Test(t, func(t *testing.T) {
			var running, starts atomic.Int64
			run := func(ctx context.Context) error {
				running.Add(1)
				defer running.Add(-1)
				if starts.Add(1) == 1 {
					return errCrash
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
			sup := newSupervisor(t, "s",
				supervise.Spec{OnEvent: panicsOnce(n), Backoff: fixed(s)},
				supervise.Child{Name: "a", Run: run}, supervise.Child{Name: "b", Run: run})
			if p := panicOf(func() { _ = sup.Serve(t.Context()) }); p != "hook" {
				t.Fatalf("event %d: Serve panicked with %v", n, p)
			}
			synctest.Wait()
			if left := running.Load(); left != 0 {
				t.Errorf("event %d: %d children run after Serve", n, left)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			time.AfterFunc(30*s, func() {
				if got := running.Load(); got != 2 {
					t.Errorf("event %d: %d children run in the second Serve, want 2", n, got)
				}
			})
			if err := sup.Serve(ctx); err != context.DeadlineExceeded {
				t.Errorf("event %d: the second Serve: %v", n, err)
			}
		})
	}
}

// TestResenderHookPanics checks the same for a Resender.
func TestResenderHookPanics(t *testing.T) {
	for n := 1; n <= 3; n++ { // the events: a start, a failure, a restart
		synctest.Test(t, func(t *testing.T) {
			crashes := 0
			r, err := supervise.NewResender("r", options{
				Child: supervise.Each("c", func(context.Context, int, string) (string, error) {
					if crashes++; crashes == 1 {
						return "", errCrash
					}
					return "reply", nil
				}),
				OnEvent: panicsOnce(n), Backoff: fixed(s),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Send(t.Context(), 1, "m"); err != nil {
				t.Fatal(err)
			}
			if p := panicOf(func() { _ = r.Serve(t.Context()) }); p != "hook" {
				t.Fatalf("event %d: Serve panicked with %v", n, p)
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := r.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("event %d: the second Serve: %v", n, err)
			}
			if n := r.Status().Held; n != 0 {
				t.Errorf("%d messages are held", n)
			}
		})
	}
}

// TestDeadLetterPanics checks that a message is kept if DeadLetter panics, and that DeadLetter is
// called again for it.
func TestDeadLetterPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r, err := supervise.NewResender("r", options{
			Child: nacking(), Retry: fixed(s), Limits: supervise.Limits{MaxAttempts: 1},
			DeadLetter: func(context.Context, dead) error {
				if calls++; calls == 1 {
					panic("store")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for key := range 3 {
			if err := r.Send(t.Context(), key, "m"); err != nil {
				t.Fatal(err)
			}
		}
		if p := panicOf(func() { _ = r.Serve(t.Context()) }); p != "store" {
			t.Fatalf("Serve panicked with %v", p)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second Serve: %v", err)
		}
		if n := r.Status().Held; n != 0 || calls != 4 {
			t.Errorf("%d messages are held after %d calls, want 0 after 4", n, calls)
		}
	})
}

// TestRemovedChildAfterPanic checks that a removed child does not start in the next Serve. OnEvent
// has panicked before the first Serve carried out the start of this child.
func TestRemovedChildAfterPanic(t *testing.T) {
	for _, early := range []bool{false, true} { // removed before the panic, or after it
		synctest.Test(t, func(t *testing.T) {
			started := false
			child := supervise.Child{Name: "late", Run: func(ctx context.Context) error {
				started = true
				return wait(ctx)
			}}
			var sup *supervise.Supervisor
			first := true
			spec := supervise.Spec{OnEvent: func(ctx context.Context, e supervise.Event) {
				if !first {
					return
				}
				first = false
				if err := sup.Add(child); err != nil {
					t.Error(err)
				}
				if early { // Remove would wait for this goroutine
					ctx, cancel := context.WithCancel(ctx)
					cancel()
					_ = sup.Remove(ctx, child.Name)
				}
				panic("hook")
			}}
			sup = newSupervisor(t, "s", spec, supervise.Child{Name: "a", Run: wait})
			if p := panicOf(func() { _ = sup.Serve(t.Context()) }); p != "hook" {
				t.Fatalf("Serve panicked with %v", p)
			}
			if !early {
				if err := sup.Remove(t.Context(), child.Name); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := sup.Serve(ctx); err != context.DeadlineExceeded || started {
				t.Errorf("removed before the panic %v: the second Serve: %v, started %v", early,
					err, started)
			}
		})
	}
}

// wait returns when ctx ends.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// panickingPolicy is a policy that panics.
type panickingPolicy struct{}

func (panickingPolicy) Next(backoff.State, rand.Source) (time.Duration, backoff.State, bool) {
	panic("policy")
}

// TestPolicyPanics checks that a panic in a policy ends Serve, or crashes the child that called
// Nack. It must not block the other methods.
func TestPolicyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := newSupervisor(t, "s", supervise.Spec{}, supervise.Child{Name: "a",
			Run: func(context.Context) error { return errCrash }, Backoff: panickingPolicy{},
			StableAfter: s})
		if p := panicOf(func() { _ = sup.Serve(t.Context()) }); p != "policy" {
			t.Errorf("Serve of the supervisor panicked with %v", p)
		}
		r, stop := resend(t, options{Child: nacking(), Backoff: fixed(s), Retry: panickingPolicy{},
			DeadLetter: func(context.Context, dead) error { return nil }})
		if err := r.Send(t.Context(), 1, "m"); err != nil {
			t.Fatal(err)
		}
		pass(10 * s)
		if st := r.Status(); st.Held != 1 || st.Streak < 2 {
			t.Errorf("status %+v, want the message held and crashes of the child", st)
		}
		stop()
	})
}
