package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = errors.New("broken")

// untilDone waits for the group's end and returns its cause, as most goroutines do.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestGroupEndsWithItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context())
		var ended atomic.Int32
		for i := range 3 {
			g.Go(fmt.Sprint("sleep/", i), func(context.Context) error {
				time.Sleep(time.Duration(i) * time.Second)
				ended.Add(1)
				return nil
			})
		}
		if err := g.Wait(); err != nil || ended.Load() != 3 {
			t.Fatalf("Wait: %v after %d goroutines", err, ended.Load())
		}
		if !errors.Is(context.Cause(g.Context()), ErrStopped) {
			t.Errorf("cause after Wait is %v", context.Cause(g.Context()))
		}
	})
}

func TestGroupFirstFailureEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context())
		start := time.Now()
		g.Go("wait", untilDone)
		g.Go("stubborn", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return errors.New("a later failure")
		})
		g.Go("fail", func(context.Context) error {
			time.Sleep(time.Second)
			return errBroken
		})
		err := g.Wait()
		if !errors.Is(err, errBroken) || err.Error() != "fail: broken" {
			t.Errorf("Wait: %v, want fail: broken", err)
		}
		if got := time.Since(start); got != time.Second+time.Minute {
			t.Errorf("Wait returned after %v, want 1m1s: it waits for all", got)
		}
		if context.Cause(g.Context()) != err {
			t.Errorf("cause is %v, want %v", context.Cause(g.Context()), err)
		}
	})
}

func TestGroupStop(t *testing.T) {
	why := errors.New("reload")
	for _, c := range []struct{ stop, want error }{{nil, ErrStopped}, {why, why}} {
		g := NewGroup(t.Context())
		g.Go("wait", untilDone)
		g.Go("wait, wrapped", func(ctx context.Context) error {
			return fmt.Errorf("read: %w", untilDone(ctx))
		})
		g.Go("wait, in its own words", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		g.Stop(c.stop)
		if err := g.Wait(); err != nil {
			t.Errorf("Stop(%v): Wait: %v, want nil: being told to stop is no failure", c.stop, err)
		}
		if got := context.Cause(g.Context()); got != c.want {
			t.Errorf("Stop(%v): cause is %v, want %v", c.stop, got, c.want)
		}
	}
}

func TestGroupFailureWhileStopping(t *testing.T) {
	g := NewGroup(t.Context())
	g.Go("flush", func(ctx context.Context) error {
		<-ctx.Done()
		return errBroken
	})
	g.Stop(nil)
	if err := g.Wait(); !errors.Is(err, errBroken) {
		t.Errorf("Wait: %v; a failure while stopping is one", err)
	}
}

func TestGroupPanicWhileStopping(t *testing.T) {
	g := NewGroup(t.Context())
	g.Go("w", func(ctx context.Context) error {
		<-ctx.Done()
		panic(ctx.Err())
	})
	g.Stop(nil)
	if _, ok := errors.AsType[*PanicError](g.Wait()); !ok {
		t.Error("a panic while stopping was lost")
	}
}

func TestGroupParentEnds(t *testing.T) {
	parent, stop := context.WithCancelCause(t.Context())
	g := NewGroup(parent)
	g.Go("wait", untilDone)
	stop(errBroken)
	if err := g.Wait(); err != nil {
		t.Errorf("Wait: %v, want nil: the parent knows why it ended", err)
	}
	if context.Cause(g.Context()) != errBroken {
		t.Errorf("cause is %v", context.Cause(g.Context()))
	}
}

func TestGroupPanic(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func()
		want string
	}{
		{"panic", func() { panic("out of paper") }, "w: panic: out of paper\n"},
		{"error", func() { panic(errBroken) }, "w: panic: broken\n"},
		{"goexit", runtime.Goexit, "w: runtime.Goexit was called\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGroup(t.Context())
			g.Go("wait", untilDone)
			g.Go("w", func(context.Context) error { c.fail(); return nil })
			err := g.Wait()
			p, ok := errors.AsType[*PanicError](err)
			if !ok || p.Name != "w" || !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("Wait: %v", err)
			}
			if !strings.Contains(string(p.Stack), "TestGroupPanic") {
				t.Errorf("the stack does not show where:\n%s", p.Stack)
			}
			if errors.Is(err, errBroken) != (c.name == "error") {
				t.Errorf("errors.Is(%v, errBroken) is wrong", err)
			}
		})
	}
}

