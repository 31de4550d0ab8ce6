package tail

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/vfs"
)

// slowFS blocks each OpenDir until let is closed.
type slowFS struct {
	vfs.FS
	once    sync.Once
	entered chan struct{}
	let     chan struct{}
}

func (s *slowFS) OpenDir(name string) (vfs.Dir, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.let
	return s.FS.OpenDir(name)
}

// TestListingsAtOnce checks that two routes that list for the first time at once see the same
// files. Otherwise one could see an empty folder while the other is opening it. All files of
// earlier runs would then count as deleted, and be delivered again when they are found.
func TestListingsAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.log"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	slow := &slowFS{FS: connectortest.FS(), entered: make(chan struct{}), let: make(chan struct{})}
	p := newPlace(Options{Include: []string{filepath.Join(dir, "*.log")}}, slow, nil)
	list := func(done chan<- int) {
		n := 0
		if err := p.List(func(follow.Listed) { n++ }, func(string, string) {}); err != nil {
			t.Errorf("List: %v", err)
		}
		done <- n
	}
	first, second := make(chan int, 1), make(chan int, 1)
	go list(first)
	<-slow.entered
	go list(second)
	late := time.NewTimer(100 * time.Millisecond)
	defer late.Stop()
	got := -1
	select {
	case got = <-second:
	case <-late.C: // expected: it waits for the first
	}
	close(slow.let)
	if got < 0 {
		got = <-second
	}
	if n := <-first; n != 1 || got != 1 {
		t.Errorf("two listings at once saw %d and %d files, want 1 each", n, got)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestFolderIncluded checks that a glob that names a folder is reported, since no file matches it.
func TestFolderIncluded(t *testing.T) {
	dir := t.TempDir()
	p := newPlace(Options{Include: []string{dir}}, connectortest.FS(), nil)
	var got []string
	if err := p.List(func(follow.Listed) {}, func(label, why string) {
		got = append(got, label+": "+why)
	}); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s: it is a folder; include %[1]s/* to read its files", filepath.ToSlash(dir))
	if !slices.Equal(got, []string{want}) {
		t.Errorf("refused %q, want %q", got, want)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestExcludedByPath checks that a relative glob with a slash is compared with the whole path.
func TestExcludedByPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"a.log", "b.log"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []Options{
		{Include: []string{"*.log"}, Exclude: []string{filepath.Join(dir, "b.log")}},
		{Include: []string{filepath.Join(dir, "*.log")}, Exclude: []string{"./b.log"}},
	} {
		p := newPlace(o, connectortest.FS(), nil)
		var got []string
		if err := p.List(func(f follow.Listed) { got = append(got, f.Name) }, nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []string{"a.log"}) {
			t.Errorf("%q without %q: found %q, want only a.log", o.Include, o.Exclude, got)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMatch checks that follow.Match, which has a shortcut for patterns such as "*.log", has the
// same result as path.Match.
func TestMatch(t *testing.T) {
	patterns := []string{"*", "*.log", "*.gz", "*~", "*.l?g", "*a*", "", "a.log", "*/", "*/a.log", `*\.log`, "*[a"}
	for _, pattern := range patterns {
		for _, name := range []string{"", ".log", "a.log", "a/b.log", "a/", "log", "a.gz", "a~", "ab", "[a", "*.log"} {
			want, err := path.Match(pattern, name)
			if got := follow.Match(pattern, name); got != (want && err == nil) {
				t.Errorf("Match(%q, %q) = %v, want %v", pattern, name, got, want && err == nil)
			}
		}
	}
}
