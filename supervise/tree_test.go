package supervise_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// subtree is the recipe of a supervisor as a child.
func subtree(name string, spec supervise.Spec, children ...supervise.Child) supervise.Child {
	return supervise.Child{Name: name, New: func() (supervise.Service, error) {
		return supervise.New(name, spec, children...)
	}}
}

// blocked returns only when release is closed.
func blocked(name string, release chan struct{}) supervise.Child {
	return supervise.Child{Name: name, Run: func(context.Context) error { <-release; return nil }}
}

// TestGroupCrashCountsOnce checks that with OneForAll, children that crash together count as one
// restart.
func TestGroupCrashCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		_, stop := serve(t, supervise.Spec{
			Strategy: supervise.OneForAll, Backoff: fixed(s), Stagger: -1, OnEvent: d.event,
			Intensity: supervise.Intensity{Max: 1, Within: time.Hour},
		}, d.child("a", 0, 5*s), d.child("b", 2*s), d.child("c", 0, 5*s), d.child("d", 0, 5*s))
		pass(time.Minute)
		d.want(t, "0s a starts", "0s b starts", "0s c starts", "0s d starts",
			"7s b stops", "7s a starts", "7s b starts", "7s c starts", "7s d starts")
		if err := stop(); err != supervise.ErrStopped {
			t.Error(err)
		}
	})
}

// TestEscalation checks that too many restarts in a subtree are one crash for the parent, which
// recreates the subtree.
func TestEscalation(t *testing.T) {
	for name, c := range map[string]struct {
		spec  supervise.Spec
		end   error
		after time.Duration
	}{
		"intensity": {supervise.Spec{Backoff: fixed(0),
			Intensity: supervise.Intensity{Max: 2, Within: time.Hour}}, errCrash, 3 * s},
		"asked": {supervise.Spec{Backoff: fixed(0)},
			fmt.Errorf("%w: no disk", supervise.ErrEscalate), s},
		"backoff": {supervise.Spec{Backoff: backoff.Limit(fixed(s), 3)}, errCrash, 3*s + 2*s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen []string
				begun := time.Now()
				c.spec.Stagger = -1
				watch := func(_ context.Context, e supervise.Event) {
					if e.Supervisor == "root" && e.Kind != supervise.Stopping {
						seen = append(seen,
							fmt.Sprint(e.Time.Sub(begun), " ", e.Kind, " ", e.Child))
						if e.Kind == supervise.Ended && e.Restart {
							esc, ok := errors.AsType[*supervise.EscalatedError](e.Err)
							if !ok || esc.Supervisor != "root/sub" || esc.Child != "a" ||
								!errors.Is(e.Err, c.end) {
								t.Errorf("the subtree ended with %v", e.Err)
							}
						}
					}
				}
				fails := func(ctx context.Context) error {
					select {
					case <-time.After(s):
						return c.end
					case <-ctx.Done():
						return nil
					}
				}
				_, stop := serve(t,
					supervise.Spec{Backoff: fixed(10 * s), Stagger: -1, OnEvent: watch},
					subtree("sub", c.spec, supervise.Child{Name: "a", Run: fails}))
				pass(c.after + 10*s + s/2)
				want := []string{"0s started sub", fmt.Sprint(c.after, " ended sub"),
					fmt.Sprint(c.after+10*s, " started sub")}
				if !slices.Equal(seen, want) {
					t.Errorf("at the root %q, want %q", seen, want)
				}
				stop()
			})
		})
	}
}

