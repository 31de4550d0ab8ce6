package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func mustOpen(t *testing.T, system vfs.FS, path string) *File {
	t.Helper()
	f, err := OpenIn(system, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func mustHold(t *testing.T, f *File, want mark) {
	t.Helper()
	watermark, above, err := f.Load(t.Context())
	if err != nil || watermark != want.watermark || !slices.Equal(above, want.above) {
		t.Fatalf("Load = %v %v, %v; want %v", watermark, above, err, want)
	}
}

// TestFile checks on the real file system that Load returns the progress saved last, in this
// program and in the next one.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, f, mark{})
	for _, g := range goldens {
		if err := f.Save(t.Context(), g.mark.watermark, g.mark.above); err != nil {
			t.Fatal(err)
		}
		mustHold(t, f, g.mark)
		if text, err := os.ReadFile(path); err != nil || string(text) != g.text {
			t.Errorf("the file is %q, %v; want %q", text, err, g.text)
		}
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Errorf("Close, twice: %v", err)
	}
	if _, _, err := f.Load(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	if err := f.Save(t.Context(), at(1), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Save after Close: %v", err)
	}
	mustHold(t, mustOpen(t, vfs.OS(), path), goldens[len(goldens)-1].mark)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v; want mark and its lock", entries, err)
	}
}

// TestLocked checks that two programs cannot have the file open at once.
func TestLocked(t *testing.T) {
	for name, system := range map[string]vfs.FS{"system": vfs.OS(), "memory": vfstest.New()} {
		t.Run(name, func(t *testing.T) {
			dir, err := system.MakeDir(filepath.Join(t.TempDir(), "state"), 0o700)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			path := filepath.Join(dir.Path(), "mark")
			f := mustOpen(t, system, path)
			if _, err := OpenIn(system, path); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("this system has no file locks")
			} else if !errors.Is(err, vfs.ErrLocked) {
				t.Fatalf("a second one: %v", err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			mustOpen(t, system, path)
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	m := vfstest.New()
	if err := m.WriteFile("/state/file", nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", ".", "..", "/", "/state/", "/state/..", "/state/a\x00b",
		"/nowhere/mark", "/state/file/mark"} {
		if _, err := OpenIn(m, path); err == nil || !strings.Contains(err.Error(), "checkpoint") {
			t.Errorf("Open(%q): %v", path, err)
		}
	}
}

// TestLoadRefuses checks that an unreadable file is never treated as empty, is reported with a
// remedy, and stays unchanged.
func TestLoadRefuses(t *testing.T) {
	good := goldens[1].text
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "cannot be used, and was left as it is: it does not begin like a mark: " +
			"put a copy of it back, or move it away"},
		{"cut off", good[:len(good)-9], "it ends too early"},
		{"damaged", strings.Replace(good, "100", "101", 1), "its checksum is wrong"},
		{"newer", "penstock-mark 2\n", "newer penstock: its form is 2, this program reads up to " +
			"1: run that one, or move the file away"},
	} {
		m := vfstest.New()
		if err := m.WriteFile("/state/mark", []byte(c.text)); err != nil {
			t.Fatal(err)
		}
		_, _, err := mustOpen(t, m, "/state/mark").Load(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "/state/mark") {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
		if left, err := m.ReadFile("/state/mark"); err != nil || string(left) != c.text {
			t.Errorf("%s: the file is now %q, %v", c.name, left, err)
		}
	}
	m := vfstest.New()
	if err := errors.Join(m.WriteFile("/state/real", []byte(good)),
		m.Symlink("real", "/state/mark")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mustOpen(t, m, "/state/mark").Load(t.Context()); !errors.Is(err,
		vfs.ErrNotRegular) {
		t.Errorf("a symlink: %v", err)
	}
}

func TestContextEnded(t *testing.T) {
	m := vfstest.New()
	if err := m.WriteFile("/state/mark", []byte(goldens[1].text)); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, m, "/state/mark")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: %v", err)
	}
	if err := f.Save(ctx, at(900), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Save: %v", err)
	}
	mustHold(t, f, goldens[1].mark)
}

// TestSaveRefuses checks that a mark that could not be loaded again is not saved.
func TestSaveRefuses(t *testing.T) {
	m := vfstest.New()
	if err := m.WriteFile("/state/mark", []byte(goldens[1].text)); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, m, "/state/mark")
	if err := f.Save(t.Context(), at(10), []ledger.Range{upTo(5, 20)}); err == nil ||
		!strings.Contains(err.Error(), "(5, 20]") {
		t.Errorf("Save: %v", err)
	}
	mustHold(t, f, goldens[1].mark)
	if _, err := m.ReadFile("/state/mark.new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what it began is left over: %v", err)
	}
}

// TestInABubble saves and loads in the virtual time of testing/synctest, on the file system of the
// operating system and on one in memory.
func TestInABubble(t *testing.T) {
	for name, system := range map[string]vfs.FS{"system": vfs.OS(), "memory": vfstest.New()} {
		path := filepath.Join(t.TempDir(), "mark")
		d, err := system.MakeDir(filepath.Dir(path), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			f := mustOpen(t, system, path)
			time.Sleep(24 * time.Hour)
			if err := f.Save(t.Context(), at(7), nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			mustHold(t, f, mark{watermark: at(7)})
		})
	}
}
