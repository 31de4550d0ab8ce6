package follow_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestCopyIsMadeWhileItIsLookedAt checks that no line is delivered twice if the copy of a log is
// incomplete when it is listed. When a route first opens the copy, the copy is completed and the
// log is emptied. Only then are the two files compared.
func TestCopyIsMadeWhileItIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log.1", three[:9])
		d.hook = func(name string) {
			if name == "a.log.1" {
				d.hook = nil
				d.put(t, "a.log.1", three[9:])
				d.empty(t, "a.log")
			}
		}
		turns(t, 20, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
	})
}

// TestCopyIsMadeWholeWhileItIsLookedAt checks that no line is delivered twice if the copy of a log
// is completed while a route looks at it. The log is emptied at the same moment, just after the
// routes have read it to its end.
func TestCopyIsMadeWholeWhileItIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three[:12])
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", three[12:])
		d.put(t, "a.log.1", three[:15])
		d.hook = func(name string) {
			if name == "a.log.1" {
				d.hook = nil
				d.put(t, "a.log.1", three[15:])
				d.empty(t, "a.log")
			}
		}
		a.run(t, time.Second)
		turns(t, 20, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
	})
}

// TestIncompleteCopyOfRewritten checks that the copy of an emptied file is recognised even if it is
// incomplete when first listed. It may even be shorter than the bytes that identify the emptied
// file. A short file that begins differently is read at once.
func TestIncompleteCopyOfRewritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.empty(t, "a.log")
		d.put(t, "a.log.1", three[:9])
		d.put(t, "a.log.new", "4 four\n")
		turns(t, 1, 2*time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
		d.put(t, "a.log.1", three[9:])
		turns(t, 20, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
	})
}

// TestMissedFileIsReadLate checks a file of an earlier run that was renamed, and that the first
// listing misses. The route finds it, but is busy for longer than gone_wait, the time after which a
// file without a name is sealed (ended). This file still has a name, so it must be read to its end,
// and must not be sealed.
func TestMissedFileIsReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := earlierRun(t)
		d.put(t, "a.log", "4 four\n")
		d.rename(t, "a.log", "a.log.1")
		d.put(t, "0.log", strings.Repeat("0 much\n", 100))
		d.age(t, "0.log")
		d.hidden = "a.log.1"
		d.then = func() { d.hidden = "" }
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		if err := r.Read(t.Context(), stream.NewBatch(stream.BatchLimits{Bytes: 64})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // no Read
		turns(t, 20, time.Second, r)
		d.put(t, "a.log.1", "5 five\n")
		turns(t, 2, time.Second, r)
		r.lines = slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
		r.want(t, d, "4 four", "5 five")
	})
}

// TestDeletedAfterItWasListed checks a file that both routes have read and that is copied. If the
// file is deleted just after it was listed together with the copy, both routes continue in the
// copy.
func TestDeletedAfterItWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log.1", three)
		d.then = func() { d.delete(t, "a.log") }
		turns(t, 40, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		if strings.Contains(d.log.String(), "before anything of it was read") {
			t.Errorf("a file that was read is said to be lost; the log:\n%s", &d.log)
		}
	})
}

// TestUnlistedFileIsMoved checks a file that is renamed to an unlisted name (one that the source
// does not read) while nothing runs. The routes find it under this name. Then it is moved, that is,
// copied to a listed name and deleted. Reading must continue in the copy, not through the handle of
// the deleted file.
func TestUnlistedFileIsMoved(t *testing.T) {
	for name, gap := range map[string]time.Duration{"at once": 0, "slowly": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := earlierRun(t)
				d.hidden = "old"
				d.rename(t, "a.log", "a.old")
				a2, b2 := d.restarted(t, a, b)
				turns(t, 2, time.Second, a2, b2)
				d.put(t, "a.log.1", three)
				if gap > 0 {
					turns(t, 1, gap, a2, b2)
				}
				d.delete(t, "a.old")
				turns(t, 1, 2*time.Second, a2, b2)
				d.put(t, "a.log.1", "4 four\n")
				turns(t, 40, time.Second, b2, a2)
				wantLines(t, d, a2, b2, "4 four")
			})
		})
	}
}

// TestDeletedSinceTheListing checks a file that is copied and deleted just after it was listed. Its
// recorded link count is then outdated. The deletion must be noticed when the copy is compared with
// the file.
func TestDeletedSinceTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", "4 four\n")
		d.then = func() {
			d.put(t, "a.log.1", three+"4 four\n")
			d.delete(t, "a.log")
		}
		turns(t, 40, time.Second, b, a)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
		if log := d.log.String(); strings.Contains(log, "old content is lost") {
			t.Errorf("a file that was deleted is said to be rewritten; the log:\n%s", log)
		}
		d.wantNoLoss(t)
	})
}
