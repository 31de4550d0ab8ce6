package osfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
)

func (d *dir) Rename(oldName string, to vfs.Dir, newName string) error {
	return d.move("rename", oldName, to, newName, func(from, into place) error {
		return rename(from, into, 0)
	})
}

func (d *dir) RenameNew(oldName string, to vfs.Dir, newName string) error {
	return d.move("rename without replacing", oldName, to, newName, func(from, into place) error {
		err := rename(from, into, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			return linkAndRemove(from, into)
		}
		return err
	})
}

// move finds the places (directory and name) of oldName and newName, and calls do with them.
func (d *dir) move(op, oldName string, to vfs.Dir, newName string,
	do func(from, into place) error) error {
	target, ok := to.(*dir)
	if !ok {
		err := fmt.Errorf("to a directory of another file system: %w", fs.ErrInvalid)
		return &fs.PathError{Op: op, Path: oldName, Err: err}
	}
	from, err := d.locate(op, oldName)
	if err != nil {
		return err
	}
	defer from.close()
	into, err := target.locate(op, newName)
	if err != nil {
		return err
	}
	defer into.close()
	if err := do(from, into); err != nil {
		return &os.LinkError{Op: op, Old: filepath.Join(d.path, oldName),
			New: filepath.Join(target.path, newName), Err: err}
	}
	return nil
}

// rename calls renameat(2) or, if there are flags, renameat2(2).
func rename(from, into place, flags uint) error {
	return uninterrupted(func() error {
		if flags == 0 {
			return unix.Renameat(from.fd, from.last, into.fd, into.last)
		}
		return unix.Renameat2(from.fd, from.last, into.fd, into.last, flags)
	})
}

// linkAndRemove renames a file on file systems without RENAME_NOREPLACE. It makes the new name a
// hard link and removes the old name. A crash in between leaves both names. A directory cannot have
// hard links, so it is renamed if the new name does not exist.
func linkAndRemove(from, into place) error {
	info, err := statAt(from.fd, from.last, "")
	if err != nil {
		return err
	}
	if info.Mode.IsDir() {
		if _, err := statAt(into.fd, into.last, ""); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, fs.ErrExist)
		}
		return rename(from, into, 0)
	}
	err = uninterrupted(func() error {
		return unix.Linkat(from.fd, from.last, into.fd, into.last, 0)
	})
	if err != nil {
		return err
	}
	return uninterrupted(func() error { return unix.Unlinkat(from.fd, from.last, 0) })
}
