package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

var errCrash = errors.New("crash")

// eventLog records events with the time since its creation.
type eventLog struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func newEventLog() *eventLog { return &eventLog{start: time.Now()} }

func (d *eventLog) log(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v ", time.Since(d.start))+fmt.Sprintf(format, args...))
}

// take returns the lines since the last call, and removes them from the log.
func (d *eventLog) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *eventLog) want(t *testing.T, want ...string) {
	t.Helper()
	if got := d.take(); !slices.Equal(got, want) {
		t.Errorf("it went\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// event records the starts of children in the order of the supervisor's events. The children cannot
// record their starts themselves, because goroutines that start at one instant run in any order.
func (d *eventLog) event(_ context.Context, e supervise.Event) {
	if e.Kind == supervise.Started {
		d.log("%s starts", e.Child)
	}
}

// child returns a child that crashes once for each duration in lives: the first time after
// lives[0], after its restart after lives[1], and so on. Then it runs until it is told to stop. It
// records its stop, which takes the time in the parameter slow.
func (d *eventLog) child(name string, slow time.Duration, lives ...time.Duration) supervise.Child {
	n := 0
	return supervise.Child{Name: name, Run: func(ctx context.Context) error {
		life := time.Duration(1<<63 - 1)
		if n < len(lives) {
			life = lives[n]
		}
		n++
		select {
		case <-time.After(life):
			return errCrash
		case <-ctx.Done():
			time.Sleep(slow)
			d.log("%s stops", name)
			return context.Cause(ctx)
		}
	}}
}

// serviceFunc adapts a function to Service.
type serviceFunc func(ctx context.Context) error

func (f serviceFunc) Serve(ctx context.Context) error { return f(ctx) }

// serve runs a supervisor in the background; stop ends it and returns the result of Serve.
func serve(t *testing.T, spec supervise.Spec,
	children ...supervise.Child) (s *supervise.Supervisor, stop func() error) {
	t.Helper()
	s, err := supervise.New("root", spec, children...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	end := make(chan error, 1)
	go func() { end <- s.Serve(ctx) }()
	stopped := false
	stop = func() error {
		stopped = true
		cancel(supervise.ErrStopped)
		return <-end
	}
	t.Cleanup(func() {
		if !stopped {
			t.Error("the test did not stop its supervisor")
		}
	})
	return s, stop
}

func fixed(d time.Duration) backoff.Policy { return backoff.Fixed(d) }

const s = time.Second

// pass lets d pass and waits until everything due by then has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		_, stop := serve(t, supervise.Spec{OnEvent: d.event, Backoff: fixed(2 * s)},
			d.child("a", 0), d.child("b", 0, 3*s, s), d.child("c", 0))
		pass(10 * s)
		d.want(t, "0s a starts", "0s b starts", "0s c starts", "5s b starts", "8s b starts")
		if err := stop(); err != supervise.ErrStopped {
			t.Errorf("Serve: %v", err)
		}
		d.want(t, "10s c stops", "10s b stops", "10s a stops")
	})
}

func TestOneForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		_, stop := serve(t,
			supervise.Spec{OnEvent: d.event, Strategy: supervise.OneForAll, Backoff: fixed(2 * s),
				Stagger: -1},
			d.child("a", s), d.child("b", 0, 10*s), d.child("c", 500*time.Millisecond))
		pass(20 * s)
		d.want(t, "0s a starts", "0s b starts", "0s c starts",
			"10.5s c stops", "11.5s a stops", "12s a starts", "12s b starts", "12s c starts")
		stop()
		d.want(t, "20.5s c stops", "20.5s b stops", "21.5s a stops")
	})
}

func TestRestForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		spec := supervise.Spec{OnEvent: d.event, Strategy: supervise.RestForOne, Backoff: fixed(s),
			Stagger: 3 * time.Nanosecond}
		_, stop := serve(t, spec,
			d.child("a", s), d.child("b", 0, 10*s), d.child("c", 4*s), d.child("d", 0))
		pass(20 * s)
		d.want(t, "0s a starts", "0s b starts", "0s c starts", "0s d starts",
			"10s d stops", "14s c stops", "14s b starts", "14.000000003s c starts",
			"14.000000006s d starts")
		stop()
	})
}

