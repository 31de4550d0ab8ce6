package osfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
)

// dir is an open directory.
type dir struct {
	descriptor
	path string // for messages
}

func (d *dir) Path() string { return d.path }

// Close implements vfs.Dir. A second call does nothing.
func (d *dir) Close() error {
	if err := d.close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return &fs.PathError{Op: "close directory", Path: d.path, Err: err}
	}
	return nil
}

func (d *dir) Open(name string) (vfs.File, error) { return d.OpenFile(name, os.O_RDONLY, 0) }

func (d *dir) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := d.openFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *dir) openFile(name string, flag int, perm fs.FileMode) (*file, error) {
	at, err := d.locate("open", name)
	if err != nil {
		return nil, err
	}
	defer at.close()
	fd, opened, err := at.openRegular(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{descriptor: descriptor{fd: fd}, dir: d.path, name: name, opened: opened}, nil
}

// OpenRegular implements vfs.RegularOpener. If the file is a FIFO, O_NONBLOCK keeps OpenRegular
// from waiting for a writer.
func (d *dir) OpenRegular(name string) (vfs.File, error) {
	at, err := d.locate("open", name)
	if err != nil {
		return nil, err
	}
	defer at.close()
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := openAt(at.fd, at.last, flags, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return d.Open(name) // the error of Open contains the kind of the file
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	opened, err := statAt(fd, "", at.last)
	if err == nil && opened.Mode.IsRegular() {
		f := &file{descriptor: descriptor{fd: fd}, dir: d.path, name: name, opened: opened}
		return f, nil
	}
	failed := unix.Close(fd)
	if err == nil && failed == nil {
		return nil, vfs.NotRegular("open", name, at.last, opened.Mode)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Join(err, failed)}
}

func (d *dir) Stat(name string) (vfs.Info, error) {
	if name == "." {
		var info vfs.Info
		err := d.use(func(fd int) (err error) {
			info, err = statAt(fd, "", name)
			return err
		})
		if err != nil {
			return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		return info, nil
	}
	at, err := d.locate("stat", name)
	if err != nil {
		return vfs.Info{}, err
	}
	defer at.close()
	info, err := statAt(at.fd, at.last, at.last)
	if err != nil {
		return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return info, nil
}

// ReadLink implements vfs.Linker.
func (d *dir) ReadLink(name string) (string, error) {
	at, err := d.locate("read link", name)
	if err != nil {
		return "", err
	}
	defer at.close()
	for text := make([]byte, 256); ; text = make([]byte, 2*len(text)) {
		n := 0
		err := uninterrupted(func() (err error) {
			n, err = unix.Readlinkat(at.fd, at.last, text)
			return err
		})
		if err != nil {
			return "", &fs.PathError{Op: "read link", Path: name, Err: err}
		}
		if n < len(text) {
			return string(text[:n]), nil
		}
	}
}

// entriesAtOnce is the maximum number of entries of a directory that are read at once. It bounds
// the memory, because the entries of package os are large.
const entriesAtOnce = 1024

func (d *dir) Entries(name string) ([]vfs.Entry, error) {
	fd, err := d.openDir("list", name)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	defer f.Close()
	var entries []vfs.Entry
	for {
		list, err := f.ReadDir(entriesAtOnce)
		for _, e := range list {
			entries = append(entries, vfs.Entry{Name: e.Name(), Type: e.Type()})
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, &fs.PathError{Op: "list", Path: name, Err: bare(err)}
		}
	}
	return entries, nil
}

// bare returns err without the operation and path that package os has added.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return e.Err
	}
	return err
}

func (d *dir) OpenDir(name string) (vfs.Dir, error) {
	fd, err := d.openDir("open directory", name)
	if err != nil {
		return nil, err
	}
	return &dir{descriptor: descriptor{fd: fd}, path: filepath.Join(d.path, name)}, nil
}

// openDir opens the directory name, which may be ".".
func (d *dir) openDir(op, name string) (fd int, err error) {
	at := place{last: name, from: d}
	if name == "." {
		if err := d.acquire(); err != nil {
			return 0, &fs.PathError{Op: op, Path: name, Err: err}
		}
		at.fd = d.fd
	} else if at, err = d.locate(op, name); err != nil {
		return 0, err
	}
	defer at.close()
	return openDirAt(at.fd, at.last, unix.O_RDONLY, op, name)
}

func (d *dir) MakeDir(name string, perm fs.FileMode) (vfs.Dir, error) {
	const op = "make directory"
	if err := vfs.CheckName(op, name, false); err != nil {
		return nil, err
	}
	if err := d.acquire(); err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	at := place{fd: d.fd, from: d}
	for part := range strings.SplitSeq(name, "/") {
		fd, err := 0, makeDir(at.fd, part, perm)
		if err == nil {
			fd, err = openDirAt(at.fd, part, unix.O_RDONLY, op, name)
		} else {
			err = &fs.PathError{Op: op, Path: name, Err: err}
		}
		at.close()
		if err != nil {
			return nil, err
		}
		at = place{fd: fd}
	}
	return &dir{descriptor: descriptor{fd: at.fd}, path: filepath.Join(d.path, name)}, nil
}

func (d *dir) Remove(name string) error {
	at, err := d.locate("remove", name)
	if err != nil {
		return err
	}
	defer at.close()
	err = uninterrupted(func() error { return unix.Unlinkat(at.fd, at.last, 0) })
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		asDir := uninterrupted(func() error {
			return unix.Unlinkat(at.fd, at.last, unix.AT_REMOVEDIR)
		})
		if !errors.Is(asDir, unix.ENOTDIR) {
			err = asDir
		}
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

func (d *dir) Sync() error {
	if err := d.use(unix.Fsync); err != nil {
		return fmt.Errorf("sync directory %q: %w", d.path, err)
	}
	return nil
}

// Lock implements vfs.Dir with flock(2). The lock belongs to the open file. So it ends with the
// process, and it also excludes a second Lock in the same process.
func (d *dir) Lock(name, text string) (io.Closer, error) {
	path := filepath.Join(d.path, name)
	f, err := d.openFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return vfs.LockFile(f, path, text, func() error {
		err := f.use(func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		if errors.Is(err, unix.EWOULDBLOCK) {
			return vfs.ErrLocked
		}
		return err
	})
}
