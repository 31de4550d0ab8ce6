package follow_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// lacking is a test of a copy that lacks a line that was read in its original. Batches settle in
// another order than they were read, and the routes restart several times.
type lacking struct {
	killed bool   // the process restarts, otherwise only route a
	less   bool   // route b has read less than the copy has
	gap    bool   // route a has settled the second line before the first
	settle bool   // the missing line is settled before the restart, otherwise at its drain
	rotate string // what happens to the copy between two restarts

	d      *folder
	s      *follow.Catalogue
	rnd    *rand.Rand
	routes []*route
}

// TestCopyLacksSettledData checks that every line is delivered once.
func TestCopyLacksSettledData(t *testing.T) {
	for i := range 64 {
		l := lacking{
			killed: i&1 > 0, less: i&2 > 0, gap: i&4 > 0, settle: i&8 > 0,
			rotate: []string{"no", "rename", "compress", "compress while closed"}[i/16],
			rnd:    rand.New(rand.NewPCG(1, 1)),
		}
		name := fmt.Sprintf("killed=%v,less=%v,gap=%v,settle=%v,rotate=%s", l.killed, l.less, l.gap,
			l.settle, l.rotate)
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
	l.restart(t, func() {})
	switch l.rotate {
	case "rename":
		d.rename(t, "a.log.1", "a.log.2")
		l.runAll(t)
	case "compress":
		l.compress(t)
		l.runAll(t)
	}
	l.restart(t, func() {
		if l.rotate == "compress while closed" {
			l.compress(t)
		}
	})
	l.routes[0].want(t, d, "1 one", "2 two", "3 in no file", "4 four")
	if l.less {
		l.routes[1].want(t, d, "1 one", "2 two", "4 four")
	}
	stop(t, l.routes...)
}

// compress replaces the copy by a compressed one.
func (l *lacking) compress(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.d.path, "a.log.1"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	l.d.put(t, "a.log.1.gz", packed.String())
	l.d.delete(t, "a.log.1")
}

// restart restarts the process, or route a alone, and lets the routes read everything. Before the
// routes open again, it calls the function meanwhile.
func (l *lacking) restart(t *testing.T, meanwhile func()) {
	again := l.routes[:1]
	if l.killed {
		again = l.routes
	}
	stop(t, again...)
	if l.killed {
		l.s.EndRun()
	}
	meanwhile()
	if l.killed {
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
