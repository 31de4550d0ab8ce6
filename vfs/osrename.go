package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func (d *osDir) Rename(oldName string, to Dir, newName string) error {
	return d.move("rename", oldName, to, newName, renameAt)
}

func (d *osDir) RenameNew(oldName string, to Dir, newName string) error {
	return d.move("rename without replacing", oldName, to, newName, renameNewAt)
}

// move resolves both names to the directories that hold them and calls do with their last parts.
func (d *osDir) move(op, oldName string, to Dir, newName string, do func(*osDir, string, *osDir, string) error) error {
	target, ok := to.(*osDir)
	if !ok {
		return &fs.PathError{Op: op, Path: oldName, Err: fmt.Errorf("to a directory of another file system: %w", fs.ErrInvalid)}
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
		return &os.LinkError{Op: op, Old: filepath.Join(from.path, last), New: filepath.Join(into.path, newLast), Err: bare(err)}
	}
	return nil
}

// bare strips the names that os put around an error.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// moveByPath is rename for systems that cannot rename by the handles of two directories: within one directory os.Root
// does it; between two, the paths must still lead to what the handles hold.
func moveByPath(from *osDir, oldName string, into *osDir, newName string) error {
	if sameDir(from, into) {
		return from.root.Rename(oldName, newName)
	}
	if err := errors.Join(from.stillThere(), into.stillThere()); err != nil {
		return err
	}
	return os.Rename(filepath.Join(from.path, oldName), filepath.Join(into.path, newName))
}

// moveNewByLink is rename that never replaces, as a hard link to the new name and removal of the old: atomic as to the
// new name; a crash between the two leaves both names. What cannot be linked (a directory) is renamed after a look.
func moveNewByLink(from *osDir, oldName string, into *osDir, newName string) error {
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
		return moveByPath(from, oldName, into, newName)
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

// stillThere checks that the directory's path leads to the directory that is open.
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
