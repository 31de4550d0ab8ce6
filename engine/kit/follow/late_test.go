package follow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestCopyIsLookedAtLate checks that no line is delivered twice if a busy route reaches the copy of
// a file long after it has listed the copy. By then the wait for the file's successor is over, and
// the copy has been renamed.
func TestCopyIsLookedAtLate(t *testing.T) {
	for _, moves := range []int{0, 1, 2} { // how often the copy is renamed meanwhile
		t.Run(fmt.Sprint(moves, " renames"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := earlierRun(t)
				d.put(t, "a.log.1", three+"4 four\n")
				d.put(t, "0.log", strings.Repeat("0 much\n", 100))
				d.remove(t, "a.log")
				d.age(t, "0.log")
				r := newRoute(t, d.set(follow.Growing{}), a.marks)
				for move := range moves + 1 {
					b := stream.NewBatch(stream.BatchLimits{Bytes: 64})
					if err := r.Read(t.Context(), b); err != nil || !strings.HasPrefix(string(b.Data), "0 much") {
						t.Fatalf("the first batches are %q, %v", b.Data, err)
					}
					time.Sleep(time.Minute) // no Read
					if move < moves {
						d.rename(t, fmt.Sprint("a.log.", move+1), fmt.Sprint("a.log.", move+2))
					}
				}
				turns(t, 20, time.Second, r)
				r.lines = slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
				r.want(t, d, "4 four")
			})
		})
	}
}

// TestRenamedFileIsLookedAtLate checks a file of an earlier run that the first listing misses,
// because it is just being renamed. The route is busy until the waiting time for the file is over.
// It must then find the file under its new name, and must not give it up.
func TestRenamedFileIsLookedAtLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.7.x", three)
		a.run(t, 2*time.Second)
		stop(t, a, b)
		away := filepath.Join(t.TempDir(), "away")
		d.put(t, "a.7.x", "4 four\n")
		d.put(t, "0.log", strings.Repeat("0 much\n", 100))
		d.age(t, "0.log")
		if err := os.Rename(filepath.Join(d.path, "a.7.x"), away); err != nil {
			t.Fatal(err)
		}
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		if err := r.Read(t.Context(), stream.NewBatch(stream.BatchLimits{Bytes: 64})); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(away, filepath.Join(d.path, "a.26.x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // no Read
		turns(t, 20, time.Second, r)
		r.lines = slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
		r.want(t, d, "4 four")
	})
}

// TestOriginalIsGoneWhenItsCopyIsLookedAt checks that a busy route recognises the copy of a known
// file. Both were listed together, but the file was deleted before the route came to the copy. The
// file was not open.
func TestOriginalIsGoneWhenItsCopyIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := earlierRun(t)
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		r.run(t, time.Second)
		d.put(t, "a.log.1", three)
		d.put(t, "0.log", strings.Repeat("0 much\n", 100))
		d.age(t, "0.log")
		for range 2 {
			b := stream.NewBatch(stream.BatchLimits{Bytes: 64})
			if err := r.Read(t.Context(), b); err != nil || !strings.HasPrefix(string(b.Data), "0 much") {
				t.Fatalf("the first batches are %q, %v", b.Data, err)
			}
			time.Sleep(time.Minute) // no Read
		}
		d.remove(t, "a.log")
		turns(t, 20, time.Second, r)
		r.lines = slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
		r.want(t, d)
	})
}

