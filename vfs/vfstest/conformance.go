package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// Harness is a file system under test.
type Harness struct {
	FS   vfs.FS
	Root string // an empty directory in it
	// Symlink and FIFO create files that vfs cannot create, at a path beneath Root; nil if the
	// system does not support them.
	Symlink func(target, path string) error
	FIFO    func(path string) error
}

// TestFS checks the promises of vfs that can be tested without a crash. Each subtest calls the
// function make for a Harness of its own.
func TestFS(t *testing.T, make func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"names", testNames}, {"open", testOpen}, {"flags", testFlags}, {"offset", testOffset},
		{"truncate", testTruncate},
		{"closed", testClosed}, {"symlinks", testSymlinks}, {"not regular", testNotRegular},
		{"stat", testStat},
		{"entries", testEntries}, {"make directory", testMakeDir}, {"rename", testRename},
		{"rename between directories", testRenameBetween}, {"rename new", testRenameNew},
		{"rename an open file", testRenameOpen}, {"remove", testRemove}, {"lock", testLock},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := make(t)
			d, err := h.FS.OpenDir(h.Root)
			if err != nil {
				t.Fatalf("OpenDir(%q): %v", h.Root, err)
			}
			b := &bench{T: t, h: h, dir: d}
			test.run(t, b)
			if err := d.Close(); err != nil {
				t.Errorf("Close of the directory: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Errorf("second Close of the directory: %v", err)
			}
		})
	}
}

// bench is a file system with one open directory, and shorthands that fail the test on errors.
type bench struct {
	*testing.T
	h   Harness
	dir vfs.Dir
}

func (b *bench) path(name string) string { return filepath.Join(b.h.Root, name) }

func (b *bench) put(d vfs.Dir, name, text string) {
	b.Helper()
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		b.Fatalf("OpenFile(%q): %v", name, err)
	}
	if n, err := f.Write([]byte(text)); n != len(text) || err != nil {
		b.Fatalf("Write to %q = %d, %v; want %d, nil", name, n, err, len(text))
	}
	b.ok("Sync", f.Sync())
	b.ok("Close", f.Close())
}

func (b *bench) wantText(d vfs.Dir, name, want string) {
	b.Helper()
	f, err := d.Open(name)
	if err != nil {
		b.Fatalf("Open(%q): %v", name, err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); string(got) != want || err != nil {
		b.Fatalf("%q holds %q, %v; want %q", name, got, err, want)
	}
}

func (b *bench) mkdir(d vfs.Dir, name string) vfs.Dir {
	b.Helper()
	sub, err := d.MakeDir(name, 0o700)
	if err != nil {
		b.Fatalf("MakeDir(%q): %v", name, err)
	}
	b.Cleanup(func() { _ = sub.Close() })
	return sub
}

func (b *bench) ok(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *bench) is(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("%s: %v; want %v", what, err, want)
	}
}

// outside are names that lead out of the directory or are invalid.
var outside = []string{"", "/", "/etc/passwd", "..", "../x", "a/..", "a/../b", "a/../../b", "./a",
	"a/.", "a//b", "a/", "/a", "a\x00b"}

