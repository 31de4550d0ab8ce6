package spooldir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// swapFS is a file system with a hook: each operation on a file beneath a directory first calls the
// function swapFS.before. It adds dev to device numbers, as if the file system was mounted again.
type swapFS struct {
	vfs.FS
	before func(name string)
	listed func() // called after each listing; may be nil
	dev    uint64
}

func (s *swapFS) OpenDir(path string) (vfs.Dir, error) {
	d, err := s.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return swapDir{d, s}, nil
}

type swapDir struct {
	vfs.Dir
	of *swapFS
}

func (d swapDir) Stat(name string) (vfs.Info, error) {
	d.of.before(name)
	info, err := d.Dir.Stat(name)
	info.Dev += d.of.dev
	return info, err
}

func (d swapDir) Open(name string) (vfs.File, error) {
	d.of.before(name)
	f, err := d.Dir.Open(name)
	if err != nil {
		return nil, err
	}
	return swapFile{f, d.of}, nil
}

func (d swapDir) Entries(name string) ([]vfs.Entry, error) {
	d.of.before(name)
	entries, err := d.Dir.Entries(name)
	if d.of.listed != nil {
		d.of.listed()
	}
	return entries, err
}

func (d swapDir) Remove(name string) error {
	d.of.before(name)
	return d.Dir.Remove(name)
}

type swapFile struct {
	vfs.File
	of *swapFS
}

func (f swapFile) Stat() (vfs.Info, error) {
	info, err := f.File.Stat()
	info.Dev += f.of.dev
	return info, err
}

func (d swapDir) RenameNew(from string, to vfs.Dir, name string) error {
	d.of.before(from)
	return d.Dir.RenameNew(from, to.(swapDir).Dir, name)
}

// TestNameTakenWhileFileIsFinished checks a writer that renames another file to the name of a file
// that is being finished, before each file operation of Finish. The new file is read, and only the
// old one is deleted.
func TestNameTakenWhileFileIsFinished(t *testing.T) {
	for _, finished := range []string{"delete", "rename"} {
		for swaps := 1; swaps <= 2; swaps++ {
			last := false
			for nth := 1; !last; nth++ {
				t.Run(fmt.Sprintf("%s %d at call %d", finished, swaps, nth), func(t *testing.T) {
					dir := t.TempDir()
					synctest.Test(t, func(t *testing.T) { last = nameTaken(t, dir, finished, nth, swaps) })
				})
			}
		}
	}
}

// nameTaken replaces the file before the nth file operation of Finish. With two swaps, it replaces
// the file once more before the next operation. It returns true if Finish has fewer than n
// operations.
func nameTaken(t *testing.T, dir, finished string, nth, swaps int) (none bool) {
	calls, counting := 0, false
	want := []string{"a.log: 0\n"}
	files := &swapFS{FS: connectortest.FS()}
	files.before = func(string) {
		if !counting {
			return
		}
		if calls++; calls < nth || calls >= nth+swaps {
			return
		}
		text := fmt.Sprintf("%d\n", calls)
		put(t, dir, ".new", text)
		if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "a.log")); err != nil {
			t.Fatal(err)
		}
		want = append(want, "a.log: "+text)
	}
	w := newFixture(t, dir, files, func(o *spooldir.Options) {
		o.Finished, o.QuietPeriod = finished,
			time.Second
	})
	put(t, dir, "a.log", "0\n")
	w.finish = false
	w.open(false)
	defer w.close()
	w.pump(5 * time.Second)
	w.finish, counting = true, true
	w.finishAll()
	counting = false
	w.pump(time.Minute)
	// overwritten by the writer itself
	lost := len(want) == 3 && !slices.Contains(w.texts(), want[1])
	if lost {
		want = slices.Delete(want, 1, 2)
	}
	got := slices.Sorted(slices.Values(w.texts()))
	for i, text := range got {
		name, rest, _ := strings.Cut(text, ": ")
		got[i] = strings.TrimSuffix(name, ".done") + ": " + rest
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q; the log:\n%s", got, want, w.host.Logged())
	}
	for _, name := range w.ls() {
		if strings.HasPrefix(name, ".penstock-delete") || finished == "delete" {
			t.Errorf("%s is left", name)
		}
	}
	return calls < nth
}

