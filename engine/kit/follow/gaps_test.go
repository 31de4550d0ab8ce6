package follow_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// The second route has read a line more of the original than the copy has when the first one takes
// the copy for the original's data. The second route has read all of the copy, and continues with
// the new lines.
func TestCopyIsShorterThanWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, time.Second, a, b)
		d.copyTruncate(t, "a.log", "a.log.1", func() {
			d.put(t, "a.log", "4 read by the second\n")
			b.run(t, 2*time.Second)
		})
		a.run(t, 2*time.Second) // before the second one has met the copy
		d.put(t, "a.log", "5 five\n")
		turns(t, 20, time.Second, b, a)
		// it existed nowhere when the first route looked
		a.lines = append(a.lines, "4 read by the second")
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 read by the second", "5 five")
	})
}

// A file is emptied, or rewritten, after it was looked at and before the copy that was made of it
// is compared with it.
func TestEmptiedWhileItIsCompared(t *testing.T) {
	for name, fresh := range map[string]string{"emptied": "", "rewritten": "4 four is as long as " +
		"what was there before\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three)
				turns(t, 1, 2*time.Second, a, b)
				d.put(t, "a.log.1", three)
				d.hook = func(name string) {
					if name == "a.log" {
						d.hook = nil
						d.empty(t, name)
						d.put(t, name, fresh)
					}
				}
				turns(t, 20, time.Second, a, b)
				want := []string{"1 one", "2 two", "3 three"}
				if fresh != "" {
					want = append(want, strings.TrimSpace(fresh))
				}
				wantLines(t, d, a, b, want...)
				if d.hook != nil {
					t.Error("nothing was compared")
				}
			})
		})
	}
}

// A file that says too little to be told from many others is compared with more of them than may be
// open: it stays open itself.
func TestComparedWithMoreThanMayBeOpen(t *testing.T) {
	for _, open := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(open, " open"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, _ := twoRoutes(t, follow.Growing{})
				s := d.setOf(follow.Growing{}, open)
				a, b := newRoute(t, s, nil), newRoute(t, s, nil)
				var want []string
				for i := range 25 {
					line := fmt.Sprintf("%02d is longer than what is new", i)
					d.put(t, fmt.Sprintf("a.log.%d", i), line+"\n")
					want = append(want, line)
				}
				turns(t, 1, 2*time.Second, a, b)
				d.put(t, "a.log.x", "9\n")
				turns(t, 10, time.Second, a, b)
				wantLines(t, d, a, b, append(want, "9")...)
			})
		})
	}
}

// inodeMark is a mark of a file of long ago that had the inode that name has now.
func (d *folder) inodeMark(t *testing.T, name string) stream.Mark {
	t.Helper()
	info, err := d.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	id := fileid.New(fileid.File{Dev: info.Dev, Ino: info.Ino, Birth: 1, Size: 4, Head: []byte("old\n")}, nil)
	return stream.Mark{Part: stream.Partition{ID: id.String(), Name: "old.log"}, Watermark: stream.Position{Num: 4}}
}

// A file was copied away and emptied while nothing ran, and the copy has the inode of a file that
// still has a mark. Whichever of the two is read first, the copy is recognised.
func TestCopyInAUsedInode(t *testing.T) {
	for range 20 { // the order is that of a map
		synctest.Test(t, func(t *testing.T) {
			d, a, b := earlierRun(t)
			d.copyTruncate(t, "a.log", "a.log.1", func() {})
			d.put(t, "a.log", "4 four\n")
			for _, r := range []*route{a, b} {
				m := d.inodeMark(t, "a.log.1")
				r.marks[m.Part.ID] = m
			}
			a2, b2 := d.restarted(t, a, b)
			turns(t, 10, time.Second, a2, b2)
			wantLines(t, d, a2, b2, "4 four")
		})
	}
}

// A route that is started later finds its mark of a rewritten file. It gives the present file the
// id that the other route has given it.
func TestRewrittenFileHasOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		d.empty(t, "a.log")
		d.put(t, "a.log", "4 four\n")
		s := d.set(follow.Growing{})
		a2 := newRoute(t, s, a.marks)
		a2.run(t, 20*time.Second) // it no longer waits for a copy of the old data
		b2 := newRoute(t, s, b.marks)
		d.put(t, "a.log", "5 five\n") // an id that is given now hashes more
		turns(t, 10, time.Second, b2, a2)
		wantLines(t, d, a2, b2, "4 four", "5 five")
		if one, two := a2.ids["4 four"], b2.ids["4 four"]; one != two {
			t.Errorf("the routes know a.log as %s and %s", one, two)
		}
	})
}

// The process is killed halfway through a rotation: the new content of the emptied file was saved,
// the location of the copy was not. At the next start the file matches its saved progress. That
// must not hide the earlier content, and the file waits for its copy.
func TestNewContentWasSavedBeforeTheCopyWasMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		before := maps.Clone(a.marks)
		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		d.put(t, "a.log", "4 four\n")
		turns(t, 10, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
		stop(t, a, b)
		for _, r := range []*route{a, b} {
			maps.Copy(r.marks, before) // where the data lies was not saved
		}
		a2, b2 := d.restarted(t, a, b)
		turns(t, 10, time.Second, a2, b2)
		wantLines(t, d, a2, b2)
	})
}

// However many rotations of long ago are waited for, of a name that begins as the copy's does, the
// copy is known.
func TestCopyAmongManyWidows(t *testing.T) {
	for range 5 { // the order is that of a map
		synctest.Test(t, func(t *testing.T) {
			d, a, b := earlierRun(t)
			for i := range 200 {
				id := fileid.New(fileid.File{Dev: 1, Ino: uint64(1 + i), Birth: 1, Size: 4,
					Head: fmt.Appendf(nil, "%03d\n", i)}, nil)
				m := stream.Mark{
					Part:      stream.Partition{ID: id.String(), Name: []string{"a.log", "a.log.2"}[i%2]},
					Watermark: stream.Position{Num: 4},
				}
				a.marks[m.Part.ID], b.marks[m.Part.ID] = m, m
			}
			d.copyTruncate(t, "a.log", "a.log.1", func() {})
			d.put(t, "a.log", "4 four\n")
			a2, b2 := d.restarted(t, a, b)
			turns(t, 10, time.Second, a2, b2)
			wantLines(t, d, a2, b2, "4 four")
		})
	}
}

// While nothing ran, a file with unread lines was renamed to an unlisted name, and a file that had
// its inode before still has a mark. Both are awaited, and the found file is matched to the right
// one.
func TestRenamedAwayInAUsedInode(t *testing.T) {
	for range 20 { // the order is that of a map
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.hidden = "old"
			d.put(t, "a.log", three)
			turns(t, 1, 2*time.Second, a, b)
			stop(t, a, b)
			d.put(t, "a.log", "4 four\n")
			m := d.inodeMark(t, "a.log")
			a.marks[m.Part.ID], b.marks[m.Part.ID] = m, m
			d.rename(t, "a.log", "a.old")
			a2, b2 := d.restarted(t, a, b)
			turns(t, 10, time.Second, a2, b2)
			wantLines(t, d, a2, b2, "4 four")
		})
	}
}

// A file that has not been written to for longer than gone_wait is moved to another file system, or
// compressed: the copy that takes its place is known, because gone_wait begins when the name is
// gone.
func TestQuietFileIsCopiedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 30, time.Second, a, b)
		d.put(t, "a.log.1", three)
		d.delete(t, "a.log")
		d.put(t, "a.log", "4 four\n")
		turns(t, 5, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
	})
}