func testNames(_ *testing.T, b *bench) {
	b.mkdir(b.dir, "a")
	b.put(b.dir, "b", "inside")
	for _, name := range outside {
		_, err := b.dir.Open(name)
		b.is("Open("+name+")", err, fs.ErrInvalid)
		_, err = b.dir.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		b.is("OpenFile("+name+")", err, fs.ErrInvalid)
		_, err = b.dir.Stat(name)
		b.is("Stat("+name+")", err, fs.ErrInvalid)
		_, err = b.dir.Entries(name)
		b.is("Entries("+name+")", err, fs.ErrInvalid)
		_, err = b.dir.MakeDir(name, 0o700)
		b.is("MakeDir("+name+")", err, fs.ErrInvalid)
		_, err = b.dir.OpenDir(name)
		b.is("OpenDir("+name+")", err, fs.ErrInvalid)
		_, err = b.dir.Lock(name, "")
		b.is("Lock("+name+")", err, fs.ErrInvalid)
		b.is("Remove("+name+")", b.dir.Remove(name), fs.ErrInvalid)
		b.is("Rename from "+name, b.dir.Rename(name, b.dir, "c"), fs.ErrInvalid)
		b.is("Rename to "+name, b.dir.Rename("b", b.dir, name), fs.ErrInvalid)
		b.is("RenameNew to "+name, b.dir.RenameNew("b", b.dir, name), fs.ErrInvalid)
	}
	b.is("Remove(.)", b.dir.Remove("."), fs.ErrInvalid)
	b.is("Rename to .", b.dir.Rename("b", b.dir, "."), fs.ErrInvalid)
	odd := []string{"..b", "b..", "a/..b", "π"}
	if runtime.GOOS == "linux" { // other systems may refuse them
		odd = append(odd, "...", " ", "*?", "line\nend", "\xff\xfe", `C:\x`)
	}
	for _, name := range odd {
		b.put(b.dir, name, name)
		b.wantText(b.dir, name, name)
	}
}

func testOpen(_ *testing.T, b *bench) {
	_, err := b.h.FS.OpenDir(b.path("none"))
	b.is("FS.OpenDir of nothing", err, fs.ErrNotExist)
	_, err = b.dir.Open("none")
	b.is("Open of nothing", err, fs.ErrNotExist)
	_, err = b.dir.Open("none/below")
	b.is("Open below nothing", err, fs.ErrNotExist)
	_, err = b.dir.OpenDir("none")
	b.is("OpenDir of nothing", err, fs.ErrNotExist)
	b.put(b.dir, "f", "text")
	_, err = b.dir.Open("f/below")
	b.is("Open below a file", err, syscall.ENOTDIR)
	_, err = b.dir.OpenDir("f")
	b.is("OpenDir of a file", err, syscall.ENOTDIR)
	_, err = b.h.FS.OpenDir(b.path("f"))
	b.is("FS.OpenDir of a file", err, syscall.ENOTDIR)
	b.wantText(b.dir, "f", "text")
	sub := b.mkdir(b.dir, "sub")
	b.put(b.dir, "sub/f", "below")
	b.wantText(sub, "f", "below")
	again, err := sub.OpenDir(".")
	b.ok("OpenDir(.)", err)
	b.wantText(again, "f", "below")
	b.ok("Close", again.Close())
	b.wantText(sub, "f", "below")
}