// TestDeletedFileEndsLate checks that an open deleted file is not sealed before its copy was looked
// at, even if a busy route comes to the copy only after gone_wait.
func TestDeletedFileEndsLate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		early  bool // the copy is listed together with its original
		second bool // another route has little to send
	}{
		{"listed together", true, false}, {"listed later", false, false},
		{"listed together, two routes", true, true}, {"listed later, two routes", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, r, second := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three)
				turns(t, 1, 2*time.Second, r, second)
				d.put(t, "0.log", strings.Repeat("0 much\n", 50))
				d.age(t, "0.log")
				d.put(t, "a.log.1", three+"4 four\n")
				if !tt.early {
					d.hidden = "a.log.1"
					d.delete(t, "a.log")
				}
				for turn := range 2 {
					b := stream.NewBatch(stream.BatchLimits{Bytes: 10})
					if err := r.Read(t.Context(), b); err != nil || !strings.HasPrefix(string(b.Data), "0 much") {
						t.Fatalf("the first batches are %q, %v", b.Data, err)
					}
					if tt.early && turn == 0 {
						d.delete(t, "a.log")
					}
					d.hidden = ""
					if time.Sleep(time.Minute / 2); tt.second { // no Read
						second.run(t, time.Minute/2)
					}
				}
				turns(t, 40, time.Second, r, second)
				for _, r := range []*route{r, second} {
					r.lines = slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
				}
				wantLines(t, d, r, second, "1 one", "2 two", "3 three", "4 four")
			})
		})
	}
}

// TestRenamedInEachListing checks that a file is not sealed at the end of gone_wait if two listings
// missed it because it was renamed during each. The route is busy in between. The file has a listed
// name.
func TestRenamedInEachListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a, b)
		for i, wait := range []time.Duration{time.Minute, 0} {
			d.hidden = fmt.Sprint("a.log.", i+1)
			d.rename(t, []string{"a.log", "a.log.1"}[i], d.hidden)
			d.then = func() { d.hidden = "" }
			a.run(t, 50*time.Millisecond) // no Read until a listing has it
			time.Sleep(wait)
		}
		turns(t, 30, time.Second, a, b)
		d.put(t, "a.log.2", "4 four\n")
		turns(t, 5, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 four")
	})
}

// TestRewrittenFileIsReadLate checks an emptied file that was written to and renamed to an unlisted
// name when the wait for its old data ends. The route is busy until the process ends. The next
// process can recognise the file only by the old mark, and must deliver the new line.
func TestRewrittenFileIsReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := twoRoutes(t, follow.Growing{})
		d.hidden = "old"
		d.put(t, "a.log", three)
		turns(t, 1, 2*time.Second, a)
		d.empty(t, "a.log")
		turns(t, 1, time.Second, a)
		time.Sleep(time.Minute) // no Read
		d.put(t, "a.log", "4 four\n")
		d.rename(t, "a.log", "a.old")
		d.put(t, "0.log", strings.Repeat("0 much\n", 100))
		d.age(t, "0.log")
		b := stream.NewBatch(stream.BatchLimits{Bytes: 64})
		if err := a.Read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		a.deliver(b)
		stop(t, a)
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		turns(t, 20, time.Second, r)
		r.lines = slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
		r.want(t, d, "4 four")
	})
}

// TestManyRenamedFilesEndTogether checks many files that are renamed to unlisted names at once.
// When their waiting times end together, their directory is read a few times, not once per file.
func TestManyRenamedFilesEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const files, most = 100, 10
		d, a, b := twoRoutes(t, follow.Growing{})
		stop(t, b)
		d.hidden = ".old"
		for n := range files {
			d.put(t, fmt.Sprintf("%03d.log", n), fmt.Sprintf("%d one\n", n))
		}
		turns(t, 3, time.Second, a)
		for n := range files {
			d.rename(t, fmt.Sprintf("%03d.log", n), fmt.Sprintf("%03d.log.old", n))
		}
		turns(t, 15, time.Second, a)
		listings := 0
		d.pace = func() { listings++; time.Sleep(10 * time.Millisecond) }
		turns(t, 15, time.Second, a)
		d.pace = nil
		if len(a.lines) != files {
			t.Errorf("%d lines", len(a.lines))
		}
		if listings > most {
			t.Errorf("the directory was gone through %d times unlisted its listings", listings)
		}
	})
}