// TestListingWhileFileIsFinished checks a grown file that Finish renames and renames back, while a
// listing in between misses it. The file does not count as deleted, and only the rest of it is
// delivered.
func TestListingWhileFileIsFinished(t *testing.T) {
	for _, finished := range []string{"delete", "rename"} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, name taken: %v", finished, taken), func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) { listedMeanwhile(t, dir, finished, taken) })
			})
		}
	}
}

// listedMeanwhile calls Finish for a.log, which has grown, and lists the directory while Finish has
// given a.log another name. If taken is set, another file gets the name a.log meanwhile.
func listedMeanwhile(t *testing.T, dir, finished string, taken bool) {
	listed, listing := make(chan struct{}), false
	files := &swapFS{FS: connectortest.FS()}
	files.listed = func() {
		if listing {
			listing = false
			close(listed)
		}
	}
	files.before = func(name string) {
		if listing && (strings.HasSuffix(name, ".done") || strings.HasPrefix(name, ".penstock-delete")) {
			<-listed
		}
	}
	w := newFixture(t, dir, files, func(o *spooldir.Options) {
		o.Finished, o.QuietPeriod = finished,
			time.Second
	})
	path := put(t, dir, "a.log", "one\n")
	w.finish = false
	w.open(false)
	defer w.close()
	w.pump(5 * time.Second)
	appendTo(t, path, "two\n")
	listing = true
	done := make(chan error)
	for _, p := range w.pending {
		go func() { done <- w.src.(stream.Finisher).Finish(t.Context(), p) }()
	}
	synctest.Wait() // a.log has another name now
	want := []string{"a.log: one\ntwo\n"}
	if taken {
		put(t, dir, "a.log", "three\n")
		want = append(want, "a.log: three\n")
	}
	w.pump(2 * time.Second)
	if err := <-done; err == nil && !taken {
		t.Error("a file that has grown was finished")
	}
	w.finish = true
	w.pump(time.Minute)
	got := w.texts()
	for i := range got {
		got[i] = strings.Replace(got[i], ".done", "", 1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q; the log:\n%s", got, want, w.host.Logged())
	}
	for _, name := range w.ls() {
		if strings.HasPrefix(name, ".penstock-delete") || finished == "delete" {
			t.Errorf("%s is left", name)
		}
	}
}

// TestDeletionInterrupted checks a process that is killed between the two steps of a deletion and
// leaves a hidden file. The next process deletes it, or renames it back if it is another file.
func TestDeletionInterrupted(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		change := func(o *spooldir.Options) { o.Finished = "delete" }
		bubble(t, change, func(t *testing.T, w *fixture) {
			path := put(t, w.dir, "a.log", "a\n")
			w.finish = false
			w.open(false)
			w.pump(5 * time.Second)
			w.close()
			if foreign {
				put(t, w.dir, ".new", "b\n")
				if err := os.Rename(filepath.Join(w.dir, ".new"), path); err != nil {
					t.Fatal(err)
				}
			}
			for id, p := range w.pending {
				aside := spooldir.AsideName(p, "a.log")
				if err := os.Rename(path, filepath.Join(w.dir, aside)); err != nil {
					t.Fatal(id, err)
				}
			}
			w.finish = true
			w.open(false)
			defer w.close()
			w.pump(time.Minute)
			want := []string{"a.log: a\n"}
			if foreign {
				want = append(want, "a.log: b\n")
			}
			w.want(want...)
			w.wantFiles()
		})
	}
}

// TestNewDeviceNumber checks that nothing is delivered twice if a file system is mounted again
// under another device number.
func TestNewDeviceNumber(t *testing.T) {
	for _, finished := range []string{"keep", "rename"} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			files := &swapFS{FS: connectortest.FS(), before: func(string) {}}
			change := func(o *spooldir.Options) { o.Finished = finished }
			put(t, dir, "a.log", "a\n")
			put(t, dir, "b.log", "b\n")
			w := newFixture(t, dir, files, change)
			w.finish = finished == "keep" // else the process ends before
			w.open(false)
			w.pump(5 * time.Second)
			w.close()
			want := []string{"a.log: a\n", "b.log: b\n"}
			w.want(want...)
			for by := range uint64(2) {
				files.dev = 1000 * (by + 1)
				name := fmt.Sprintf("c%d.log", by)
				put(t, dir, name, "c\n")
				again := newFixture(t, dir, files, change)
				again.store = w.store
				again.open(false)
				again.pump(5 * time.Second)
				again.close()
				want = append(want, name+": c\n")
				again.want(want...)
			}
		})
	}
}
