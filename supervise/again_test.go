package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

func newSupervisor(t *testing.T, name string, spec supervise.Spec,
	children ...supervise.Child) *supervise.Supervisor {
	t.Helper()
	sup, err := supervise.New(name, spec, children...)
	if err != nil {
		t.Fatal(err)
	}
	return sup
}

// TestNestedSupervisorServesAgain checks that the children of a nested supervisor start again after
// an escalation, both if it is a Child.Service and if its Serve is a Child.Run.
func TestNestedSupervisorServesAgain(t *testing.T) {
	forms := map[string]func(sub *supervise.Supervisor) supervise.Child{
		"run": func(sub *supervise.Supervisor) supervise.Child {
			return supervise.Child{Name: "sub", Run: sub.Serve}
		},
		"service": func(sub *supervise.Supervisor) supervise.Child {
			return supervise.Child{Service: sub}
		},
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newEventLog()
				sub := newSupervisor(t, "sub", supervise.Spec{
					Backoff: fixed(0), Stagger: -1,
					Intensity: supervise.Intensity{Max: 1, Within: time.Minute},
				}, d.child("steady", 0), d.child("crashes", 0, s, s, 3*s))
				root, stop := serve(t, supervise.Spec{Backoff: fixed(10 * s), OnEvent: d.event},
					form(sub))
				pass(2 * s) // the second crash exceeds the limit
				if state := root.Status().Children[0].State; state != supervise.Waiting {
					t.Errorf("after the escalation: %v", state)
				}
				pass(20 * s)
				d.want(t, "0s sub starts", "0s steady starts", "0s crashes starts",
					"1s crashes starts", "2s steady stops",
					"12s sub starts", "12s steady starts", "12s crashes starts",
					"15s crashes starts")
				same(t, root.Status().String(), `root (one for one): running
└── sub (one for one): running, start 2, last error: supervisor "root/sub" gave up at child "crashes": `+
					`more than 1 restarts within 1m0s: crashes: crash; crashes: crash
    ├── steady: running, start 2
    └── crashes: running, start 4, last error: crash
`)
				stop()
				d.want(t, "22s crashes stops", "22s steady stops")
			})
		})
	}
}

// TestServeAgainStartsTheSameChildren checks that each Serve starts the children of New, including
// Temporary ones, and the children that were added since and not removed.
func TestServeAgainStartsTheSameChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newEventLog()
		once := func(name string) supervise.Child {
			c := d.child(name, 0, 0, 0, 0)
			c.Restart = supervise.Temporary
			return c
		}
		first := true
		failsOnce := supervise.Child{Name: "last", Run: func(ctx context.Context) error {
			if !first {
				<-ctx.Done()
				return nil
			}
			first = false
			time.Sleep(s)
			return supervise.ErrEscalate
		}}
		sup := newSupervisor(t, "root", supervise.Spec{OnEvent: d.event}, once("job"),
			d.child("gone", 0), failsOnce)
		ended := make(chan error, 1)
		go func() { ended <- sup.Serve(t.Context()) }()
		synctest.Wait()
		for _, c := range []supervise.Child{once("task"), d.child("added", 0)} {
			if err := sup.Add(c); err != nil {
				t.Error(err)
			}
		}
		if err := sup.Remove(t.Context(), "gone"); err != nil {
			t.Error(err)
		}
		if err := sup.Serve(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "has not returned") {
			t.Errorf("Serve while another runs: %v", err)
		}
		if err := <-ended; !errors.Is(err, supervise.ErrEscalate) {
			t.Errorf("the first Serve: %v", err)
		}
		got := d.take()
		slices.Sort(got)
		want := []string{"0s added starts", "0s gone starts", "0s gone stops", "0s job starts",
			"0s last starts",
			"0s task starts", "1s added stops"}
		if !slices.Equal(got, want) {
			t.Errorf("first %q, want %q", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		if err := sup.Serve(ctx); err != context.DeadlineExceeded {
			t.Errorf("the second Serve: %v", err)
		}
		d.want(t, "1s job starts", "1s last starts", "1s added starts", "2s added stops")
		done, end := context.WithCancelCause(t.Context())
		end(errCrash)
		if err := sup.Serve(done); err != errCrash {
			t.Errorf("Serve with a context that has ended: %v", err)
		}
		d.want(t)
	})
}

// TestServeAgainWaitsForTheStuck checks that Serve fails while a child of an earlier Serve is
// stuck: otherwise that child would get a second incarnation.
func TestServeAgainWaitsForTheStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, starts := make(chan struct{}), 0
		sup := newSupervisor(t, "root", supervise.Spec{},
			supervise.Child{Name: "deaf", Run: func(context.Context) error {
				starts++
				<-release
				return nil
			}})
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		if _, stuck := errors.AsType[*supervise.StuckError](sup.Serve(ctx)); !stuck {
			t.Error("no StuckError")
		}
		if err := sup.Serve(t.Context()); err == nil ||
			!strings.Contains(err.Error(), `child "deaf" of an earlier call`) {
			t.Errorf("Serve beside a stuck child: %v", err)
		}
		close(release)
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), s)
		defer cancel()
		if err := sup.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) || starts < 2 {
			t.Errorf("Serve after it has returned: %v, %d starts", err, starts)
		}
	})
}

// named is a service in the form of those written for suture.
type named struct{ starts int }

func (n *named) Serve(ctx context.Context) error {
	if n.starts++; n.starts < 3 {
		return errCrash
	}
	<-ctx.Done()
	return ctx.Err()
}

func (n *named) String() string { return "cache" }

func TestChildService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &named{}
		sup, stop := serve(t, supervise.Spec{Backoff: fixed(s)}, supervise.Child{Service: n},
			supervise.Child{Name: "other", Service: &named{}})
		pass(5 * s)
		names := fmt.Sprint(sup.Status().Children[0].Name, " ", sup.Status().Children[1].Name)
		if names != "cache other" || n.starts != 3 {
			t.Errorf("children %s, %d starts", names, n.starts)
		}
		stop()
	})
	for name, c := range map[string]supervise.Child{
		"no name":         {Service: serviceFunc(func(context.Context) error { return nil })},
		"service and run": {Service: &named{}, Run: func(context.Context) error { return nil }},
	} {
		if _, err := supervise.New("root", supervise.Spec{}, c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestStuckBelowAService checks the path of a stuck child below a supervisor that is a
// Child.Service.
func TestStuckBelowAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sub := newSupervisor(t, "sub", supervise.Spec{}, blocked("deaf", release))
		_, stop := serve(t, supervise.Spec{}, supervise.Child{Name: "sub", Run: sub.Serve})
		synctest.Wait()
		gone, ok := errors.AsType[*supervise.StuckError](stop())
		if !ok || !slices.Equal(gone.Children, []string{"sub/deaf"}) {
			t.Errorf("%v", gone)
		}
		close(release)
		synctest.Wait()
	})
}