func TestRestartKinds(t *testing.T) {
	ends := map[string]func() error{
		"nil": func() error { return nil }, "error": func() error { return errCrash },
		"panic": func() error {
			panic("x")
		}, "goexit": func() error { runtime.Goexit(); return nil },
		"stop": func() error { return fmt.Errorf("%w: enough", supervise.ErrStop) },
	}
	for _, c := range []struct {
		restart supervise.Restart
		end     string
		again   bool
	}{
		{supervise.Permanent, "nil", true}, {supervise.Permanent, "error", true},
		{supervise.Permanent, "panic", true},
		{supervise.Permanent, "goexit", true}, {supervise.Permanent, "stop", false},
		{supervise.Transient, "nil", false}, {supervise.Transient, "error", true},
		{supervise.Transient, "panic", true},
		{supervise.Transient, "goexit", true}, {supervise.Transient, "stop", false},
		{supervise.Temporary, "nil", false}, {supervise.Temporary, "error", false},
		{supervise.Temporary, "panic", false},
		{supervise.Temporary, "goexit", false}, {supervise.Temporary, "stop", false},
	} {
		t.Run(c.restart.String()+" "+c.end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				run := func(ctx context.Context) error {
					if starts++; starts == 1 {
						return ends[c.end]()
					}
					<-ctx.Done()
					return ctx.Err()
				}
				sup, stop := serve(t, supervise.Spec{},
					supervise.Child{Name: "a", Restart: c.restart, Run: run})
				pass(s)
				if again := starts > 1; again != c.again {
					t.Errorf("%d starts, want another: %v", starts, c.again)
				}
				children := sup.Status().Children
				if here := len(children) == 1; here != (c.restart != supervise.Temporary) {
					t.Errorf("children: %v", children)
				}
				stop()
			})
		})
	}
}

// TestPanicHasItsStack checks that the stack of a panic or a Goexit contains the place where it
// happened.
func TestPanicHasItsStack(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() {
		panic(errCrash)
	}, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen error
				_, stop := serve(t,
					supervise.Spec{OnEvent: func(_ context.Context, e supervise.Event) {
						if e.Kind == supervise.Ended && seen == nil {
							seen = e.Err
						}
					}}, supervise.Child{Name: "a", Restart: supervise.Temporary,
						Run: func(context.Context) error {
							fail()
							return nil
						}})
				synctest.Wait()
				stop()
				p, ok := errors.AsType[*supervise.PanicError](seen)
				if !ok || p.Name != "a" ||
					!strings.Contains(string(p.Stack), "TestPanicHasItsStack") {
					t.Errorf("event: %v", seen)
				}
				if errors.Is(seen, errCrash) != (name == "panic") {
					t.Errorf("errors.Is(%v, errCrash) is wrong", seen)
				}
			})
		})
	}
}

// TestFactory checks that Child.New is called at each start, and that an error that it returns
// counts as a crash.
func TestFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, n := newEventLog(), 0
		_, stop := serve(t, supervise.Spec{Backoff: fixed(s)},
			supervise.Child{Name: "a", New: func() (supervise.Service, error) {
				n++
				d.log("make %d", n)
				switch n {
				case 1:
					return nil, errCrash
				case 2:
					return nil, nil // a panic, in the child
				}
				mine := n
				return serviceFunc(func(ctx context.Context) error {
					d.log("serve %d", mine)
					<-ctx.Done()
					return nil
				}), nil
			}})
		pass(5 * s)
		d.want(t, "0s make 1", "1s make 2", "2s make 3", "2s serve 3")
		stop()
	})
}

// TestBackoffResetsAfterAStableRun checks that delays grow by the child's policy and start from the
// beginning only at a crash after a stable run.
func TestBackoffResetsAfterAStableRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		a := d.child("a", 0, 0, 0, 0, 7999*time.Millisecond, 8*s, 0)
		a.Backoff = backoff.Exponential(s, 2, 4*s) // stable: twice the last wait
		_, stop := serve(t, supervise.Spec{OnEvent: d.event}, a)
		pass(60 * s)
		d.want(t, "0s a starts", "1s a starts", "3s a starts", "7s a starts", "18.999s a starts",
			"27.999s a starts", "29.999s a starts")
		stop()
	})
}

