package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// osDir is a directory that is open twice: as a root, to resolve names in it, and as a file, to
// sync, list and compare it.
type osDir struct {
	root   *os.Root
	handle *os.File
	path   string
}

func (d *osDir) Path() string { return d.path }

func (d *osDir) Close() error {
	err := d.handle.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, d.root.Close())
}

// swaps is the number of tries to open a name that is replaced by another file between the check
// and the open. After the last try, the open fails.
const swaps = 8

// errSwapped means that the name was made, replaced or removed between the check and the open in
// each try.
var errSwapped = errors.New("changed its type repeatedly while it was opened")

// child opens a directory without following a symlink. The parameter name is its name in d. The
// parameter whole is the path of which name is a part. It is only used in errors.
func (d *osDir) child(op, whole, name string) (*osDir, error) {
	for range swaps {
		seen, err := d.root.Lstat(name)
		if err != nil {
			return nil, rename(err, op, whole)
		}
		if seen.Mode()&fs.ModeSymlink != 0 {
			return nil, NotRegular(op, whole, name, seen.Mode())
		}
		if !seen.IsDir() {
			return nil, &fs.PathError{Op: op, Path: whole,
				Err: fmt.Errorf("%q: %w", name, syscall.ENOTDIR)}
		}
		// With "/.", OpenRoot fails instead of blocking if a FIFO has replaced the directory.
		root, err := d.root.OpenRoot(name + "/.")
		if err != nil {
			return nil, rename(err, op, whole)
		}
		child, err := newOSDir(root, filepath.Join(d.path, name))
		if err != nil {
			return nil, rename(err, op, whole)
		}
		if got, err := child.handle.Stat(); err == nil && os.SameFile(seen, got) {
			return child, nil
		}
		if err := child.Close(); err != nil {
			return nil, rename(err, op, whole)
		}
	}
	return nil, &fs.PathError{Op: op, Path: whole, Err: errSwapped}
}

// parent resolves all parts of name but the last. It returns the directory that they lead to, and
// the last part. The result done closes the directories opened on the way.
func (d *osDir) parent(op, name string) (dir *osDir, last string, done func(), err error) {
	if err := CheckName(op, name, false); err != nil {
		return nil, "", nil, err
	}
	dir, done = d, func() {}
	rest := name
	for {
		part, more, found := strings.Cut(rest, "/")
		if !found {
			return dir, part, done, nil
		}
		child, err := dir.child(op, name, part)
		done()
		if err != nil {
			return nil, "", nil, err
		}
		dir, rest = child, more
		// The directory was only used to resolve names: no data can be lost.
		done = func() { _ = child.Close() }
	}
}

// rename replaces the operation and the name in a path error of os.Root by those of the caller.
func rename(err error, op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: bare(err)}
}

// within calls f with the directory that holds name and the last part of name. It adds op and name
// to an error of f.
func (d *osDir) within(op, name string, f func(dir *osDir, last string) error) error {
	dir, last, done, err := d.parent(op, name)
	if err != nil {
		return err
	}
	defer done()
	if err := f(dir, last); err != nil {
		return rename(err, op, name)
	}
	return nil
}

func (d *osDir) Open(name string) (File, error) { return d.OpenFile(name, os.O_RDONLY, 0) }

func (d *osDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := d.openFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *osDir) openFile(name string, flag int, perm fs.FileMode) (f *osFile, err error) {
	err = d.within("open", name, func(dir *osDir, last string) error {
		opened, err := dir.openLast(name, last, flag, perm)
		if err == nil {
			f = &osFile{File: opened, name: last}
		}
		return err
	})
	return f, err
}

