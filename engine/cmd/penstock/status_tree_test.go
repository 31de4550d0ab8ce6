package main

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/admin"
)

// TestStatusTree: every part stands on a line of its own, its columns beneath each other, and on a terminal no line is wider.
func TestStatusTree(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &admin.Status{Version: 1, PID: 7, Program: "devel", Seconds: 61, Ready: true, Tree: &admin.Child{
		Name: "penstock", State: "running", Since: began, Seconds: 61, Children: []admin.Child{
			{Name: "access", State: "running", Seconds: 61, Children: []admin.Child{
				{Name: "main", State: "running", Seconds: 3.25, Restarts: 12, Reason: "source spool_dir: input/output error"},
				{Name: "late", State: "waiting", Seconds: 0.5, Restarts: 4, Next: 2.04, Reason: "sink sqlite: no such table\x1b[31m"},
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
	if got := statusTree(s, 0); !strings.Contains(got, "does not tell") {
		t.Errorf("an older process: %s", got)
	}
}
