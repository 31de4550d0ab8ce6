package spooldir_test

import (
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
)

// copyAll copies a directory with cp and the given flag: -a keeps the times of files, -r does not.
// The copies have other inodes and birth times. A swapFS can also give them another device.
func copyAll(t *testing.T, from, to, flag string) {
	t.Helper()
	if out, err := exec.Command("cp", flag, from+"/.", to).CombinedOutput(); err != nil {
		t.Skipf("skipped: cp %s: %v\n%s", flag, err, out)
	}
}

// TestCopiedDirectory checks a spool directory that is copied, with its state, to another machine
// and then to a third one. Delivered files are delivered again only if cp has changed their times
// and the option identity is `auto`. The rest of a half-delivered file and new files are read. A
// file rewritten under its old name is a new file.
func TestCopiedDirectory(t *testing.T) {
	for _, c := range []struct {
		name, identity, flag string
		again                bool // the files are delivered again
	}{
		{"cp -a", "auto", "-a", false}, {"cp -r", "auto", "-r", true},
		{"cp -a, by content", "content", "-a", false}, {"cp -r, by content", "content", "-r", false},
	} {
		for _, finished := range []string{"keep", "rename"} {
			if c.again && finished == "rename" {
				continue
			}
			t.Run(c.name+", "+finished, func(t *testing.T) {
				dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
				synctest.Test(t, func(t *testing.T) { copiedTwice(t, dirs, c.identity, c.flag, finished, c.again) })
			})
		}
	}
}

// longText returns a text that is longer than a batch.
func longText() string {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "line %d of a file that is longer than a batch\n", i)
	}
	return b.String()
}

func copiedTwice(t *testing.T, dirs []string, identity, flag, finished string, again bool) {
	change := func(o *spooldir.Options) { o.Finished, o.Identity, o.Order = finished, identity, "name" }
	files := &swapFS{FS: connectortest.FS(), before: func(string) {}}
	long := longText()
	put(t, dirs[0], "a.log", "a\n")
	put(t, dirs[0], "b.log", long)
	put(t, dirs[0], "c.log.gz", pack(t, ".gz", long))
	w := newFixture(t, dirs[0], files, change)
	w.limits.Bytes = 1 << 10
	w.finish = finished == "keep" // else the process ends before
	w.open(false)
	w.pump(5 * time.Second)
	put(t, dirs[0], "d.log", long) // half of it is read
	half := newFixture(t, dirs[0], files, change)
	half.store, half.limits.Bytes, half.finish = w.store, 1<<10, w.finish
	w.close()
	half.open(false)
	for len(half.store.data) < 4 {
		if err := half.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	half.close()
	want := []string{"a.log: a\n", "b.log: " + long, "c.log.gz: " + long, "d.log: " + long}
	store := half.store
	for i, dir := range dirs[1:] {
		files.dev = 1000 * uint64(i+1)
		copyAll(t, dirs[i], dir, flag)
		next := newFixture(t, dir, files, change)
		next.store = store
		next.open(false)
		next.pump(5 * time.Second)
		next.close()
		if again {
			if len(next.texts()) != 8 {
				t.Errorf("copies without their times: %d partitions, want 8", len(next.texts()))
			}
			return
		}
		wantAll(t, next, want)
	}
	if finished == "keep" { // another file of the same name and length
		path := filepath.Join(dirs[2], "a.log")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		put(t, dirs[2], "a.log", "A\n")
		last := newFixture(t, dirs[2], files, change)
		last.store = store
		last.open(false)
		last.pump(5 * time.Second)
		last.close()
		wantAll(t, last, append(want, "a.log: A\n"))
	}
}

// wantAll compares the delivered texts, in any order.
func wantAll(t *testing.T, w *fixture, want []string) {
	t.Helper()
	short := func(texts []string) (out []string) {
		for _, text := range texts {
			out = append(out,
				fmt.Sprintf("%.20q and so on, %d bytes, %08x", text, len(text), crc32.ChecksumIEEE([]byte(text))))
		}
		slices.Sort(out)
		return out
	}
	if got, want := short(w.texts()), short(want); !slices.Equal(got, want) {
		t.Errorf("delivered\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), w.host.Logged())
	}
}