// TestStuck checks that a stuck child is named by its path, and that no supervisor above starts it
// a second time.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newEventLog()
		var stuck []string
		crash := d.child("b", 0, s)
		sup, stop := serve(t,
			supervise.Spec{Backoff: fixed(s), OnEvent: func(_ context.Context, e supervise.Event) {
				if e.Kind == supervise.Stuck || e.Kind == supervise.Escalated {
					stuck = append(stuck, fmt.Sprint(e.Kind, " ", e.Supervisor, "/", e.Child))
				}
			}}, d.child("first", 0),
			subtree("sub", supervise.Spec{Strategy: supervise.OneForAll, Backoff: fixed(0)},
				blocked("deaf", release), crash))
		pass(5 * time.Minute)
		want := []string{"stuck root/sub/deaf", "escalated root/sub/deaf"}
		if !slices.Equal(stuck, want) {
			t.Errorf("reported %q, want %q", stuck, want)
		}
		if text := sup.Status().String(); !strings.Contains(text, "deaf: stuck") {
			t.Errorf("the tree does not show it:\n%s", text)
		}
		begun := time.Now()
		err := stop()
		gone, ok := errors.AsType[*supervise.StuckError](err)
		if !ok || !slices.Equal(gone.Children, []string{"sub/deaf"}) ||
			!errors.Is(err, supervise.ErrStopped) {
			t.Errorf("Serve: %v", err)
		}
		// 30 s are sub's Spec.Shutdown, 5 s are the Shutdown of its child, and 1 s is for reports.
		if took := time.Since(begun); took != 36*s {
			t.Errorf("stopping took %v", took)
		}
		close(release)
		synctest.Wait()
	})
}

// TestShutdownIsBounded checks that a stuck child is reported, its siblings are stopped, and the
// outermost Serve returns in bounded time.
func TestShutdownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, release := newEventLog(), make(chan struct{})
		children := []supervise.Child{d.child("a", 0)}
		for i := range 20 {
			children = append(children, blocked(fmt.Sprint("deaf", i), release))
		}
		_, stop := serve(t, supervise.Spec{Shutdown: 12 * s}, append(children, d.child("z", s))...)
		synctest.Wait()
		err := stop()
		// The children are stopped one by one, from the last to the first. z takes 1 s. deaf19 and
		// deaf18 do not return within their Shutdown of 5 s each. At 11 s deaf17 is told to stop.
		// At 12 s Spec.Shutdown has passed, so all others are told to stop. They have 5 s, until
		// 17 s.
		d.want(t, "1s z stops", "12s a stops")
		if gone, ok := errors.AsType[*supervise.StuckError](err); !ok || len(gone.Children) != 20 ||
			time.Since(d.start) != 17*s {
			t.Errorf("after %v: %v", time.Since(d.start), err)
		}
		close(release)
		synctest.Wait()
	})
}

func TestAddRemoveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		sup, stop := serve(t, supervise.Spec{Backoff: fixed(time.Hour), OnEvent: d.event},
			d.child("a", s), d.child("b", 0, s))
		pass(10 * s)
		if err := sup.Restart("a"); err != nil { // runs: stops first
			t.Error(err)
		}
		if err := sup.Restart("b"); err != nil { // waits for an hour
			t.Error(err)
		}
		synctest.Wait()
		if err := sup.Add(d.child("c", 2*s)); err != nil {
			t.Error(err)
		}
		pass(10 * s)
		d.want(t, "0s a starts", "0s b starts", "10s b starts", "10s c starts", "11s a stops",
			"11s a starts")
		if err := sup.Remove(t.Context(), "c"); err != nil {
			t.Error(err)
		}
		d.want(t, "22s c stops")
		if err := sup.Add(d.child("c", 0)); err != nil {
			t.Errorf("the name is free again: %v", err)
		}
		for what, err := range map[string]error{
			"add twice": sup.Add(d.child("a", 0)), "remove nobody": sup.Remove(t.Context(), "x"),
			"restart nobody": sup.Restart("x"),
		} {
			if err == nil {
				t.Errorf("%s: no error", what)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), s/2)
		defer cancel()
		if err := sup.Remove(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Remove of a slow child: %v", err)
		}
		stop()
		if err := sup.Add(d.child("late", 0)); !errors.Is(err, supervise.ErrStopped) {
			t.Errorf("Add after the end: %v", err)
		}
	})
}

