package tail_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// TestRotationKilled runs the rotation cases with the real program: it reads real files, delivers
// to real SQLite and to a real HTTP server, and is killed with SIGKILL. A sweep runs all cases
// under one schedule in one process, with a pipeline for each case. So a kill and a start cost no
// more for all cases than for one.

// sweeps returns all schedules or, without full, two that kill the process at every step.
func sweeps(cases []rotation, full bool) []schedule {
	if !full {
		return []schedule{{"read, then before", everywhere}, {"midway after", everywhere}}
	}
	steps := 0
	for _, c := range cases {
		steps = max(steps, len(c.steps))
	}
	return schedules(steps, 0, true)
}

// takes reports whether a case can run under a schedule of kills. The case must have the step of
// the schedule, and must not skip the schedule.
func (c rotation) takes(s schedule) bool {
	if s.at >= len(c.steps) {
		return false
	}
	for i := range c.steps {
		if one := (schedule{s.kind, i}); (s.at == i || s.at == everywhere) && c.skip != nil && c.skip(one) {
			return false
		}
	}
	return true
}

// TestRotationKilled checks the lines that arrive after kills. The variable PENSTOCK_ROTATION_KILL
// selects the runs: full (make rotation-kill) runs all cases under all schedules, and sample (CI)
// runs all cases under two schedules. Without it, only the cases of vector-test-harness run, under
// two schedules.
func TestRotationKilled(t *testing.T) {
	cases, how, atOnce := harnessCases(), os.Getenv("PENSTOCK_ROTATION_KILL"), 2
	if how != "" {
		cases = rotations()
	} else {
		t.Parallel()
		atOnce = 6 // they mostly wait
	}
	bin := filepath.Join(t.TempDir(), "penstock")
	build := exec.Command("go", "build", "-o", bin, "github.com/penstock-io/penstock/engine/cmd/penstock")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building penstock: %v\n%s", err, out)
	}
	slots := make(chan struct{}, atOnce)
	runs, skipped := 0, make(map[string]int)
	t.Run("sweep", func(t *testing.T) {
		for _, s := range sweeps(cases, how == "full") {
			var taken []rotation
			for _, c := range cases {
				if c.takes(s) {
					taken = append(taken, c)
				} else if s.at < len(c.steps) {
					skipped[c.name]++
				}
			}
			runs += len(taken)
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				newSweep(t, bin, s, taken).run()
			})
		}
	})
	t.Logf("%d cases, %d runs", len(cases), runs)
}

// String names the schedule.
func (s schedule) String() string {
	switch {
	case s.kind == "never":
		return s.kind
	case s.at == everywhere:
		return s.kind + " every step"
	}
	return fmt.Sprintf("%s step %d", s.kind, s.at)
}

// These waits are in real time, because the tests run the real program. A deleted file is closed,
// and a possible copy is read, only after killLongWait, which exceeds the duration of the steps
// even on a busy machine. A case with lines that arrive only after such a wait uses killGoneWait
// and killCopyWait instead.
const (
	killLongWait = 2 * time.Minute
	killGoneWait = 4 * time.Second
	killCopyWait = 2 * time.Second
	killPollMax  = 100 * time.Millisecond
	// stuckAfter applies to cases with killGoneWait and killCopyWait. If no new line arrives for
	// this time, the test assumes that the missing lines arrive only after such a wait, and
	// continues with the next step.
	stuckAfter = 2500 * time.Millisecond
	// time after which an event without a new line has been seen
	lookTwice = 6 * killPollMax
)

// pipeline is the config of one case.
func (c *subject) pipeline(server string, sync time.Duration) string {
	o := tail.Source().Options().(*tail.Options)
	o.Include, o.Exclude, o.GoneWait, o.CopyWait = []string{"*.log*"}, nil, killLongWait, killLongWait
	if c.waits {
		o.GoneWait, o.CopyWait = killGoneWait, killCopyWait
	}
	if c.glob != "" {
		o.Include = strings.Split(c.glob, " ")
	}
	if c.change != nil {
		c.change(o)
	}
	var include []string
	for _, g := range o.Include {
		include = append(include, fmt.Sprintf("%q", "./"+c.name+"/in/"+g))
	}
	include = append(include, fmt.Sprintf("%q", "./"+c.name+"/marker/*.log"))
	return fmt.Sprintf(`  %s:
    source:
      tail: { include: [%s], exclude: [], gone_wait: %v, copy_wait: %v, max_record: %dB, poll_min: 10ms, poll_max: %v }
    routes:
      table: { sink: { sqlite: { path: ./%s/out.db, table: lines } }, batch: { bytes: 2KiB }, checkpoint: { sync: %v } }
      post: { sink: { http: { endpoints: [%q] } }, batch: { bytes: 2KiB }, checkpoint: { sync: %v } }
`, c.name, strings.Join(include, ", "), o.GoneWait, o.CopyWait, int64(o.MaxRecord), killPollMax, c.name, sync, server+"/"+c.name, sync)
}

// run carries out the sweep and compares the received lines with the ledgers.
func (v *sweep) run() {
	v.start(true)
	steps := 0
	for _, c := range v.cases {
		steps = max(steps, len(c.steps))
	}
	for i := range steps {
		here := v.s.at == i || v.s.at == everywhere
		v.before(i, here)
		for _, c := range v.cases {
			if i < len(c.steps) {
				c.steps[i](c.w)
			}
		}
		v.after(i, here)
	}
	if v.cmd == nil {
		v.start(true)
	}
	v.awaitDelivery(killGoneWait + stuckAfter)
	v.kill()
	v.start(true)
	v.awaitDelivery(stuckAfter)
	v.kill()
	for _, c := range v.cases {
		v.t.Run(c.title, func(t *testing.T) { c.compare(t) })
	}
}

func (v *sweep) before(i int, here bool) {
	switch {
	case !here:
	case v.s.kind == "before":
		v.kill()
		v.start(false)
	case v.s.kind == "read, then before":
		v.kill()
		v.start(true)
	case v.s.kind == "down during", v.s.kind == "down from":
		v.kill()
	case v.s.kind == "unsaved after":
		v.kill()
		v.sync = time.Hour
		v.start(true)
	}
}

func (v *sweep) after(i int, here bool) {
	switch {
	case !here:
	case v.s.kind == "down during":
		v.start(true)
	case v.s.kind == "midway after":
		v.pause(time.Duration(3+7*i) * time.Millisecond)
		v.kill()
		v.start(true)
	}
	if v.cmd != nil {
		v.awaitDelivery(stuckAfter)
	}
	if here && v.s.kind == "unsaved after" {
		v.kill()
		v.sync = killSync
		v.start(true)
	}
}

// compare checks the lines of both receivers against those that the case has written: the table has
// each line once, and the server lacks none.
func (c *subject) compare(t *testing.T) {
	got := c.rows(t)
	for _, line := range c.w.maybe { // written and destroyed at once: it may have been read
		if at := slices.Index(got, line); at >= 0 {
			got = slices.Delete(got, at, at+1)
		}
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(c.w.ledger))
	if !slices.Equal(got, want) {
		t.Errorf("the table: %s", differ(got, want))
	}
	if missing := c.missing(); len(missing) > 0 {
		t.Errorf("the server lacks %d lines: %.60q", len(missing), missing[:min(len(missing), 6)])
	}
}
