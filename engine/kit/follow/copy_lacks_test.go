package follow_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// lacking is a test of a copy that lacks a line that was read in its original. Batches settle in
// another order than they were read, and the routes restart several times.
type lacking struct {
	killed bool // the process restarts, otherwise only route a
	less   bool // route b has read less than the copy has
	gap    bool // route a has settled the second line before the first
	settle bool // the missing line is settled before the restart, otherwise at its drain
	// the name of the copy after the first restart
	renamed string

	d      *folder
	s      *follow.Catalogue
	rnd    *rand.Rand
	routes []*route
}

// TestCopyLacksSettledData checks that every line is delivered once.
func TestCopyLacksSettledData(t *testing.T) {
	for i := range 32 {
		l := lacking{
			killed: i&1 > 0, less: i&2 > 0, gap: i&4 > 0, settle: i&8 > 0,
			rnd: rand.New(rand.NewPCG(1, 1)),
		}
		if i&16 > 0 {
			l.renamed = "a.log.2"
		}
		name := fmt.Sprintf("killed=%v,less=%v,gap=%v,settle=%v,renamed=%v", l.killed, l.less, l.gap,
			l.settle, l.renamed != "")
		t.Run(name, func(t *testing.T) { synctest.Test(t, l.run) })
	}
}

func (l *lacking) run(t *testing.T) {
	d, other, _ := twoRoutes(t, follow.Growing{})
	stop(t, other)
	l.d, l.s = d, d.set(follow.Growing{})
	l.s.BeginRun()
	defer func() { l.s.EndRun() }()
	a := d.open(l.s, "a", nil)
	a.unordered, l.routes = newUnordered(l.rnd), []*route{a}
	d.put(t, "a.log", "1 one\n")
	a.readInFlight(t)
	if !l.gap {
		a.settleLast()
	}
	if l.less {
		b := d.open(l.s, "b", nil)
		b.run(t, time.Second)
		l.routes = append(l.routes, b)
	}
	d.put(t, "a.log", "2 two\n")
	a.readInFlight(t)
	if l.gap {
		a.settleLast()
	}
	d.copyTruncate(t, "a.log", "a.log.1", func() {
		d.put(t, "a.log", "3 in no file\n")
		a.readInFlight(t)
		if l.settle {
			a.settleLast()
		}
	})
	d.put(t, "a.log", "4 four\n")
	for a.readInFlight(t) {
		a.settleLast()
	}
	if !l.settle {
		a.unordered.settleAll(a)
	}
	l.restart(t)
	if l.renamed != "" {
		d.rename(t, "a.log.1", l.renamed)
		l.runAll(t)
	}
	l.restart(t)
	l.routes[0].want(t, d, "1 one", "2 two", "3 in no file", "4 four")
	if l.less {
		l.routes[1].want(t, d, "1 one", "2 two", "4 four")
	}
	stop(t, l.routes...)
}

// restart restarts the process, or route a alone, and lets the routes read everything.
func (l *lacking) restart(t *testing.T) {
	again := l.routes[:1]
	if l.killed {
		again = l.routes
	}
	stop(t, again...)
	if l.killed {
		l.s.EndRun()
		l.s = l.d.set(follow.Growing{})
		l.s.BeginRun()
	}
	for i, r := range again {
		next := l.d.open(l.s, []string{"a", "b"}[i], r.marks)
		next.lines, next.ids, next.trace, next.marks = r.lines, r.ids, r.trace, r.marks
		if i == 0 {
			next.unordered = newUnordered(l.rnd)
		}
		again[i] = next
	}
	l.runAll(t)
}

func (l *lacking) runAll(t *testing.T) {
	for range 60 {
		turns(t, 1, time.Second, l.routes...)
		a := l.routes[0]
		a.unordered.settleAll(a)
	}
}
