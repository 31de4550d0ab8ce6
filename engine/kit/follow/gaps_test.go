package follow_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// TestCopyIsShorterThanWhatWasRead checks a copy that lacks a line that the second route has read
// in the original. The first route recognises the copy. The second route must not read the copy
// again, but must continue with the new lines of the original.
func TestCopyIsShorterThanWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, time.Second, a, b)
		d.copyTruncate(t, "a.log", "a.log.1", func() {
			d.put(t, "a.log", "4 read by the second\n")
			b.run(t, 2*time.Second)
		})
		a.run(t, 2*time.Second) // before the second route has met the copy
		d.put(t, "a.log", "5 five\n")
		turns(t, 20, time.Second, b, a)
		// this line was lost before the first route looked
		a.lines = append(a.lines, "4 read by the second")
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 read by the second", "5 five")
	})
}

// TestEmptiedWhileItIsCompared checks that a copy is recognised if its original is emptied or
// rewritten while the two are compared, just before the original is read for this.
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

// TestComparedWithMoreThanMayBeOpen checks that a short file stays open while it is compared with
// more similar files than may be open at once.
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

// TestClosedFilesAreRecordedOnce checks files that are closed again and again, because few may be
// open. The list of closed files (handles.closedForRoom) must have each of them only once, although
// the list is not cleared while no route saves progress.
func TestClosedFilesAreRecordedOnce(t *testing.T) {
	for _, growing := range []*follow.Growing{{}, nil} {
		t.Run(fmt.Sprint("growing ", growing != nil), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const files = 5
				d, _, _ := twoRoutes(t, follow.Growing{})
				if growing != nil {
					growing.Siblings = d.siblings
				}
				s := follow.New(d, follow.Options{
					Rules: lines.Rules{MaxRecord: 1 << 10}, OpenFiles: 1, Growing: growing,
					PollMin: 100 * time.Millisecond, PollMax: time.Second, Settle: time.Second,
				}, d, d.Log())
				r := s.Open(stream.OpenOptions{})
				defer r.Close()
				for range 20 {
					for i := range files {
						d.put(t, fmt.Sprint(i, ".log"), "a line\n")
					}
					b := stream.NewBatch(stream.BatchLimits{})
					if err := r.Read(t.Context(), b); err != nil || len(b.Data) == 0 {
						t.Fatalf("Read: %q, %v", b.Data, err)
					}
				}
				want := files
				if growing == nil {
					want = 0
				}
				if got := s.ClosedForRoom(); got > want {
					t.Errorf("%d files are recorded, want at most %d", got, want)
				}
			})
		})
	}
}

// inodeMark returns the mark of an old file that had the present inode of name.
func (d *folder) inodeMark(t *testing.T, name string) stream.Mark {
	t.Helper()
	info, err := d.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	id := fileid.New(fileid.File{Dev: info.Dev, Ino: info.Ino, Birth: 1, Size: 4, Head: []byte("old\n")}, nil)
	return stream.Mark{Part: stream.Partition{ID: id.String(), Name: "old.log"}, Watermark: stream.Position{Num: 4}}
}

// TestCopyInAUsedInode checks a file that was copied and emptied while nothing ran. The copy has
// the inode of another file that still has a mark. The copy must be recognised, whichever of the
// two is read first.
func TestCopyInAUsedInode(t *testing.T) {
	for range 20 { // map order varies
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

// TestRewrittenFileHasOneID checks a route that starts late with a mark of a file that was
// rewritten. It must use the id that the other route has given to the present file.
func TestRewrittenFileHasOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		d.empty(t, "a.log")
		d.put(t, "a.log", "4 four\n")
		s := d.set(follow.Growing{})
		a2 := newRoute(t, s, a.marks)
		a2.run(t, 20*time.Second) // it no longer waits for a copy of the old data
		b2 := newRoute(t, s, b.marks)
		d.put(t, "a.log", "5 five\n") // an id given from now on hashes more
		turns(t, 10, time.Second, b2, a2)
		wantLines(t, d, a2, b2, "4 four", "5 five")
		if one, two := a2.ids["4 four"], b2.ids["4 four"]; one != two {
			t.Errorf("the routes know a.log as %s and %s", one, two)
		}
	})
}

// TestNewContentWasSavedBeforeTheCopyWasIdentified checks a process that is killed during a
// rotation. It has saved progress in the emptied file, but not yet the location of the copy. At the
// next start the file matches its saved progress, but its earlier content must still wait for the
// copy.
func TestNewContentWasSavedBeforeTheCopyWasIdentified(t *testing.T) {
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
			maps.Copy(r.marks, before) // the location of the data was not saved
		}
		a2, b2 := d.restarted(t, a, b)
		turns(t, 10, time.Second, a2, b2)
		wantLines(t, d, a2, b2)
	})
}

