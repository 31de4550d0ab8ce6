package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func (d *osDir) Rename(oldName string, to Dir, newName string) error {
	return d.move("rename", oldName, to, newName, renameBetween)
}

func (d *osDir) RenameNew(oldName string, to Dir, newName string) error {
	return d.move("rename without replacing", oldName, to, newName, linkAndRemove)
}

// move resolves both names to the directories that hold them. It passes these directories and the
// last parts of the names to the function do.
func (d *osDir) move(op, oldName string, to Dir, newName string,
	do func(*osDir, string, *osDir, string) error) error {
	target, ok := to.(*osDir)
	if !ok {
		return &fs.PathError{Op: op, Path: oldName,
			Err: fmt.Errorf("to a directory of another file system: %w", fs.ErrInvalid)}
	}
	from, last, done, err := d.parent(op, oldName)
	if err != nil {
		return err
	}
	defer done()
	into, newLast, doneNew, err := target.parent(op, newName)
	if err != nil {
		return err
	}
	defer doneNew()
	if err := do(from, last, into, newLast); err != nil {
		return &os.LinkError{Op: op, Old: filepath.Join(from.path, last),
			New: filepath.Join(into.path, newLast), Err: bare(err)}
	}
	return nil
}

// bare strips the names that package os has added to an error.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// renameBetween renames a file. Within one directory it renames through the open root. Between two
// directories it renames by their paths, after a check that the paths still lead to the open
// directories.
func renameBetween(from *osDir, oldName string, into *osDir, newName string) error {
	if sameDir(from, into) {
		return from.root.Rename(oldName, newName)
	}
	if err := errors.Join(from.stillThere(), into.stillThere()); err != nil {
		return err
	}
	return os.Rename(filepath.Join(from.path, oldName), filepath.Join(into.path, newName))
}

// linkAndRemove makes the new name a hard link and removes the old one, so that an existing file is
// never replaced. A crash in between leaves both names. Directories cannot be linked: linkAndRemove
// checks that the new name is free and then renames the directory.
func linkAndRemove(from *osDir, oldName string, into *osDir, newName string) error {
	same := sameDir(from, into)
	if !same {
		if err := errors.Join(from.stillThere(), into.stillThere()); err != nil {
			return err
		}
	}
	info, err := from.root.Lstat(oldName)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if _, err := into.root.Lstat(newName); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, fs.ErrExist)
		}
		return renameBetween(from, oldName, into, newName)
	}
	if same {
		err = from.root.Link(oldName, newName)
	} else {
		err = os.Link(filepath.Join(from.path, oldName), filepath.Join(into.path, newName))
	}
	if err != nil {
		return err
	}
	return from.root.Remove(oldName)
}

func sameDir(a, b *osDir) bool {
	if a == b {
		return true
	}
	x, errX := a.handle.Stat()
	y, errY := b.handle.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// stillThere returns an error if the path of d no longer leads to the directory that is open.
func (d *osDir) stillThere() error {
	held, err := d.handle.Stat()
	if err != nil {
		return err
	}
	found, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if !os.SameFile(held, found) {
		return fmt.Errorf("directory %q was moved or replaced after it was opened", d.path)
	}
	return nil
}
