package deadletter_test

import (
	"errors"
	"strings"
	"testing"

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
		first int
		steps []step
		want  string // of the error of the last step; all before it give none
	}{
		{"nothing dead", 100, repeat(1000, step{100, 0}), ""},
		{"first batch", 5000, []step{{0, 5000}}, "all 5000 records of the first batch"},
		{"first batch in pieces", 100, []step{{0, 60}, {0, 40}}, "all 100 records"},
		{"first batch of one record", 1, []step{{0, 1}}, "all 1 records"},
		{"one refused record settles first", 100, []step{{0, 1}, {99, 0}}, ""},
		{"first batch but one", 999, []step{{0, 500}, {1, 498}}, ""},
		{"first batch not said", 0, []step{{0, 999}}, ""},
		{"share of too few", 100, []step{{1, 998}}, ""},
		{"share of enough", 100, []step{{1, 998}, {1, 0}}, "998 of the last 1000 records (99.8 %)"},
		{"ten per cent is borne", 100, repeat(100, step{90, 10}), ""},
		{"more is not", 100, append(repeat(100, step{90, 10}), step{0, 1}), "1001 of the last 10001 records (10.0 %)"},
		{"dropped ones do not count", 100, repeat(10, step{0, 0}), ""},
		{"the wrong turn of a long run", 100, append(repeat(10_000, step{1000, 0}), repeat(23, step{0, 1000})...), "records"},
		{"clumps in a long run", 100, repeat(50, append(repeat(100, step{1000, 0}), step{0, 5000})...), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g deadletter.Guard
			g.First(c.first)
			for n, s := range c.steps {
				err := g.Observe(s.delivered, s.dead)
				last := n == len(c.steps)-1
				if err == nil && last && c.want != "" {
					t.Fatalf("the last step is borne, want %q", c.want)
				}
				if err == nil {
					continue
				}
				if _, ok := errors.AsType[*deadletter.GuardError](err); !ok || c.want == "" || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("step %d: %v, want %q at the last", n, err, c.want)
				}
				if !last && !strings.HasPrefix(c.name, "the wrong turn") {
					t.Fatalf("stopped at step %d of %d already: %v", n, len(c.steps), err)
				}
				if again := g.Observe(1_000_000, 0); again != err {
					t.Errorf("a stopped guard says %v", again)
				}
				return
			}
		})
	}
}
