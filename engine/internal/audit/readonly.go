package audit

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/penstock-io/penstock/vfs"
)

// readOnly is a read-only view of a file system. In its directories, Lock always succeeds: a lock
// would protect against changes, and there are none.
type readOnly struct{ base vfs.FS }

var errReadOnly = errors.New("an audit changes nothing")

// OpenDir implements vfs.FS.
func (r readOnly) OpenDir(path string) (vfs.Dir, error) { return readOnlyOf(r.base.OpenDir(path)) }

// MakeDir implements vfs.FS. It does not create a missing directory.
func (r readOnly) MakeDir(path string, _ fs.FileMode) (vfs.Dir, error) { return r.OpenDir(path) }

func readOnlyOf(d vfs.Dir, err error) (vfs.Dir, error) {
	if err != nil {
		return nil, err
	}
	return &readOnlyDir{d}, nil
}

type readOnlyDir struct{ vfs.Dir }

func refused(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: errReadOnly} }

// OpenDir implements vfs.Dir.
func (d *readOnlyDir) OpenDir(name string) (vfs.Dir, error) {
	return readOnlyOf(d.Dir.OpenDir(name))
}

// MakeDir implements vfs.Dir. It does not create a missing directory.
func (d *readOnlyDir) MakeDir(name string, _ fs.FileMode) (vfs.Dir, error) {
	return d.OpenDir(name)
}

// OpenFile implements vfs.Dir.
func (d *readOnlyDir) OpenFile(name string, flag int, _ fs.FileMode) (vfs.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND) != 0 {
		return nil, refused("open", name)
	}
	return d.Dir.Open(name)
}

// Rename implements vfs.Dir.
func (d *readOnlyDir) Rename(name string, _ vfs.Dir, _ string) error {
	return refused("rename", name)
}

// RenameNew implements vfs.Dir.
func (d *readOnlyDir) RenameNew(name string, _ vfs.Dir, _ string) error {
	return refused("rename", name)
}

// Remove implements vfs.Dir.
func (d *readOnlyDir) Remove(name string) error { return refused("remove", name) }

// Sync implements vfs.Dir. There is nothing to sync.
func (d *readOnlyDir) Sync() error { return nil }

// Lock implements vfs.Dir.
func (d *readOnlyDir) Lock(string, string) (io.Closer, error) { return io.NopCloser(nil), nil }

// ReadLink implements vfs.Linker.
func (d *readOnlyDir) ReadLink(name string) (string, error) {
	l, ok := d.Dir.(vfs.Linker)
	if !ok {
		return "", &fs.PathError{Op: "read link", Path: name, Err: errors.ErrUnsupported}
	}
	return l.ReadLink(name)
}