func testFlags(_ *testing.T, b *bench) {
	b.put(b.dir, "f", "0123456789")
	_, err := b.dir.OpenFile("f", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	b.is("O_EXCL on what is there", err, fs.ErrExist)
	f, err := b.dir.OpenFile("f", os.O_CREATE|os.O_RDWR, 0o600)
	b.ok("O_CREATE on what is there", err)
	_, err = f.Write([]byte("ab"))
	b.ok("Write", err)
	b.ok("Close", f.Close())
	b.wantText(b.dir, "f", "ab23456789")
	f, err = b.dir.OpenFile("f", os.O_WRONLY|os.O_APPEND, 0)
	b.ok("O_APPEND", err)
	_, err = f.Write([]byte("c"))
	b.ok("Write", err)
	b.ok("Truncate", f.Truncate(4))
	_, err = f.Write([]byte("d"))
	b.ok("Write behind a truncate", err)
	if _, err := f.Read(make([]byte, 1)); err == nil {
		b.Error("Read of a file that was opened to write: no error")
	}
	b.ok("Close", f.Close())
	b.wantText(b.dir, "f", "ab23d")
	f, err = b.dir.OpenFile("f", os.O_RDWR|os.O_TRUNC, 0)
	b.ok("O_TRUNC", err)
	b.ok("Close", f.Close())
	b.wantText(b.dir, "f", "")
	f, err = b.dir.Open("f")
	b.ok("Open", err)
	if _, err := f.Write([]byte("x")); err == nil {
		b.Error("Write to a file that was opened to read: no error")
	}
	b.ok("Close", f.Close())
}

func testOffset(_ *testing.T, b *bench) {
	b.put(b.dir, "f", "0123456789")
	f, err := b.dir.OpenFile("f", os.O_RDWR, 0)
	b.ok("OpenFile", err)
	defer f.Close()
	p := make([]byte, 4)
	if n, err := f.ReadAt(p, 8); n != 2 || err != io.EOF || string(p[:n]) != "89" {
		b.Errorf("ReadAt over the end = %d, %v (%q); want 2, EOF, 89", n, err, p[:n])
	}
	if n, err := f.ReadAt(p, 20); n != 0 || err != io.EOF {
		b.Errorf("ReadAt behind the end = %d, %v; want 0, EOF", n, err)
	}
	if _, err := io.ReadFull(f, p); err != nil || string(p) != "0123" {
		b.Errorf("Read after ReadAt: %q, %v; want 0123: ReadAt must not move the offset", p, err)
	}
	_, err = f.Write([]byte("xy"))
	b.ok("Write", err)
	if at, err := f.Seek(-2, io.SeekEnd); at != 8 || err != nil {
		b.Errorf("Seek(-2, end) = %d, %v; want 8, nil", at, err)
	}
	if at, err := f.Seek(1, io.SeekCurrent); at != 9 || err != nil {
		b.Errorf("Seek(1, current) = %d, %v; want 9, nil", at, err)
	}
	if _, err := f.Seek(-1, io.SeekStart); err == nil {
		b.Error("Seek before the start: no error")
	}
	_, err = f.Write([]byte("z!"))
	b.ok("Write over the end", err)
	_, err = f.Seek(13, io.SeekStart)
	b.ok("Seek behind the end", err)
	_, err = f.Write([]byte("E"))
	b.ok("Write behind the end", err)
	b.wantText(b.dir, "f", "0123xy678z!\x00\x00E")
	if n, err := f.Read(p); n != 0 || err != io.EOF {
		b.Errorf("Read at the end = %d, %v; want 0, EOF", n, err)
	}
}

func testTruncate(_ *testing.T, b *bench) {
	b.put(b.dir, "f", "0123456789")
	f, err := b.dir.OpenFile("f", os.O_RDWR, 0)
	b.ok("OpenFile", err)
	defer f.Close()
	b.ok("Truncate", f.Truncate(3))
	b.wantText(b.dir, "f", "012")
	b.ok("Truncate to more", f.Truncate(5))
	b.wantText(b.dir, "f", "012\x00\x00")
	if err := f.Truncate(-1); err == nil {
		b.Error("Truncate(-1): no error")
	}
	info, err := f.Stat()
	if err != nil || info.Size != 5 {
		b.Errorf("Stat after Truncate: size %d, %v; want 5", info.Size, err)
	}
}

func testClosed(_ *testing.T, b *bench) {
	b.put(b.dir, "f", "x")
	f, err := b.dir.OpenFile("f", os.O_RDWR, 0)
	b.ok("OpenFile", err)
	b.ok("Close", f.Close())
	_, err = f.Read(make([]byte, 1))
	b.is("Read", err, fs.ErrClosed)
	_, err = f.Write([]byte("x"))
	b.is("Write", err, fs.ErrClosed)
	b.is("Sync", f.Sync(), fs.ErrClosed)
	_, err = f.Stat()
	b.is("Stat", err, fs.ErrClosed)
	sub := b.mkdir(b.dir, "sub")
	b.ok("Close", sub.Close())
	_, err = sub.OpenFile("f", os.O_CREATE|os.O_RDWR, 0o600)
	b.is("OpenFile in a closed directory", err, fs.ErrClosed)
	_, err = sub.Entries(".")
	b.is("Entries of a closed directory", err, fs.ErrClosed)
	b.is("Sync of a closed directory", sub.Sync(), fs.ErrClosed)
}

func sorted(list []vfs.Entry) []vfs.Entry {
	slices.SortFunc(list, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	return list
}
