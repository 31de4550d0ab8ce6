package tail_test

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// rotation is one case: the steps of a writer.
type rotation struct {
	name   string
	glob   string // beneath the folder; "" means *.log*
	change func(*tail.Options)
	steps  []func(w *writer)
	waits  bool // some lines come only when gone_wait or copy_wait is over
	wide   int  // extra bytes in each line
	// reports whether, under a schedule, lines are destroyed or the result is undecidable
	skip func(kill schedule) bool
}

// schedule is when a process is killed during a case.
type schedule struct {
	kind string
	at   int // before this step, or around it
}

// schedules returns the schedules of kills. The first has no kill. Then there are six kinds for
// each step. In these kinds, the process is:
//
//   - killed before the step, at once
//   - killed before the step, after it has read all earlier data
//   - down during the step
//   - down from the step to the end
//   - killed while it reads the step's data
//   - killed after it has read the step's data, with nothing saved
//
// Three of these kinds (the first, the second and the fifth) also exist with a kill at every step.
//
// Without full, a case gets only two of the six kinds for each step, and only one of the three. The
// number of the case, nth, selects them.
func schedules(steps, nth int, full bool) []schedule {
	kinds := []string{"before", "read, then before", "down during", "down from", "midway after", "unsaved after"}
	all := []schedule{{kind: "never"}}
	for i := range steps {
		for k, kind := range kinds {
			if full || (k+i+nth)%3 == 0 {
				all = append(all, schedule{kind, i})
			}
		}
	}
	for k, kind := range []string{"before", "read, then before", "midway after"} {
		if full || k == nth%3 {
			all = append(all, schedule{kind, everywhere})
		}
	}
	return all
}

// everywhere is the step of a schedule that kills at each step.
const everywhere = -1

// between is how long the process runs between two steps.
const between = 2500 * time.Millisecond

// run carries out a case under a schedule and compares ledger and receivers.
func (c rotation) run(t *testing.T, dir string, base time.Time, s schedule, routes int) {
	change := func(o *tail.Options) {
		o.Include = []string{"*.log*"}
		if c.glob != "" {
			o.Include = strings.Split(c.glob, " ")
		}
		o.Exclude, o.GoneWait = nil, 20*time.Second
		if c.change != nil {
			c.change(o)
		}
	}
	p, w := newFixture(t, dir, change), newWriter(t, dir, base)
	defer p.kill()
	defer w.close()
	w.wide = c.wide
	p.limits.Bytes = 256
	if routes > 1 {
		p.withSecond()
	}
	p.start(false)
	for i, step := range c.steps {
		p.lag = time.Second
		here := s.at == i || s.at == everywhere
		switch {
		case here && s.kind == "before":
			p.kill()
			p.start(false)
		case here && s.kind == "read, then before":
			p.pump(time.Second)
			p.kill()
			p.start(false)
		case here && (s.kind == "down during" || s.kind == "down from"):
			p.kill()
		case here && s.kind == "unsaved after":
			p.lag = time.Hour
		}
		step(w)
		switch {
		case here && s.kind == "down during":
			p.start(false)
		case here && s.kind == "midway after":
			for range 2 {
				p.pump(5 * time.Millisecond)
			}
			p.kill()
			p.start(false)
		}
		if p.reader != nil {
			p.pump(between)
		}
		if here && s.kind == "unsaved after" {
			p.kill()
			p.start(false)
		}
	}
	p.lag = time.Second
	if p.reader == nil {
		p.start(false)
	}
	p.pump(45 * time.Second)
	c.compare(t, p, w, s)
	if p.second != nil {
		c.compare(t, p.second, w, s)
	}
}

func (c rotation) compare(t *testing.T, p *fixture, w *writer, s schedule) {
	t.Helper()
	if p.failed != nil {
		t.Errorf("Read: %v", p.failed)
	}
	got, want := slices.Sorted(slices.Values(p.exact)), slices.Sorted(slices.Values(w.ledger))
	if !slices.Equal(got, want) {
		t.Errorf("killed %s step %d: %s; the log:\n%s", s.kind, s.at, differ(got, want), p.host.Logged())
	}
	for _, line := range w.ledger {
		if p.sent[line] == 0 {
			t.Errorf("killed %s step %d: %q was never sent", s.kind, s.at, line)
		}
	}
	if len(p.saved) > 40 {
		t.Errorf("killed %s step %d: %d marks are left", s.kind, s.at, len(p.saved))
	}
}

// rotations are all cases.
func rotations() []rotation {
	return slices.Concat(plainCases(), renameCases(), copyCases(), goneCases(), identityCases(),
		harnessCases(), packCases())
}

// TestRotation checks the lines of each case, wherever the process is killed. A receiver that drops
// the lines after the saved checkpoint has every line exactly once. One that keeps them has every
// line at least once. PENSTOCK_ROTATION=full (make rotation) runs every schedule of each case;
// otherwise every third one runs, or every ninth if tests are short.
func TestRotation(t *testing.T) {
	cases := rotations()
	if len(cases) < 60 {
		t.Errorf("there are %d cases, want at least 60", len(cases))
	}
	names := make(map[string]bool)
	var runs atomic.Int64
	full := os.Getenv("PENSTOCK_ROTATION") == "full"
	t.Cleanup(func() { t.Logf("%d cases, %d runs", len(cases), runs.Load()) })
	for nth, c := range cases {
		if names[c.name] {
			t.Errorf("two cases are called %q", c.name)
		}
		names[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i, s := range schedules(len(c.steps), nth, full) {
				if !c.takes(s) || testing.Short() && i%3 != 0 {
					continue
				}
				for routes := 1; routes <= 2; routes++ {
					if routes == 2 && !full && (nth+s.at)%4 != 0 {
						continue
					}
					runs.Add(1)
					dir, base := t.TempDir(), time.Now().Add(time.Hour)
					synctest.Test(t, func(t *testing.T) { c.run(t, dir, base, s, routes) })
					if t.Failed() {
						t.Logf("with %d routes", routes)
						return
					}
				}
			}
		})
	}
}