// TestGroupForeignPanicError checks that a *PanicError that a goroutine returns is an error like
// any other. The text of the group's error names both goroutines: the one that returned the
// error, and the one that panicked.
func TestGroupForeignPanicError(t *testing.T) {
	g := NewGroup(t.Context())
	foreign := &PanicError{Name: "inner", Value: "x"}
	g.Go("outer", func(context.Context) error { return foreign })
	if err := g.Wait(); !errors.Is(err, foreign) ||
		!strings.HasPrefix(err.Error(), "outer: inner: panic: x") {
		t.Errorf("Wait: %v, want it to name outer and inner", err)
	}
}

func TestGroupStartsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context())
		done := false
		g.Go("first", func(context.Context) error {
			g.Go("second", func(context.Context) error {
				time.Sleep(time.Second)
				done = true
				return nil
			})
			return nil
		})
		if err := g.Wait(); err != nil || !done {
			t.Errorf("Wait: %v, second done: %v", err, done)
		}
	})
}

func TestGroupRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context())
		for i, name := range []string{"c", "a", "b", "a"} {
			g.Go(name, func(context.Context) error {
				time.Sleep(time.Duration(4-i) * time.Second)
				return nil
			})
		}
		for _, want := range [][]string{{"c", "a", "b", "a"}, {"c", "a", "b"}, {"c", "a"}, {"c"},
			nil} {
			synctest.Wait()
			var got []string
			for _, m := range g.Status().Children {
				got = append(got, m.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("running %q, want %q", got, want)
			}
			time.Sleep(time.Second)
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestGroupWithoutGoroutines(t *testing.T) {
	g := NewGroup(t.Context())
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if err := g.Wait(); err != nil { // a second time
		t.Error(err)
	}
	// A goroutine started after the end of the group's context finds that context ended. Wait
	// still waits for the goroutine.
	g.Go("late", untilDone)
	if err := g.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
}

// TestGroupLimit checks that Go blocks at the limit and continues when a goroutine has ended.
func TestGroupLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context())
		g.SetLimit(3)
		start, running, most := time.Now(), 0, 0
		var mu sync.Mutex
		for i := range 9 {
			g.Go(fmt.Sprint(i), func(context.Context) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			})
		}
		if got := time.Since(start); got != 2*time.Second {
			t.Errorf("nine Gos with room for three took %v, want 2s", got)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("SetLimit beside running goroutines did not panic")
				}
			}()
			g.SetLimit(5)
		}()
		if err := g.Wait(); err != nil || most != 3 {
			t.Errorf("Wait: %v, %d at a time, want 3", err, most)
		}
		g.SetLimit(-1)
		start = time.Now()
		for i := range 9 {
			g.Go(fmt.Sprint(i), func(context.Context) error { time.Sleep(time.Second); return nil })
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("without a limit Go blocked for %v", got)
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestGroupLimitAfterFailures checks that a goroutine frees its place after a panic, an error or
// runtime.Goexit.
func TestGroupLimitAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context())
		g.SetLimit(1)
		g.Go("panics", func(context.Context) error { panic("x") })
		g.Go("exits", func(context.Context) error { runtime.Goexit(); return nil })
		g.Go("fails", func(context.Context) error { return errBroken })
		g.Go("ends", func(context.Context) error { return nil })
		if p, ok := errors.AsType[*PanicError](g.Wait()); !ok || p.Name != "panics" {
			t.Errorf("Wait: %v", p)
		}
	})
}

// TestGroupTryGo checks that TryGo starts a goroutine only below the limit.
func TestGroupTryGo(t *testing.T) {
	for _, c := range []struct{ limit, want int }{{-1, 10}, {0, 0}, {1, 1}, {3, 3}} {
		g := NewGroup(t.Context())
		g.SetLimit(c.limit)
		started := 0
		for range 10 {
			if g.TryGo("wait", untilDone) {
				started++
			}
		}
		if started != c.want {
			t.Errorf("limit %d: %d goroutines started, want %d", c.limit, started, c.want)
		}
		g.Stop(nil)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if again := g.TryGo("again", func(context.Context) error { return errBroken }); again !=
			(c.want > 0) {
			t.Errorf("limit %d: after the end of all, TryGo returned %v", c.limit, again)
		}
		if err := g.Wait(); c.want > 0 && !errors.Is(err, errBroken) {
			t.Errorf("Wait: %v, want %v", err, errBroken)
		}
	}
}