// TestCleanEndsDoNotGrowTheWait checks that a child is restarted after an end without an error, and
// that the delay does not grow.
func TestCleanEndsDoNotGrowTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, n := newEventLog(), 0
		spec := supervise.Spec{Backoff: backoff.Exponential(s, 2, time.Hour)}
		_, stop := serve(t, spec, supervise.Child{Name: "a", Run: func(ctx context.Context) error {
			d.log("start")
			if n++; n == 4 {
				return errCrash
			}
			return nil
		}})
		pass(9 * s)
		d.want(t, "0s start", "1s start", "2s start", "3s start", "4s start", "6s start",
			"8s start")
		stop()
	})
}

// TestStagger checks that children that crash together restart one after the other, at intervals of
// exactly Spec.Stagger.
func TestStagger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, gap = 1000, 7 * time.Microsecond
		var mu sync.Mutex
		var starts []time.Duration
		var begun time.Time
		children := make([]supervise.Child, n)
		for i := range children {
			first := true
			children[i] = supervise.Child{Name: fmt.Sprint(i),
				Run: func(ctx context.Context) error {
					mu.Lock()
					starts = append(starts, time.Since(begun))
					mu.Unlock()
					if first {
						first = false
						time.Sleep(s)
						return errCrash
					}
					<-ctx.Done()
					return nil
				}}
		}
		begun = time.Now()
		_, stop := serve(t, supervise.Spec{Backoff: fixed(s), Stagger: gap}, children...)
		pass(time.Minute)
		if len(starts) != 2*n {
			t.Fatalf("%d starts", len(starts))
		}
		for i, at := range starts[n:] {
			if want := 2*s + time.Duration(i)*gap; at != want {
				t.Fatalf("restart %d at %v, want %v", i, at, want)
			}
		}
		stop()
	})
}

// TestIntensity checks that Max restarts within Within are allowed and one more is not. The window
// slides, and includes both ends.
func TestIntensity(t *testing.T) {
	for _, c := range []struct {
		lives []time.Duration
		gone  time.Duration // 0: it lives
	}{
		{[]time.Duration{s, s, s}, 0},
		{[]time.Duration{s, s, s, s}, 4 * s},
		// Crashes at 1, 5, 9, 12.
		{[]time.Duration{s, 4 * s, 4 * s, 3 * s}, 0},
		// At 1, 5, 9, 11: exactly 10 s.
		{[]time.Duration{s, 4 * s, 4 * s, 2 * s}, 11 * s},
		// One nanosecond more each time.
		{[]time.Duration{s, 4 * s, 4 * s, 2*s + 1, 4*s + 1, 4 * s}, 0},
		// 5, 9, 11, 14, 14.
		{[]time.Duration{s, 4 * s, 4 * s, 2*s + 1, 3 * s, 0}, 14*s + 1 + 0},
		// The window slides: each restart has its own.
		{[]time.Duration{9 * s, s, s, s / 2}, 11*s + s/2},
		// 9, 10, 11, 19.
		{[]time.Duration{9 * s, s, s, 8 * s, 0}, 19 * s},
		// 10, 11, 19, 20, 21.
		{[]time.Duration{9 * s, s, s, 8*s + 1, s, s - 1, 10 * s, s, s, 9 * s}, 21 * s},
	} {
		t.Run(fmt.Sprint(c.lives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newEventLog()
				sup, err := supervise.New("root", supervise.Spec{
					Backoff: fixed(0), Stagger: -1,
					Intensity: supervise.Intensity{Max: 3, Within: 10 * s},
				}, d.child("b", 0), d.child("a", 0, c.lives...))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begun := time.Now()
				err = sup.Serve(ctx)
				gone, ok := errors.AsType[*supervise.EscalatedError](err)
				switch {
				case c.gone == 0 && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("after %v: %v", time.Since(begun), err)
				case c.gone > 0 && (!ok || time.Since(begun) != c.gone):
					t.Errorf("after %v, want %v: %v", time.Since(begun), c.gone, err)
				case ok && (gone.Child != "a" || !errors.Is(err, errCrash)):
					t.Errorf("%v", err)
				}
			})
		})
	}
}
