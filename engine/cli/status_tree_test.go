package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/status"
)

// TestStatusTree checks that every part has its own line, that columns are aligned, and that no
// line exceeds the width of a terminal.
func TestStatusTree(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &status.Status{Version: 1, PID: 7, Program: "devel", Seconds: 61, Ready: true, Tree: &status.Child{
		Name: "penstock", State: "running", Since: began, Seconds: 61, Children: []status.Child{
			{Name: "access", State: "running", Seconds: 61, Children: []status.Child{
				{Name: "main", State: "running", Seconds: 3.25, Restarts: 12,
					Reason: "source spool_dir: input/output error"},
				{Name: "late", State: "waiting", Seconds: 0.5, Restarts: 4, Next: 2.04,
					Reason: "sink sqlite: no such table\x1b[31m"},
			}},
			{Name: "b", State: "idle"},
		},
	}}
	const want = `penstock devel, process 7, running for 1m1s: ready

            state      for  restarts  last reason
penstock    running   1m1s         -
├─ access   running   1m1s         -
│  ├─ main  running   3.3s        12  source spool_dir: input/output error
│  └─ late  waiting  500ms         4  starts again in 2s: "sink sqlite: no such table\x1b[31m"
└─ b        idle         -         -
`
	if got := statusTree(s, 0); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for line := range strings.Lines(statusTree(s, 50)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 50 && !strings.HasPrefix(line, "penstock devel") {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	s.Tree = nil
	if got := statusTree(s, 0); !strings.Contains(got, "does not report its supervised parts") {
		t.Errorf("an older process: %s", got)
	}
}

// TestExplainParts checks that the output of `penstock explain` describes all restarted parts of
// the tree or, if a worker is given, only the parts of that name.
func TestExplainParts(t *testing.T) {
	route := status.Child{Name: "main", State: "running", Restarts: 1, Seconds: 90,
		Reason: "sink x: gone", Children: []status.Child{
			{Name: "sender", State: "running", Children: []status.Child{{Name: "worker-1", State: "BUSY"}}},
			{Name: "children", State: "running", Children: []status.Child{
				{Name: "worker-1", State: "running", Restarts: 6, Seconds: 3.71, Reason: "sh: exit status 3"},
				{Name: "worker-2", State: "running", Restarts: 1, Seconds: 60, Reason: "sh: signal: killed"},
			}},
		}}
	late := status.Child{Name: "late", State: "waiting", Restarts: 4, Next: 2.04, Reason: "sink y: no such table"}
	s := &status.Status{
		Routes: []status.Route{{Pipeline: "p", Name: "over", Health: "stopped", Error: "stopped by the guard"}},
		Tree: &status.Child{Name: "penstock", Children: []status.Child{
			{Name: "p", Children: []status.Child{route, late, {Name: "over", State: "done"}}},
		}},
	}
	const worker1 = "children/worker-1 was restarted 6 times, last 3.7s ago: sh: exit status 3\n"
	for _, c := range []struct{ route, worker, want string }{
		{"p/main", "", "the route was restarted 1 time, last 1m30s ago: sink x: gone\n" + worker1 +
			"children/worker-2 was restarted 1 time, last 1m0s ago: sh: signal: killed\n"},
		{"p/main", "worker-1", "the route was restarted 1 time, last 1m30s ago: sink x: gone\n" +
			worker1},
		{"p/late", "", "the route has failed and restarts in 2s: sink y: no such table\n"},
		{"p/over", "", "the route has stopped: stopped by the guard\n"},
		{"q/main", "", ""},
	} {
		var b strings.Builder
		if err := explainParts(&b, s, c.route, c.worker); err != nil || b.String() != c.want {
			t.Errorf("%s %s: %v\n%swant\n%s", c.route, c.worker, err, b.String(), c.want)
		}
	}
	if err := explainParts(&strings.Builder{}, &status.Status{}, "p/main", ""); err != nil {
		t.Errorf("a process without a tree: %v", err)
	}
}
