package follow_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestRouteKeepsItsIDWhenItJoins checks a route that opens late, when another route has already
// given a file another id. The late route keeps its stored id of the file, and resumes at its
// stored position.
func TestRouteKeepsItsIDWhenItJoins(t *testing.T) {
	for name, how := range map[string]struct{ noted, moved, first bool }{
		"with a note": {noted: true}, "by a ledger": {}, "in a copy": {noted: true, moved: true},
		"before": {first: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three[:6])
				turns(t, 1, 2*time.Second, a)
				d.put(t, "a.log", three[6:])
				turns(t, 1, 2*time.Second, a)
				stop(t, a, b)
				for id, m := range a.marks {
					if !how.noted {
						m.Metadata = ""
						a.marks[id] = m
					}
				}
				if how.moved {
					d.copyTruncate(t, "a.log", "a.log.1", func() {})
					d.put(t, "a.log", "0 zero\n")
				}
				s := d.set(follow.Growing{})
				var a2 *route
				if how.first {
					a2 = newRoute(t, s, a.marks)
				}
				b2 := newRoute(t, s, nil)
				turns(t, 1, 2*time.Second, b2)
				if !how.first {
					a2 = newRoute(t, s, a.marks)
				}
				d.put(t, "a.log", "4 four\n")
				turns(t, 10, time.Second, a2, b2)
				want := []string{"4 four"}
				if how.moved {
					want = []string{"0 zero", "4 four"}
				}
				a2.want(t, d, want...)
				want = append(want[:len(want)-1:len(want)-1], "1 one", "2 two", "3 three", "4 four")
				b2.want(t, d, want...)
				if one, two := a.ids["1 one"], a2.ids["4 four"]; one != two && !how.moved {
					t.Errorf("the route knew a.log as %s, and now as %s", one, two)
				}
			})
		})
	}
}

// TestOneRouteSavedThatAFileWasCopied checks that a copy is recognised under any name although only
// one route has saved that the file was rotated. The inode in the other route's mark holds other
// data by now.
func TestOneRouteSavedThatAFileWasCopied(t *testing.T) {
	for _, firstSaved := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", three)
			turns(t, 1, 2*time.Second, a, b)
			a.lines, b.lines = nil, nil
			d.copyTruncate(t, "a.log", "a.log.1", func() {})
			d.put(t, "a.log", "0 zero\n")
			saved := a
			if !firstSaved {
				saved = b
			}
			turns(t, 1, 10*time.Second, saved)
			saved.want(t, d, "0 zero")
			stop(t, a, b)
			d.rename(t, "a.log.1", "z")
			a2, b2 := d.restarted(t, a, b)
			turns(t, 1, 20*time.Second, a2, b2)
			if !firstSaved {
				a2, b2 = b2, a2
			}
			a2.want(t, d)
			b2.want(t, d, "0 zero")
			d.wantNoLoss(t)
		})
	}
}

// TestProgressIsDroppedWhenAllRoutesAreDone checks a route that has read a nameless file to its
// end. It keeps its progress until the other route is done with the file, too. Otherwise the next
// run would read the file once more.
func TestProgressIsDroppedWhenAllRoutesAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.hidden = "old"
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.rename(t, "a.log", "a.old")
		turns(t, 1, 30*time.Second, a)
		a.forget()
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		stop(t, a, b)
		a2, b2 := d.restarted(t, a, b)
		turns(t, 1, 30*time.Second, a2, b2)
		wantLines(t, d, a2, b2)
		turns(t, 1, 2*time.Second, a2, b2)
		for _, r := range []*route{a2, b2} {
			if r.marks = a.marks; len(r.Deleted()) != 1 {
				t.Error("a route keeps progress of a file that both have read")
			}
		}
	})
}

// TestRestartedRouteIsNotDone checks a route that restarts before it has saved the end of a deleted
// file. It must read that end again. Until then both routes must keep their progress of the file.
func TestRestartedRouteIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := twoRoutes(t, follow.Growing{})
		s := d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a, b := d.open(s, "a", nil), d.open(s, "b", nil)
		d.put(t, "a.log", three[:12])
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", three[12:])
		d.delete(t, "a.log")
		undelivered, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		for undelivered.Err() == nil {
			_ = b.Read(undelivered, stream.NewBatch(stream.BatchLimits{})) // its batches are lost
		}
		turns(t, 1, 40*time.Second, a)
		stop(t, b)
		b2 := d.open(s, "b", b.marks)
		turns(t, 1, 2*time.Second, a)
		if ids := a.Deleted(); len(ids) > 0 {
			t.Errorf("a route drops the progress %q that another route still needs", ids)
		}
		turns(t, 2, 40*time.Second, b2, a)
		b.lines = append(b.lines, b2.lines...)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		if a, b := a.Deleted(), b2.Deleted(); len(a) != 1 || !slices.Equal(a, b) {
			t.Errorf("the routes drop the progress %q and %q of a file that both have read", a, b)
		}
		stop(t, a, b2)
	})
}