// openLast opens a regular file of this directory. The parameter last is its name in the directory.
// openLast checks the type before the open, because opening a device can have effects. After the
// open it compares the opened file with the checked one, because another file may have taken the
// name. Because of openFlags, opening a FIFO does not block.
func (d *osDir) openLast(name, last string, flag int, perm fs.FileMode) (*os.File, error) {
	for range swaps {
		seen, err := d.root.Lstat(last)
		switch {
		case err == nil && !seen.Mode().IsRegular():
			return nil, NotRegular("open", name, path.Base(name), seen.Mode())
		case err == nil && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
			return nil, syscall.EEXIST
		case err == nil:
			f, err := d.root.OpenFile(last, flag&^(os.O_CREATE|os.O_TRUNC)|openFlags, 0)
			if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
				continue
			}
			if err == nil {
				f, err = d.verify(f, seen, flag)
			}
			if f != nil || err != nil {
				return f, err
			}
		case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
			f, err := d.root.OpenFile(last, flag|os.O_EXCL|openFlags, perm)
			if errors.Is(err, fs.ErrExist) && flag&os.O_EXCL == 0 {
				continue
			}
			return f, err
		default:
			return nil, err
		}
	}
	return nil, errSwapped
}

// verify returns f if it is the file that was checked before the open (seen), and truncates it if
// flag demands that. If another file has taken the name, verify closes f and returns nil.
func (d *osDir) verify(f *os.File, seen fs.FileInfo, flag int) (*os.File, error) {
	got, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !got.Mode().IsRegular() || !os.SameFile(seen, got) {
		return nil, f.Close()
	}
	if flag&os.O_TRUNC != 0 {
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

func (d *osDir) Stat(name string) (info Info, err error) {
	if name == "." {
		if info, err = statOf(d.handle, "."); err != nil {
			err = rename(err, "stat", name)
		}
		return info, err
	}
	err = d.within("stat", name, func(dir *osDir, last string) error {
		found, err := dir.root.Lstat(last)
		if err == nil {
			info = infoOf(found, last)
		}
		return err
	})
	return info, err
}

// ReadLink implements Linker.
func (d *osDir) ReadLink(name string) (to string, err error) {
	err = d.within("read link", name, func(dir *osDir, last string) (err error) {
		to, err = dir.root.Readlink(last)
		return err
	})
	return to, err
}

func (d *osDir) Entries(name string) ([]Entry, error) {
	dir, err := d.open("list", name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.handle.ReadDir(-1)
	if err != nil {
		return nil, rename(err, "list", name)
	}
	entries := make([]Entry, len(list))
	for i, e := range list {
		entries[i] = Entry{Name: e.Name(), Type: e.Type()}
	}
	return entries, nil
}

func (d *osDir) OpenDir(name string) (Dir, error) {
	dir, err := d.open("open directory", name)
	if err != nil {
		return nil, err
	}
	return dir, nil
}

// open opens the directory name beneath d. It returns a new handle, even for ".".
func (d *osDir) open(op, name string) (*osDir, error) {
	if err := CheckName(op, name, true); err != nil {
		return nil, err
	}
	if name == "." {
		root, err := d.root.OpenRoot(".")
		if err != nil {
			return nil, rename(err, op, name)
		}
		return newOSDir(root, d.path)
	}
	dir, last, done, err := d.parent(op, name)
	if err != nil {
		return nil, err
	}
	defer done()
	return dir.child(op, name, last)
}

func (d *osDir) MakeDir(name string, perm fs.FileMode) (Dir, error) {
	if err := CheckName("make directory", name, false); err != nil {
		return nil, err
	}
	at, done := d, func() {}
	for part := range strings.SplitSeq(name, "/") {
		err := at.makeOne(part, perm)
		var child *osDir
		if err == nil {
			child, err = at.child("make directory", name, part)
		}
		done()
		if err != nil {
			return nil, err
		}
		at, done = child, func() { _ = child.Close() }
	}
	return at, nil
}

// makeOne makes a directory unless its name exists, and makes the name durable.
func (d *osDir) makeOne(name string, perm fs.FileMode) error {
	err := d.root.Mkdir(name, perm)
	if errors.Is(err, fs.ErrExist) {
		return confirm(d)
	}
	if err != nil {
		return rename(err, "make directory", name)
	}
	return d.Sync()
}

func (d *osDir) Remove(name string) error {
	return d.within("remove", name, func(dir *osDir, last string) error {
		return dir.root.Remove(last)
	})
}

func (d *osDir) Sync() error {
	if err := syncDir(d.handle); err != nil {
		return fmt.Errorf("sync directory %q: %w", d.path, err)
	}
	return nil
}
