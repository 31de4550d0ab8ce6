package supervise_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/supervise"
)

// until runs until end is closed, or it is stopped.
func until(end <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-end:
		case <-ctx.Done():
		}
		return nil
	}
}

// TestTreeWithin checks that Status shows the supervisors and groups that a child starts below that
// child, at any call depth. They are shown only while they run.
func TestTreeWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, long := make(chan struct{}), make(chan struct{})
		pool := func(ctx context.Context) error {
			s, err := supervise.New("pool", supervise.Spec{},
				supervise.Child{Name: "a", Run: until(long)})
			if err != nil {
				return err
			}
			return s.Serve(ctx)
		}
		route := func(ctx context.Context) error {
			g := supervise.NewGroup(ctx)
			g.Go("reader", until(long))
			g.Go("short", until(quick))
			g.Go("pool", pool)
			g.Go("sink", func(ctx context.Context) error {
				p := supervise.NewNamedGroup(ctx, "process 7")
				p.Go("stderr", until(quick))
				return p.Wait()
			})
			return g.Wait()
		}
		s, err := supervise.New("root", supervise.Spec{},
			supervise.Child{Name: "route", Run: route}, subtree("sub", supervise.Spec{},
				supervise.Child{Name: "b", Run: until(long)}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx) }()
		synctest.Wait()
		same(t, s.Status().String(), `root (one for one): running
├── route: running
│   ├── reader: running
│   ├── short: running
│   ├── pool (one for one): running
│   │   └── a: running
│   └── sink: running
│       └── process 7: running
│           └── stderr: running
└── sub (one for one): running
    └── b: running
`)
		close(quick)
		synctest.Wait()
		same(t, s.Status().String(), `root (one for one): running
├── route: running
│   ├── reader: running
│   └── pool (one for one): running
│       └── a: running
└── sub (one for one): running
    └── b: running
`)
		stop()
		if err := <-ended; err != context.Canceled {
			t.Errorf("Serve: %v", err)
		}
		if text := s.Status().String(); strings.Contains(text, "reader") {
			t.Errorf("after the end:\n%s", text)
		}
	})
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("the tree is\n%swant\n%s", got, want)
	}
}
