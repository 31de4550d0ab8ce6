package follow_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestGivenUpAndFoundByAnotherRoute checks a file that is copied and emptied before the second
// route has read any of it. The first route recognises the copy. The second route gives the
// original up and reads the copy as a separate file. Then the copy is copied again and the process
// restarts. The second route must resume from its progress in the first copy.
func TestGivenUpAndFoundByAnotherRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three[:len(three)-3])
		a.run(t, time.Second)
		d.put(t, "a.log", three[len(three)-3:])
		reads := 0
		d.hook = func(name string) { // the second route has read the head
			if reads++; reads == 2 {
				d.hook = nil
				d.copyTruncate(t, "a.log", "a.log.1", func() {})
			}
		}
		b.run(t, 10*time.Second)
		a.run(t, 2*time.Second)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		d.put(t, "a.log.1.2", three)
		a.run(t, time.Second)
		d.delete(t, "a.log.1")
		a.run(t, 2*time.Second)
		stop(t, a, b)

		a2, b2 := d.restarted(t, a, b)
		turns(t, 10, 2*time.Second, b2, a2)
		wantLines(t, d, a2, b2)
	})
}

// TestIdentifiedAfterAnotherRouteFoundIt checks a file that was moved before the second route first
// read it. The mark of the second route must name the location where the first route found the
// file, so that the next process finds it there.
func TestIdentifiedAfterAnotherRouteFoundIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		a.run(t, time.Second)
		d.put(t, "a.log.1", three)
		d.delete(t, "a.log")
		a.run(t, 2*time.Second)
		b.run(t, 2*time.Second)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		stop(t, a, b)

		a2, b2 := d.restarted(t, a, b)
		turns(t, 10, 2*time.Second, b2, a2)
		wantLines(t, d, a2, b2)
		if log := d.log.String(); strings.Contains(log, "rewritten") {
			t.Errorf("nothing was rewritten; the log:\n%s", log)
		}
		d.wantNoLoss(t)
	})
}

// TestIncompleteCopyOfDeletedFile checks that an incomplete copy of a deleted file is awaited, even
// if it is shorter than the bytes that the original's id hashes.
func TestIncompleteCopyOfDeletedFile(t *testing.T) {
	for name, made := range map[string]int{"a little": 3, "more than the id": 8} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three[:6])
				turns(t, 1, 2*time.Second, a, b)
				d.put(t, "a.log", three[6:])
				turns(t, 1, 2*time.Second, a, b)
				stop(t, a, b)
				d.put(t, "a.log.1", three[:made])
				d.delete(t, "a.log")
				a2, b2 := d.restarted(t, a, b)
				turns(t, 1, time.Second, b2, a2)
				d.put(t, "a.log.1", three[made:]+"4 four\n")
				turns(t, 20, time.Second, b2, a2)
				wantLines(t, d, a2, b2, "4 four")
				d.wantNoLoss(t)
			})
		})
	}
}

// TestRenamedWhileItIsSearchedFor checks that the search for an awaited file is repeated if the
// file is renamed after its folder was listed, but before the file is opened. It is repeated even
// if the next Read comes late.
func TestRenamedWhileItIsSearchedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		d.hidden = "old"
		d.put(t, "a.log", "4 four\n")
		d.rename(t, "a.log", "a.old")
		a2, b2 := d.restarted(t, a, b)
		d.shut = func(name string) error {
			if name == "a.old" {
				d.shut = nil
				d.rename(t, name, "a.older")
			}
			return nil
		}
		turns(t, 1, 100*time.Millisecond, a2, b2)
		time.Sleep(30 * time.Second) // no Read
		turns(t, 20, time.Second, a2, b2)
		if d.shut != nil {
			t.Error("nothing was searched for")
		}
		wantLines(t, d, a2, b2, "4 four")
		d.wantNoLoss(t)
	})
}