// TestOnlyRouteRestartsBeforeItSaved checks a single route that restarts before it has saved the
// end of a deleted file. The file stays open, and the route reads its end again.
func TestOnlyRouteRestartsBeforeItSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := twoRoutes(t, follow.Growing{})
		s := d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a := d.open(s, "a", nil)
		d.put(t, "a.log", three[:12])
		turns(t, 1, 2*time.Second, a)
		d.put(t, "a.log", three[12:])
		d.delete(t, "a.log")
		undelivered, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		for undelivered.Err() == nil {
			_ = a.Read(undelivered, stream.NewBatch(stream.BatchLimits{})) // its batches are lost
		}
		stop(t, a)
		a2 := d.open(s, "a", a.marks)
		turns(t, 2, 40*time.Second, a2)
		a2.want(t, d, "3 three")
		if ids := a2.Deleted(); len(ids) != 1 {
			t.Errorf("the route drops the progress %q, want that of one file", ids)
		}
		stop(t, a2)
	})
}

// open opens a route of the folder with a name and stored marks.
func (d *folder) open(s *follow.Catalogue, name string, stored map[string]stream.Mark) *route {
	o := knows(stored)
	o.Route = name
	r := &route{Reader: s.Open(o), ids: make(map[string]string), marks: make(map[string]stream.Mark)}
	maps.Copy(r.marks, stored)
	d.setProgress(name, r.marks)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.routes, name) {
		d.routes = append(d.routes, name)
	}
	return r
}

// setProgress sets the progress of a route in the checkpoint. It does not copy the map marks, so
// marks that the caller adds later count as well.
func (d *folder) setProgress(route string, marks map[string]stream.Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.saved == nil {
		d.saved = make(map[string]map[string]stream.Mark)
	}
	d.saved[route] = marks
}

// forget drops the partitions that the reader reports as deleted.
func (r *route) forget() {
	for _, id := range r.Deleted() {
		delete(r.marks, id)
	}
}

// TestOnceDropsProgressOfWhatIsGone checks that a finite run (Once) drops the progress of a deleted
// file, even if the listing that ends the wait for its copy also ends the run.
func TestOnceDropsProgressOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := earlierRun(t)
		d.remove(t, "a.log")
		o := knows(a.marks)
		o.Once = true
		r := &route{Reader: d.set(follow.Growing{}).Open(o), ids: make(map[string]string)}
		r.marks = a.marks
		defer func() { _ = r.Close() }()
		for {
			b := stream.NewBatch(stream.BatchLimits{})
			if err := r.Read(t.Context(), b); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			r.deliver(b)
		}
		if r.forget(); len(r.marks) != 0 {
			t.Errorf("the progress %v is kept", r.marks)
		}
	})
}

// TestFinishedRouteOpensFirst checks two routes, of which only one has read a deleted file to its
// end. That route opens first. It must wait for the copy in which the other route continues, and
// must not treat the copy as a new file.
func TestFinishedRouteOpensFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three[:6])
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", three[6:])
		turns(t, 1, 2*time.Second, a)
		d.delete(t, "a.log")
		turns(t, 1, 30*time.Second, a)
		a.want(t, d, "1 one", "2 two", "3 three")
		stop(t, a, b)
		d.put(t, "a.log.1", three)
		d.routes = []string{"a", "b"}
		d.setProgress("a", a.marks)
		d.setProgress("b", b.marks)
		s := d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a2 := d.open(s, "a", a.marks)
		turns(t, 1, 2*time.Second, a2)
		b2 := d.open(s, "b", b.marks)
		defer stop(t, a2, b2)
		turns(t, 20, time.Second, a2, b2)
		a2.want(t, d)
		b2.want(t, d, "2 two", "3 three")
		d.wantNoLoss(t)
	})
}

// TestFirstListingKnowsAllRoutes checks that each file gets one id, however late a route opens, and
// that no file is listed before the progress of all routes is loaded.
func TestFirstListingKnowsAllRoutes(t *testing.T) {
	for _, late := range []time.Duration{0, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", three[:6])
			turns(t, 1, 2*time.Second, b)
			d.put(t, "a.log", three[6:])
			stop(t, a, b)
			d.routes = []string{"a", "b"}
			d.setProgress("b", b.marks)
			s := d.set(follow.Growing{})
			s.BeginRun()
			t.Cleanup(s.EndRun)
			a2 := d.open(s, "a", nil)
			d.unloaded = errors.New("the checkpoint cannot be read")
			if a2.run(t, time.Second); len(a2.lines) > 0 {
				t.Errorf("%q is delivered without the progress of a route", a2.lines)
			}
			d.unloaded = nil
			if a2.run(t, late); late > 0 && len(a2.lines) == 0 {
				t.Error("a route waits for another one")
			}
			b2 := d.open(s, "b", b.marks)
			defer stop(t, a2, b2)
			turns(t, 5, time.Second, a2, b2)
			a2.want(t, d, "1 one", "2 two", "3 three")
			b2.want(t, d, "2 two", "3 three")
			if one, two := a2.ids["3 three"], b2.ids["3 three"]; one != two {
				t.Errorf("after %v the routes know a.log as %s and %s", late, one, two)
			}
		})
	}
}

