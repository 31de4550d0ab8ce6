package osfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/vfs"
)

// withLock returns a file system that differs from base in one point: its directories lock a file
// by calling take. take must not wait. If the file is already locked, take must return
// vfs.ErrLocked.
func withLock(base vfs.FS, take func(vfs.File) error) vfs.FS { return lockingFS{base, take} }

type lockingFS struct {
	base vfs.FS
	take func(vfs.File) error
}

func (l lockingFS) OpenDir(path string) (vfs.Dir, error) { return l.wrap(l.base.OpenDir(path)) }

func (l lockingFS) MakeDir(path string, perm fs.FileMode) (vfs.Dir, error) {
	return l.wrap(l.base.MakeDir(path, perm))
}

func (l lockingFS) wrap(d vfs.Dir, err error) (vfs.Dir, error) {
	if err != nil {
		return nil, err
	}
	return &lockingDir{d, l}, nil
}

// lockingDir is a directory of the lockingFS in.
type lockingDir struct {
	vfs.Dir
	in lockingFS
}

func (d *lockingDir) OpenDir(name string) (vfs.Dir, error) { return d.in.wrap(d.Dir.OpenDir(name)) }

func (d *lockingDir) MakeDir(name string, perm fs.FileMode) (vfs.Dir, error) {
	return d.in.wrap(d.Dir.MakeDir(name, perm))
}

func (d *lockingDir) Rename(oldName string, to vfs.Dir, newName string) error {
	return d.Dir.Rename(oldName, unwrap(to), newName)
}

func (d *lockingDir) RenameNew(oldName string, to vfs.Dir, newName string) error {
	return d.Dir.RenameNew(oldName, unwrap(to), newName)
}

func unwrap(d vfs.Dir) vfs.Dir {
	if l, ok := d.(*lockingDir); ok {
		return l.Dir
	}
	return d
}

// ReadLink implements vfs.Linker.
func (d *lockingDir) ReadLink(name string) (string, error) {
	l, ok := d.Dir.(vfs.Linker)
	if !ok {
		return "", &fs.PathError{Op: "read link", Path: name, Err: errors.ErrUnsupported}
	}
	return l.ReadLink(name)
}

// Lock implements vfs.Dir.
func (d *lockingDir) Lock(name, text string) (io.Closer, error) {
	path := filepath.Join(d.Path(), name)
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return vfs.LockFile(f, path, text, func() error { return d.in.take(f) })
}
