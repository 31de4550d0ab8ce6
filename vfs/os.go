package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OS returns the file system of the operating system. It keeps nothing: all that it returns is the same, and safe for
// concurrent use.
//
// Beneath a directory it goes through os.Root, part by part, and compares what it opened with what it had looked at, so
// that a symlink that is put in the way meanwhile is not followed either. On Linux (amd64, arm64), Rename and RenameNew
// work by the handles of the directories. Elsewhere, when two directories are involved, they check device and inode of
// both paths and then rename by path: a directory that is moved between the two is not noticed. On Windows, Sync of a
// directory does nothing (NTFS keeps a journal of names), and Info has no device, inode and birth time. Where the system has
// no file locks, Lock is errors.ErrUnsupported.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenDir(path string) (Dir, error) {
	d, err := openOSDir(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (osFS) MakeDir(path string, perm fs.FileMode) (Dir, error) {
	missing := []string{} // innermost first
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return nil, &fs.PathError{Op: "make directory", Path: at, Err: syscall.ENOTDIR}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return nil, fmt.Errorf("make directory %q: %w", path, err)
		}
		missing = append(missing, at)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		parent, err := openOSDir(filepath.Dir(missing[i]))
		if err != nil {
			return nil, fmt.Errorf("make directory %q: %w", path, err)
		}
		err = parent.makeOne(filepath.Base(missing[i]), perm)
		if err = errors.Join(err, parent.Close()); err != nil {
			return nil, fmt.Errorf("make directory %q: %w", path, err)
		}
	}
	if len(missing) == 0 {
		if err := confirmIn(filepath.Dir(filepath.Clean(path))); err != nil {
			return nil, fmt.Errorf("make directory %q: %w", path, err)
		}
	}
	return osFS{}.OpenDir(path)
}

// confirmIn confirms what was found in the directory parent, if it may be opened.
func confirmIn(parent string) error {
	dir, err := openOSDir(parent)
	if err != nil {
		return nil // what we may not read was not made by us
	}
	return errors.Join(dir.confirm(), dir.Close())
}

// openOSDir opens a path of the user's, which may lead through symlinks.
func openOSDir(path string) (*osDir, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() { // opening a FIFO would block
		return nil, &fs.PathError{Op: "open directory", Path: path, Err: syscall.ENOTDIR}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return newOSDir(root, path)
}

// newOSDir takes over root.
func newOSDir(root *os.Root, path string) (*osDir, error) {
	handle, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &osDir{root: root, handle: handle, path: path}, nil
}