// TestOnlyTheLedgerHasProgress checks a route that opens late with progress that the checkpoint
// lacks. With the option start: end, it skips no data of the files that were listed before it
// opened.
func TestOnlyTheLedgerHasProgress(t *testing.T) {
	for _, known := range []int{6, len(three)} { // bytes of the file when it got its id
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", three[:known])
			turns(t, 1, 2*time.Second, a)
			stop(t, a, b)
			d.put(t, "a.log", three[known:])
			for id := range a.marks {
				part := stream.Partition{ID: id}
				a.marks[id] = stream.Mark{Part: part, Watermark: stream.Position{Num: 6}}
			}
			d.put(t, "b.log", "4 four\n") // a file that is new
			d.routes = []string{"a", "b"}
			s := d.set(follow.Growing{FromEnd: true})
			s.BeginRun()
			t.Cleanup(s.EndRun)
			b2 := d.open(s, "b", nil)
			b2.run(t, time.Second)
			a2 := d.open(s, "a", a.marks)
			defer stop(t, a2, b2)
			turns(t, 2, time.Second, a2, b2)
			a2.want(t, d, "2 two", "3 three", "4 four")
			b2.want(t, d)
		})
	}
}

// TestRouteRestartsBeforeTheFirstListing checks a route that restarts before the first listing, and
// a rewritten file that only this route has read. The copy of the file is recognised, although it
// is looked at late.
func TestRouteRestartsBeforeTheFirstListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, b)
		stop(t, a, b)
		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		d.age(t, "a.log.1") // the file that changed last is looked at first
		d.put(t, "a.log", "0 zero\n")
		s := d.setOf(follow.Growing{}, 2)
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a2 := d.open(s, "a", a.marks)
		stop(t, d.open(s, "b", b.marks))
		b2 := d.open(s, "b", b.marks)
		defer stop(t, a2, b2)
		turns(t, 20, time.Second, a2, b2)
		a2.want(t, d, "0 zero", "1 one", "2 two", "3 three")
		b2.want(t, d, "0 zero")
		d.wantNoLoss(t)
	})
}

// TestDormantFileIsMovedWhileARouteRestarts checks a dormant file: one that all routes have
// delivered, and that is only listed. It is copied and deleted while a route restarts. Its copy
// must be recognised. As soon as the file cannot be compared with the copy, it awaits a successor.
func TestDormantFileIsMovedWhileARouteRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		s := d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a2, b2 := d.open(s, "a", a.marks), d.open(s, "b", b.marks)
		turns(t, 1, 2*time.Second, a2, b2)
		stop(t, b2)
		d.put(t, "a.log.1", three)
		d.then = func() { d.delete(t, "a.log") }
		b3 := d.open(s, "b", b.marks)
		defer stop(t, a2, b3)
		turns(t, 20, time.Second, a2, b3)
		wantLines(t, d, a2, b3)
		d.wantNoLoss(t)
	})
}

// TestRestoredFileIsListedBeforeTheRoutesOpen checks that a file restored under its old name is not
// delivered again. The source lists it before any route has opened. Its modification time, which is
// set before the routes open, shows that it is a copy.
func TestRestoredFileIsListedBeforeTheRoutesOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		d.remove(t, "a.log")
		d.put(t, "a.log", three)
		d.routes = []string{"a", "b"}
		d.setProgress("a", a.marks)
		d.setProgress("b", b.marks)
		s := d.set(follow.Growing{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		d.age(t, "a.log")
		a2, b2 := d.open(s, "a", a.marks), d.open(s, "b", b.marks)
		turns(t, 2, 3*time.Second, a2, b2)
		d.put(t, "a.log", "4 four\n")
		turns(t, 10, time.Second, a2, b2)
		wantLines(t, d, a2, b2, "4 four")
		stop(t, a2, b2)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestNewRouteMakesTheFirstListing checks that Run does not list the files just after a route has
// opened, because the route is about to list them itself.
func TestNewRouteMakesTheFirstListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		s := d.set(follow.Growing{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(900 * time.Millisecond) // Run is due after one second
		var listed atomic.Int64
		d.step = func() { listed.Add(1) }
		a2 := d.open(s, "a", a.marks)
		time.Sleep(200 * time.Millisecond)
		if listed.Load() > 0 {
			t.Error("Run has listed the files before the route could do so")
		}
		time.Sleep(2 * time.Second)
		if listed.Load() == 0 {
			t.Error("Run does not list the files although the route does not read")
		}
		b2 := d.open(s, "b", b.marks)
		turns(t, 2, 3*time.Second, a2, b2)
		wantLines(t, d, a2, b2)
		stop(t, a2, b2)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