// TestSignificant checks that a supervisor stops its other children when a significant child is
// done, and returns that child's result.
func TestSignificant(t *testing.T) {
	for _, end := range []error{nil, errCrash, supervise.ErrStop} {
		synctest.Test(t, func(t *testing.T) {
			d := newEventLog()
			job := func(context.Context) error { time.Sleep(s); return end }
			sup, err := supervise.New("root", supervise.Spec{}, d.child("a", 0),
				supervise.Child{Name: "job", Restart: supervise.Temporary, Significant: true,
					Run: job})
			if err != nil {
				t.Fatal(err)
			}
			err = sup.Serve(t.Context())
			if (err == nil) != (end != errCrash) || err != nil && !errors.Is(err, end) {
				t.Errorf("job ended with %v, Serve with %v", end, err)
			}
			d.want(t, "1s a stops")
		})
	}
}

func TestNewRefuses(t *testing.T) {
	run := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		spec  supervise.Spec
		child supervise.Child
	}{
		"no name": {child: supervise.Child{Run: run}},
		"slash":   {child: supervise.Child{Name: "a/b", Run: run}},
		"no run":  {child: supervise.Child{Name: "a"}},
		"run and new": {child: supervise.Child{Name: "a", Run: run,
			New: func() (supervise.Service, error) {
				return nil, nil
			}}},
		"restart":  {child: supervise.Child{Name: "a", Run: run, Restart: 9}},
		"shutdown": {child: supervise.Child{Name: "a", Run: run, Shutdown: -1}},
		"backoff":  {child: supervise.Child{Name: "a", Run: run, Backoff: fixed(-1)}},
		"strategy": {spec: supervise.Spec{Strategy: 9},
			child: supervise.Child{Name: "a", Run: run}},
		"intensity": {spec: supervise.Spec{Intensity: supervise.Intensity{Max: 1}},
			child: supervise.Child{Name: "a", Run: run}},
		"decay": {spec: supervise.Spec{Decay: &supervise.Decay{Threshold: -1}},
			child: supervise.Child{Name: "a", Run: run}},
	} {
		if _, err := supervise.New("root", c.spec, c.child); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	same := supervise.Child{Name: "a", Run: run}
	if _, err := supervise.New("root", supervise.Spec{}, same, same); err == nil {
		t.Error("two of a name: no error")
	}
}

func TestStatusAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, begun := newEventLog(), time.Now()
		sup, stop := serve(t, supervise.Spec{Backoff: fixed(time.Minute)}, d.child("a", 0, s),
			subtree("sub", supervise.Spec{Strategy: supervise.RestForOne}, d.child("b", 0)))
		at := func(d time.Duration) string { return begun.Add(d).Format(time.RFC3339Nano) }
		pass(2 * s)
		text, err := json.Marshal(sup.Status())
		want := `{"name":"root","state":"running","restart":"permanent","strategy":"one for one",` +
			`"starts":1,"since":"` + at(0) + `","children":[` +
			`{"name":"a","state":"waiting","restart":"permanent",` +
			`"starts":1,"since":"` + at(s) + `","next":"` + at(61*s) + `","error":"crash"},` +
			`{"name":"sub","state":"running","restart":"permanent","strategy":"rest for one",` +
			`"starts":1,"since":"` + at(0) + `","children":[` +
			`{"name":"b","state":"running","restart":"permanent","starts":1,"since":"` + at(0) +
			`"}]}]}`
		if got := string(text); err != nil || got != want {
			t.Errorf("%s, %v\nwant\n%s", got, err, want)
		}
		stop()
	})
}

// TestEscalationAfterAStop checks that a supervisor restarts the supervisor inside it after an
// escalation, although a child had asked that inner supervisor not to restart it (ErrStop).
func TestEscalationAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		limit := supervise.Intensity{Max: 1, Within: time.Minute}
		inner, err := supervise.New("inner", supervise.Spec{Intensity: limit},
			supervise.Child{Name: "done", Run: func(context.Context) error {
				return supervise.ErrStop
			}},
			supervise.Child{Name: "broken", Run: func(context.Context) error {
				starts++
				time.Sleep(time.Second)
				return errors.New("broken")
			}},
		)
		if err != nil {
			t.Fatal(err)
		}
		root, err := supervise.New("root", supervise.Spec{}, supervise.Child{Service: inner})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := root.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Serve: %v", err)
		}
		if starts < 4 {
			t.Errorf("the broken child was started %d times; want that the inner supervisor is "+
				"restarted", starts)
		}
	})
}