// TestIncompleteUnlistedCopy checks an incomplete copy with an unlisted name. It grows while the
// route looks at it to find the data of its original. Reading must continue at the last position
// that the route has read in the original, not at an earlier one.
func TestIncompleteUnlistedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r, other := twoRoutes(t, follow.Growing{})
		stop(t, other)
		d.hidden = "old"
		var batches []*stream.Batch // their marks are not saved yet
		for _, text := range []string{three[:6], three[6:]} {
			d.put(t, "a.log", text)
			b := stream.NewBatch(stream.BatchLimits{})
			if err := r.Read(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			batches = append(batches, b)
		}
		d.put(t, "a.log.old", three[:8])
		d.empty(t, "a.log")
		d.hook = func(name string) {
			if name == "a.log.old" {
				d.hook = nil
				d.put(t, name, three[8:])
			}
		}
		r.run(t, 20*time.Second)
		for _, b := range batches {
			r.deliver(b)
		}
		if d.hook != nil {
			t.Error("nothing was searched for")
		}
		r.want(t, d, "1 one", "2 two", "3 three")
		d.wantNoLoss(t)
	})
}

// TestEndedWhileItIsIdentified checks copies of copies, each deleted after it was copied. A copy
// that was deleted long ago, but is still open, must not be sealed (ended) before its own copy was
// looked at. Only this look shows that the deleted copy holds the data of the original file.
func TestEndedWhileItIsIdentified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log.1", three)
		d.delete(t, "a.log")
		b.run(t, 2*time.Second)
		stop(t, a, b)

		a2, b2 := d.restarted(t, a, b)
		b2.run(t, time.Second)
		// after the first listing, so that it is found as an unlisted file
		d.then = func() { d.put(t, "a.log.1.2", three) }
		a2.run(t, 4*time.Millisecond)
		b2.run(t, time.Second)
		d.delete(t, "a.log.1")
		b2.run(t, time.Second)
		d.put(t, "a.log.1.2.3", three)
		b2.run(t, 100*time.Millisecond)
		d.delete(t, "a.log.1.2")
		b2.run(t, time.Second)
		time.Sleep(30 * time.Second)
		turns(t, 20, time.Second, a2, b2)
		wantLines(t, d, a2, b2)
		d.wantNoLoss(t)
	})
}

// TestRewrittenWhileItIsIdentified checks a file that is rewritten between its identification and
// its reading. The new data is read as another file.
func TestRewrittenWhileItIsIdentified(t *testing.T) {
	for name, fromEnd := range map[string]bool{"read": false, "skipped": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, r, _ := twoRoutes(t, follow.Growing{FromEnd: fromEnd})
				d.put(t, "a.log", three[:12])
				reads := 0
				d.hook = func(string) {
					if reads++; reads == 2 {
						d.empty(t, "a.log")
						d.put(t, "a.log", "4 four\n5 and longer than what was there\n")
					}
				}
				r.run(t, 2*time.Second)
				d.put(t, "a.log", "6 six\n")
				r.run(t, 30*time.Second)
				r.want(t, d, "4 four", "5 and longer than what was there", "6 six")
				if log := d.log.String(); strings.Count(log, "rotated file continued") > 1 {
					t.Errorf("it is taken for what it was, again and again; the log:\n%.2000s", log)
				}
			})
		})
	}
}

// TestMovedSinceItWasListed checks a file that is moved to another file system just after a route
// has listed it. Another route finds it in its copy. The recorded link count is outdated and is
// refreshed, so the first route continues in the copy and does not treat the file as rewritten.
func TestMovedSinceItWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", "4 four\n")
		d.then = func() {
			d.put(t, "a.log.1", three+"4 four\n")
			d.delete(t, "a.log")
		}
		b.run(t, time.Second)
		turns(t, 20, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
		if was, is := b.ids["1 one"], b.ids["4 four"]; is != was {
			t.Errorf("what was added is in partition %s, want that of the file, %s; the log:\n%s", is, was, &d.log)
		}
	})
}

