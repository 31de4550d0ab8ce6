package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OS returns a portable file system over [os.Root]. Except for file locks, it uses only system
// calls that package os offers. It holds no state and is safe for concurrent use.
//
// Names are resolved part by part. Each existing file or directory that is opened is compared with
// the one found before the open. So a symlink that has replaced it meanwhile cannot lead to another
// file.
//
// It keeps the promises of [FS], [Dir] and [File] with these limits:
//
//   - Between two directories, Rename and RenameNew check that the paths of both still lead to the
//     open directories, and then rename by path. If a directory is moved between these two steps,
//     they do not notice it. Within one directory they use the open handle of the directory instead
//     of a path.
//   - RenameNew makes a hard link and removes the old name. It never replaces a file, but a crash
//     in between leaves both names. For a directory, it checks that the new name is free and then
//     renames, which is not atomic. On a file system without hard links, RenameNew of a file fails.
//   - Info.Birth is set on macOS only. On Windows, device, inode and link count are not set either.
//   - Lock uses flock on Linux, macOS and the BSDs, and LockFileEx on Windows. Elsewhere, it returns
//     errors.ErrUnsupported.
//   - On Windows, Sync of a directory does nothing, because Windows cannot sync directories. So a
//     power loss may undo changes of names.
//   - Files implement none of [GatherWriter], [Reserver] and [WriteBacker].
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenDir(path string) (Dir, error) {
	d, err := openOSDir(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (o osFS) MakeDir(path string, perm fs.FileMode) (Dir, error) { return MakeDirs(o, path, perm) }

// MakeDirs implements [FS].MakeDir for other packages. It opens the last existing directory in path
// with system.OpenDir, and makes the missing ones with MakeDir of the opened [Dir]. The argument
// path has the form of the operating system.
func MakeDirs(system FS, path string, perm fs.FileMode) (Dir, error) {
	above, missing, err := existing(path)
	if err != nil {
		return nil, err
	}
	if missing == "" {
		if err := confirmIn(system, filepath.Dir(above)); err != nil {
			return nil, fmt.Errorf("make directory %q: %w", path, err)
		}
		return system.OpenDir(path)
	}
	dir, err := makeIn(system, above, missing, perm)
	if err != nil {
		return nil, fmt.Errorf("make directory %q: %w", path, err)
	}
	return dir, nil
}

// existing splits path into its longest part that is an existing directory, and the rest.
func existing(path string) (above, missing string, err error) {
	above = filepath.Clean(path)
	for {
		info, err := os.Stat(above)
		if err == nil && !info.IsDir() {
			return "", "", &fs.PathError{Op: "make directory", Path: above, Err: syscall.ENOTDIR}
		}
		if err == nil {
			return above, missing, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || above == filepath.Dir(above) {
			return "", "", fmt.Errorf("make directory %q: %w", path, err)
		}
		above, missing = filepath.Dir(above), filepath.Join(filepath.Base(above), missing)
	}
}

// makeIn makes a directory and returns it. The parameter above is an existing directory, and
// missing is the path of the new directory relative to it. makeIn also makes the missing parents in
// this path.
func makeIn(system FS, above, missing string, perm fs.FileMode) (Dir, error) {
	parent, err := system.OpenDir(above)
	if err != nil {
		return nil, err
	}
	dir, err := parent.MakeDir(filepath.ToSlash(missing), perm)
	if failed := parent.Close(); err == nil && failed != nil {
		err = errors.Join(failed, dir.Close())
	}
	if err != nil {
		return nil, err
	}
	return dir, nil
}

// confirmIn makes the names in the directory parent durable, unless parent cannot be opened.
func confirmIn(system FS, parent string) error {
	dir, err := system.OpenDir(parent)
	if err != nil {
		return nil // without access to parent, its names cannot be synced
	}
	return errors.Join(confirm(dir), dir.Close())
}

// confirm makes the existing names in d durable, because a process may have made them and been
// killed before it synced d. It returns only I/O errors of the disk (EIO), and no error if the file
// system does not sync directories or does not let this user sync d.
func confirm(d Dir) error {
	if err := d.Sync(); errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}

// openOSDir opens the directory path, following symlinks.
func openOSDir(path string) (*osDir, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() { // opening a FIFO would block
		return nil, &fs.PathError{Op: "open directory", Path: path, Err: syscall.ENOTDIR}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, rename(err, "open directory", path)
	}
	return newOSDir(root, path)
}

// newOSDir returns an osDir that owns root.
func newOSDir(root *os.Root, path string) (*osDir, error) {
	handle, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &osDir{root: root, handle: handle, path: path}, nil
}
