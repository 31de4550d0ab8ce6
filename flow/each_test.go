package flow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// counted yields 1 to n.
func counted(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i + 1) {
				return
			}
		}
	}
}

// TestEach checks that every value is delivered, that each lane gets some and the fast lane most,
// and that failed values are sent again.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		by, delivered := map[string]int{}, map[int]int{}
		err := Each(t.Context(), counted(500), []string{"slow", "fast"},
			func(ctx context.Context, lane string, v int) error {
				pace := 100 * time.Millisecond
				if lane == "fast" {
					pace = 10 * time.Millisecond
				}
				if err := sleep(ctx, pace); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if delivered[v]++; v%50 == 0 && delivered[v] == 1 {
					return errors.New("connection reset")
				}
				by[lane]++
				return nil
			})
		if err != nil || len(delivered) != 500 || by["slow"]+by["fast"] != 500 || by["slow"] == 0 ||
			by["fast"] < 2*by["slow"] {
			t.Errorf("%v: %d values, by lane %v", err, len(delivered), by)
		}
		for v, n := range delivered {
			if want := 1 + (50-v%50)/50; n != want {
				t.Errorf("value %d: %d attempts, want %d", v, n, want)
			}
		}
	})
}

// TestEachEndsEarly checks that Each returns early on permanent errors and leaves no goroutine
// behind. A goroutine left behind would keep the bubble from ending.
func TestEachEndsEarly(t *testing.T) {
	deny := func(context.Context, string, int) error {
		return &Misconfigured{Err: errors.New("401")}
	}
	for name, c := range map[string]struct {
		deliver func(context.Context, string, int) error
		seq     iter.Seq[int]
		is      func(error) bool
		text    string
	}{
		"misconfigured": {deny, counted(100), is[*Misconfigured],
			`flow: no lane can deliver: lane "`},
		"rejected": {func(_ context.Context, _ string, v int) error {
			if v == 7 {
				return &Rejected{Err: errRefused}
			}
			return nil
		}, counted(100), is[*Rejected], "set Options.DeadLetter"},
		"panic": {func(_ context.Context, _ string, v int) error {
			if v == 7 {
				panic(errRefused)
			}
			return nil
		}, counted(100), func(err error) bool {
			return is[*PanicError](err) && errors.Is(err, errRefused)
		}, `worker "`},
		"panic of seq": {func(context.Context, string, int) error { return nil },
			func(yield func(int) bool) { yield(1); panic(errRefused) },
			func(err error) bool {
				return is[*PanicError](err) && errors.Is(err, errRefused)
			}, "producer"},
		"context": {func(context.Context, string, int) error { return errRefused }, counted(100),
			func(err error) bool {
				return errors.Is(err, context.DeadlineExceeded) && errors.Is(err, errRefused)
			},
			`; the last failure: lane "`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := Each(ctx, c.seq, []string{"a", "b", "c"}, c.deliver)
				if !c.is(err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v", err)
				}
				if ctx.Err() != nil != (name == "context") {
					t.Errorf("it took until %v", ctx.Err())
				}
			})
		})
	}
}

// TestEachNamesAbandoned checks the error if all calls of deliver take too long and return only the
// error of their context.
func TestEachNamesAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := Each(ctx, counted(1), []string{"a"},
			func(ctx context.Context, _ string, _ int) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, ErrAbandoned) {
			t.Errorf("Each returned %v, want it to wrap ErrAbandoned", err)
		}
	})
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestEachRefuses(t *testing.T) {
	deliver := func(context.Context, string, int) error { return nil }
	for name, err := range map[string]error{
		"no lanes":   Each(t.Context(), counted(1), nil, deliver),
		"two of one": Each(t.Context(), counted(1), []string{"a", "a"}, deliver),
		"no seq":     Each(t.Context(), nil, []string{"a"}, deliver),
		"no deliver": Each(t.Context(), counted(1), []string{"a"}, nil),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "flow: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Each(t.Context(), counted(0), []string{"a"}, deliver); err != nil {
		t.Errorf("an empty sequence: %v", err)
	}
}

// TestOptionsThatMayBeLeftOut checks that a Sender works without callbacks and without a window,
// for which window.Queue is the default.
func TestOptionsThatMayBeLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustSender(t,
			Options[int]{Lanes: []Lane[int]{{Name: "a", Worker: takes[int](time.Second)}}})
		if err := s.Run(t.Context(), these(values(1, 2, 3)...)); err != nil {
			t.Fatal(err)
		}
		st, names := s.Status()
		if st.Settled != 3 || !slices.Equal(names, []string{"a"}) {
			t.Errorf("%d settled at %q", st.Settled, names)
		}
		if name := s.o.Control.Window.Name(); name != "queue" {
			t.Errorf("the window is %q", name)
		}
	})
}

// TestAllLanesMisconfigured checks that Run returns the reason when every lane is misconfigured,
// and not before. With AwaitRepair it waits for a repair.
func TestAllLanesMisconfigured(t *testing.T) {
	for _, c := range []struct {
		broken string // lanes that are misconfigured, until the repair after a minute
		await  bool
		ends   bool
	}{
		{"abc", false, true}, {"ab", false, false}, {"abc", true, false},
	} {
		t.Run(fmt.Sprint(c.broken, c.await), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newLog[int](t)
				seen := map[string]bool{}
				lane := func(name string) Lane[int] {
					return d.lane(name,
						WorkerFunc[int](func(context.Context, Attempt[int]) (Report, error) {
							if strings.Contains(c.broken, name) &&
								time.Since(d.start) < time.Minute {
								d.mu.Lock()
								seen[name] = true
								d.mu.Unlock()
								return Report{}, &Misconfigured{Err: errors.New("404")}
							}
							return Report{}, nil
						}))
				}
				o := d.options(lane("a"), lane("b"), lane("c"))
				o.AwaitRepair = c.await
				err := mustSender(t, o).Run(t.Context(), these(values(1, 2, 3, 4, 5, 6)...))
				switch {
				case c.ends && (!is[*Misconfigured](err) || len(d.settled) != 0):
					t.Errorf("Run: %v, %d settled", err, len(d.settled))
				case c.ends && (len(seen) != 3 || time.Since(d.start) > 30*time.Second):
					t.Errorf("after %v, and %v", time.Since(d.start),
						slices.Sorted(maps.Keys(seen)))
				case !c.ends && err != nil:
					t.Errorf("Run: %v", err)
				case !c.ends:
					d.wantSettled(1, 2, 3, 4, 5, 6)
				}
			})
		})
	}
}

// TestFailedHasTheContextOfRun checks that Failed gets a context derived from that of Run.
func TestFailedHasTheContextOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var got []any
		s := mustSender(t, Options[int]{
			Lanes: []Lane[int]{{Name: "a",
				Worker: WorkerFunc[int](func(_ context.Context, a Attempt[int]) (Report, error) {
					if a.Number == 1 {
						return Report{}, errRefused
					}
					return Report{}, nil
				})}},
			Failed: func(ctx context.Context, _ Item[int], f Failure) {
				got = append(got, ctx.Value(key{}), f.Outcome)
			},
		})
		if err := s.Run(context.WithValue(t.Context(), key{}, "trace 1"),
			these(values(1)...)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []any{"trace 1", control.Retryable}) {
			t.Errorf("Failed got %v", got)
		}
	})
}
