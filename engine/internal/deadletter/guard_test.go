package deadletter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
)

func TestGuard(t *testing.T) {
	type step struct{ delivered, dead int64 }
	repeat := func(n int, s ...step) []step {
		var all []step
		for range n {
			all = append(all, s...)
		}
		return all
	}
	for _, c := range []struct {
		name  string
		start bool
		steps []step
		want  string // of the error of the last step; earlier steps give none
	}{
		{"nothing dead", true, repeat(1000, step{100, 0}), ""},
		{"all of the start", true, []step{{0, 5000}}, "all 5000 records so far"},
		{"all of the start in pieces", true, []step{{0, 60}, {0, 40}}, "all 100 records"},
		{"one bad record", true, []step{{0, 1}, {0, 0}, {0, 0}}, ""},
		{"some bad records at the start", true, []step{{0, 99}, {901, 0}}, ""},
		{"some bad records for ten seconds", true, repeat(10, step{0, 1}), "all 10 records"},
		{"one bad record for ten seconds", true,
			append(repeat(20, step{}), step{0, 1}, step{}, step{99, 0}), ""},
		{"all of the start but one", true, []step{{1, 0}, {0, 500}, {0, 498}, {1, 0}},
			"998 of the last 1000"},
		{"a run that resumes", false, []step{{0, 999}}, ""},
		{"share of too few", true, []step{{1, 998}}, ""},
		{"share of enough", true, []step{{1, 998}, {1, 0}},
			"998 of the last 1000 records (99.8 %)"},
		{"ten per cent is borne", true, repeat(100, step{90, 10}), ""},
		{"more is not", true, append(repeat(100, step{90, 10}), step{0, 1}),
			"1001 of the last 10001 records (10.0 %)"},
		{"dropped ones do not count", true, repeat(10, step{0, 0}), ""},
		{"the wrong turn of a long run", true,
			append(repeat(10_000, step{1000, 0}), repeat(23, step{0, 1000})...), "records"},
		{"clumps in a long run", true, repeat(50,
			append(repeat(100, step{1000, 0}), step{0, 5000})...), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := deadletter.Guard{Share: 0.1, Records: 1000}
			now := time.Unix(1e9, 0)
			if c.start {
				g.Start(now)
			}
			for n, s := range c.steps {
				now = now.Add(1200 * time.Millisecond)
				err := g.Observe(now, s.delivered, s.dead)
				last := n == len(c.steps)-1
				if err == nil && last && c.want != "" {
					t.Fatalf("the last step is borne, want %q", c.want)
				}
				if err == nil {
					continue
				}
				if _, ok := errors.AsType[*deadletter.GuardError](err); !ok || c.want == "" ||
					!strings.Contains(err.Error(), c.want) {
					t.Fatalf("step %d: %v, want %q at the last", n, err, c.want)
				}
				if !last && !strings.HasPrefix(c.name, "the wrong turn") {
					t.Fatalf("stopped at step %d of %d already: %v", n, len(c.steps), err)
				}
				if again := g.Observe(now, 1_000_000, 0); again != err {
					t.Errorf("a stopped guard says %v", again)
				}
				return
			}
		})
	}
}

// TestGuardOptions checks that the thresholds follow the options, and that a disabled guard never
// stops a route.
func TestGuardOptions(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		guard           deadletter.Guard
		delivered, dead int64
		stops           bool
	}{
		{deadletter.Guard{Share: 0.5, Records: 100}, 51, 49, false},
		{deadletter.Guard{Share: 0.5, Records: 100}, 49, 51, true},
		{deadletter.Guard{Share: 0.5, Records: 100}, 0, 9, false},
		{deadletter.Guard{Share: 0.5, Records: 100}, 0, 10, true},
		{deadletter.Guard{Share: 0, Records: 1}, 0, 1, true},
		{deadletter.Guard{Share: 0.1, Records: 1000, Off: true}, 0, 1_000_000, false},
	} {
		c.guard.Start(now)
		if err := c.guard.Observe(now, c.delivered, c.dead); (err != nil) != c.stops {
			t.Errorf("%+v: %v, want a stop: %v", c.guard, err, c.stops)
		}
	}
}
