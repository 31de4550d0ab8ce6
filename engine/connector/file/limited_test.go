package file_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// limitedFS is a file system without birth times and modes, and with one inode number for all
// files.
type limitedFS struct {
	vfs.FS
	chmod error // returned by Chmod
}

func (l limitedFS) MakeDir(path string, perm fs.FileMode) (vfs.Dir, error) {
	d, err := l.FS.MakeDir(path, perm)
	return limitedDir{d, l}, err
}

type limitedDir struct {
	vfs.Dir
	fs limitedFS
}

func limitedInfo(info vfs.Info, err error) (vfs.Info, error) {
	info.Birth, info.Ino, info.Mode = time.Time{}, 7, info.Mode&^fs.ModePerm|0o755
	return info, err
}

func (d limitedDir) Stat(name string) (vfs.Info, error) { return limitedInfo(d.Dir.Stat(name)) }

func (d limitedDir) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := d.Dir.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return limitedFile{f, d.fs}, nil
}

type limitedFile struct {
	vfs.File
	fs limitedFS
}

func (f limitedFile) Stat() (vfs.Info, error) { return limitedInfo(f.File.Stat()) }

func (f limitedFile) Chmod(fs.FileMode) error {
	return &fs.PathError{Op: "chmod", Path: "out", Err: f.fs.chmod}
}

// TestRenamedUnidentified checks that a missing output is not searched for under other names if
// files cannot be identified, because an unrelated file could be truncated.
func TestRenamedUnidentified(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "out"), filepath.Join(dir, "a file of somebody else")
	files := limitedFS{connectortest.FS(), syscall.EPERM}
	h := streamtest.NewHostOn(t, files)
	s, lane := open(t, h, rawAt(path), "")
	w := writer{lane: lane}
	place, err := w.deliver(text("one line\n"))
	_, _ = h.Stop(), s.Close()
	if err := errors.Join(err, os.Remove(path),
		os.WriteFile(other, []byte("much more than one line\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, _, err = tryOpen(t, streamtest.NewHostOn(t, files), rawAt(path), place)
	if err == nil || !strings.Contains(err.Error(), "it does not exist") {
		t.Errorf("Open gives %v", err)
	}
	if got := read(t, other); got != "much more than one line\n" {
		t.Errorf("the other file holds %q", got)
	}
}

// TestModeRefused checks a Chmod that fails. If the file system has no modes, Open must succeed.
// After any other error of Chmod, no file must remain, because the next start would assume that the
// file has the right mode.
func TestModeRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if _, _, err := tryOpen(t, streamtest.NewHostOn(t, limitedFS{connectortest.FS(), syscall.EIO}),
		rawAt(path), ""); err == nil {
		t.Error("Open ignores an error of the disk")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a failed Open the file is there (%v)", err)
	}
	open(t, streamtest.NewHostOn(t, limitedFS{connectortest.FS(), syscall.EPERM}), rawAt(path), "")
}