// TestFinishedFileIsFoundUnderAnyName checks a file that is copied three times. Two routes find its
// data in different copies, and one of them follows its copy as a separate file. The other route
// then finds the data in the third copy. That copy must not count as a completed partition: no line
// may be lost or delivered twice.
func TestFinishedFileIsFoundUnderAnyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		a2, b2 := d.restarted(t, a, b)
		d.put(t, "a.log", "4 four\n")
		turns(t, 1, time.Second, a2, b2)
		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		// The hook runs when the first route is about to find the file in a.log.1. The route then
		// has no time left for other files.
		d.hook = func(name string) {
			if name == "a.log.1" {
				d.hook = nil
				d.put(t, "a.log.2", three+"4 four\n")
				d.delete(t, "a.log.1")
				// it may be the beginning of a copy, so that the second route looks for its file
				d.put(t, "a.log", "5 five\n")
			}
		}
		turns(t, 1, time.Second, a2, b2)
		a2.run(t, time.Second)
		d.put(t, "a.log.3", three+"4 four\n")
		d.delete(t, "a.log.2")
		turns(t, 20, time.Second, a2, b2)
		wantLines(t, d, a2, b2, "4 four", "5 five")
		d.wantNoLoss(t)
	})
}

// TestKilledBeforeItForgot checks a process that is killed before it removes the mark of a deleted
// and completed file. The next process removes the mark at once, even in a finite run (Once).
func TestKilledBeforeItForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		a.run(t, time.Second)
		id := a.ids["1 one"]
		d.delete(t, "a.log")
		a.run(t, 30*time.Second)
		if !a.marks[id].Finished {
			t.Fatalf("the mark is %+v", a.marks[id])
		}
		stop(t, a, b)

		o := knows(a.marks)
		o.Once = true
		once := d.set(follow.Growing{}).Open(o)
		if err := once.Read(t.Context(), stream.NewBatch(stream.BatchLimits{})); err != io.EOF {
			t.Fatalf("Read of an empty folder: %v", err)
		}
		if got := once.Deleted(); !slices.Equal(got, []string{id}) {
			t.Errorf("forgotten at the end: %q, want %q", got, id)
		}
		if err := once.Close(); err != nil {
			t.Fatal(err)
		}

		d.put(t, "a.log", "4 four\n")
		a2, b2 := d.restarted(t, a, b)
		turns(t, 5, 2*time.Second, a2, b2)
		if got := a2.Deleted(); !slices.Equal(got, []string{id}) {
			t.Errorf("forgotten: %q, want %q", got, id)
		}
		wantLines(t, d, a2, b2, "4 four")
	})
}

// TestKilledBeforeItForgotFromEnd checks that with start: end the mark of a deleted and completed
// file is kept until Reader.sweep finds it. A process without any mark would behave as at its very
// first start, and would skip all lines that were written since the previous run.
func TestKilledBeforeItForgotFromEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{FromEnd: true})
		d.put(t, "a.log", three[:6])
		a.run(t, time.Second)
		d.put(t, "a.log", three[6:])
		a.run(t, time.Second)
		d.delete(t, "a.log")
		a.run(t, 30*time.Second)
		stop(t, a, b)
		for range 2 {
			a2 := newRoute(t, d.set(follow.Growing{FromEnd: true}), a.marks)
			a2.run(t, time.Second)
			if got := a2.Deleted(); len(got) > 0 {
				t.Errorf("forgotten: %q", got)
			}
			stop(t, a2)
		}
		a.want(t, d, "2 two", "3 three")
		d.put(t, "a.log", "4 four\n")
		a2 := newRoute(t, d.set(follow.Growing{FromEnd: true}), a.marks)
		a2.run(t, 10*time.Second)
		a2.want(t, d, "4 four")
	})
}