// TestCopyAmongManyAwaitingFiles checks that a copy is recognised among any number of awaited old
// rotations with names that begin like the name of the copy.
func TestCopyAmongManyAwaitingFiles(t *testing.T) {
	for range 5 { // map order varies
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

// TestRenamedAwayInAUsedInode checks a file with unread lines that was renamed to an unlisted name
// while nothing ran. An older file with the same inode still has a mark. Both files are awaited,
// and the found file is matched to the right one.
func TestRenamedAwayInAUsedInode(t *testing.T) {
	for range 20 { // map order varies
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

// TestRenamedAwayWithHardLink checks that a file with unread lines is read once to its end if it
// has got two names outside the listing while nothing ran.
func TestRenamedAwayWithHardLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.hidden = "old"
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		stop(t, a, b)
		d.put(t, "a.log", "4 four\n")
		link := filepath.Join(d.path, "a.log.old.1")
		if err := os.Link(filepath.Join(d.path, "a.log"), link); err != nil {
			t.Fatal(err)
		}
		d.rename(t, "a.log", "a.old")
		a2, b2 := d.restarted(t, a, b)
		turns(t, 10, time.Second, a2, b2)
		wantLines(t, d, a2, b2, "4 four")
	})
}

// TestQuietFileIsCopiedAndDeleted checks a file that was idle for longer than gone_wait before it
// was copied and deleted, as by a move to another file system. Its copy is recognised, because
// gone_wait begins only when the name is gone.
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

// TestCopyIsDeletedWhileItIsHeldBack checks two copies of a deleted file. One of them continues the
// file, and the other is held back: it is not read for the time copy_wait, because it may be a
// copy. One copy is deleted, and no route lists the files until this time is over, so that only the
// open handle shows the deletion. No line may be lost or delivered again.
func TestCopyIsDeletedWhileItIsHeldBack(t *testing.T) {
	for _, deleted := range []string{"a.log.1", "a.log.2"} {
		t.Run(deleted, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := earlierRun(t)
				d.put(t, "a.log.1", three)
				d.put(t, "a.log.2", three)
				d.remove(t, "a.log")
				a2, b2 := d.restarted(t, a, b)
				turns(t, 1, time.Second, a2, b2)
				d.delete(t, deleted)
				time.Sleep(30 * time.Second)
				turns(t, 20, time.Second, a2, b2)
				wantLines(t, d, a2, b2)
				d.wantNoLoss(t)
			})
		})
	}
}

// TestOnceReportsUnreadDeleted checks a file that was deleted after it was listed and before it was
// opened. A finite run (Once) does not end before it has reported the file, however long copy_wait
// is.
func TestOnceReportsUnreadDeleted(t *testing.T) {
	for _, wait := range []time.Duration{5 * time.Second, 5 * time.Minute} {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, _ := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three)
				d.then = func() { d.delete(t, "a.log") }
				r := d.set(follow.Growing{CopyWait: wait}).Open(stream.OpenOptions{Once: true})
				defer r.Close()
				err := r.Read(t.Context(), stream.NewBatch(stream.BatchLimits{}))
				if err != io.EOF {
					t.Errorf("Read: %v, want EOF", err)
				}
				const want = "is gone before anything of it was read, 20 bytes are lost"
				if !strings.Contains(d.log.String(), want) {
					t.Errorf("the loss is not reported; the log:\n%s", &d.log)
				}
			})
		})
	}
}

// TestOnceEndsWhileFilesAreReplaced checks a finite run (Once) while a name is given to new files
// again and again. Each is deleted before it is read. The run ends with an error.
func TestOnceEndsWhileFilesAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := twoRoutes(t, follow.Growing{})
		next := time.Now()
		d.pace = func() {
			if time.Now().After(next) {
				next = time.Now().Add(4 * time.Second)
				d.put(t, "a.log", three)
			}
		}
		d.put(t, "a.log", three)
		d.shut = func(string) error {
			d.remove(t, "a.log")
			return fs.ErrNotExist
		}
		r := d.set(follow.Growing{}).Open(stream.OpenOptions{Once: true})
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		err := r.Read(ctx, stream.NewBatch(stream.BatchLimits{}))
		const want = "were deleted or rewritten before they were read"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read: %v, want an error about deleted files; the log:\n%s", err, &d.log)
		}
	})
}
