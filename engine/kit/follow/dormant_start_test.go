package follow_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// TestDormantAtStart starts a process. Its first route has delivered all of a file, so the file is
// dormant before the first listing. The second route may know the file in another way. Each route
// must read exactly the lines that it lacks.
func TestDormantAtStart(t *testing.T) {
	// again adds a second id of the file, as an old state may have it.
	again := func(t *testing.T, marks map[string]stream.Mark) {
		for text, m := range maps.Clone(marks) {
			id, err := fileid.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			id.Gen++
			m.Part.ID = id.String()
			marks[m.Part.ID] = m
		}
	}
	type marks = map[string]stream.Mark
	for name, c := range map[string]struct {
		change  func(t *testing.T, a, b marks)
		behind  bool // b lacks a line
		dormant int
	}{
		"equal":            {func(*testing.T, marks, marks) {}, false, 1},
		"no progress in b": {func(_ *testing.T, _, b marks) { clear(b) }, false, 1},
		"b is behind":      {func(*testing.T, marks, marks) {}, true, 1},
		"two ids in a":     {func(t *testing.T, a, _ marks) { again(t, a) }, false, 0},
		"two ids in b":     {func(t *testing.T, _, b marks) { again(t, b) }, false, 1},
		"other id in b": {func(t *testing.T, a, b marks) {
			again(t, b)
			for id := range a {
				delete(b, id)
			}
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", "1 one\n")
				turns(t, 1, 2*time.Second, a, b)
				d.put(t, "a.log", "2 two\n")
				turns(t, 1, 2*time.Second, a)
				if !c.behind {
					turns(t, 1, 2*time.Second, b)
				}
				stop(t, a, b)
				c.change(t, a.marks, b.marks)
				s := d.set(follow.Growing{})
				a2 := newRoute(t, s, a.marks)
				if got := s.Dormant(); got != c.dormant {
					t.Errorf("%d files are dormant, want %d", got, c.dormant)
				}
				b2 := newRoute(t, s, b.marks)
				turns(t, 2, 5*time.Second, a2, b2)
				d.put(t, "a.log", "3 three\n")
				turns(t, 2, 5*time.Second, a2, b2)
				a2.want(t, d, "3 three")
				switch {
				case len(b.marks) == 0:
					b2.want(t, d, "1 one", "2 two", "3 three")
				case c.behind:
					b2.want(t, d, "2 two", "3 three")
				default:
					b2.want(t, d, "3 three")
				}
			})
		})
	}
}

// TestRewrittenFileIsNotDormantAtStart starts a process with two ids of one inode in the progress.
// The file was rewritten in place before it was read to its end. All of its new data was delivered
// under the second id. The lost end of the old data must be reported.
func TestRewrittenFileIsNotDormantAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", "1 one\n2 tw") // the longer head sorts this id first
		turns(t, 1, 2*time.Second, a, b)
		d.empty(t, "a.log")
		d.put(t, "a.log", "3 three\n")
		turns(t, 2, time.Second, a, b)
		stop(t, a, b)
		s := d.set(follow.Growing{})
		a2 := newRoute(t, s, a.marks)
		if n := s.Dormant(); n != 0 {
			t.Errorf("%d files are dormant, want 0", n)
		}
		d.log.Reset()
		turns(t, 2, 20*time.Second, a2)
		if log := d.log.String(); !strings.Contains(log, "a file was rewritten in place") {
			t.Errorf("the rewritten file is not reported; the log:\n%s", log)
		}
		d.put(t, "a.log", "4 four\n")
		turns(t, 2, 5*time.Second, a2)
		a2.want(t, d, "4 four")
	})
}

// TestMovedFileIsNotDormantAtStart starts a process with two routes that have delivered all of a
// file. The progress of the second one names a copy of the file, which has replaced it for a while.
// Neither route may read the file again.
func TestMovedFileIsNotDormantAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.hidden = "old"
		d.put(t, "a.log", "1 one\n")
		d.age(t, "a.log")
		turns(t, 1, 2*time.Second, a, b)
		stop(t, a, b)
		d.rename(t, "a.log", "../a.log")
		d.put(t, "a.old", "1 one\n")
		d.age(t, "a.old")
		b = newRoute(t, d.set(follow.Growing{}), b.marks)
		turns(t, 1, 20*time.Second, b)
		stop(t, b)
		d.rename(t, "../a.log", "a.log")
		d.remove(t, "a.old")
		a2, b2 := d.restarted(t, a, b)
		turns(t, 5, 5*time.Second, a2, b2)
		d.put(t, "a.log", "2 two\n")
		turns(t, 2, 5*time.Second, a2, b2)
		wantLines(t, d, a2, b2, "2 two")
	})
}
