package osfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
)

// place identifies a file by an open directory and a name in it. The name is the last part of the
// file's path.
type place struct {
	fd   int // descriptor of the directory
	last string
	from *dir // owner of the descriptor fd; nil if the place owns fd
}

func (p place) close() {
	if p.from != nil {
		p.from.release()
		return
	}
	_ = unix.Close(p.fd)
}

// locate returns the place of name, a path relative to d. It resolves all parts of name except the
// last, and does not follow symlinks. Its errors contain the operation op.
func (d *dir) locate(op, name string) (place, error) {
	if err := vfs.CheckName(op, name, false); err != nil {
		return place{}, err
	}
	if err := d.acquire(); err != nil {
		return place{}, &fs.PathError{Op: op, Path: name, Err: err}
	}
	at := place{fd: d.fd, last: name, from: d}
	for {
		part, rest, more := strings.Cut(at.last, "/")
		if !more {
			return at, nil
		}
		fd, err := openDirAt(at.fd, part, unix.O_PATH, op, name)
		at.close()
		if err != nil {
			return place{}, err
		}
		at = place{fd: fd, last: rest}
	}
}

// openDirAt opens the directory part in dir. Its errors contain the operation op and the whole
// name.
func openDirAt(dir int, part string, flags int, op, name string) (int, error) {
	fd, err := openAt(dir, part, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == nil {
		return fd, nil
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		info, failed := statAt(dir, part, part)
		if failed == nil && info.Mode&fs.ModeSymlink != 0 {
			return 0, vfs.NotRegular(op, name, part, info.Mode)
		}
		err = fmt.Errorf("%q: %w", part, err)
	}
	return 0, &fs.PathError{Op: op, Path: name, Err: err}
}

// swaps is the maximum number of attempts of openRegular. An attempt fails if another process
// replaces the file while it is opened.
const swaps = 8

var errSwapped = errors.New("file was replaced repeatedly while it was being opened")

// openRegular opens the regular file at p. It checks the kind of the file before it opens the file,
// because opening a device may have effects. It checks the kind again afterwards, because another
// file may have replaced it in between. If that other file is a FIFO, O_NONBLOCK keeps the open
// from blocking. got is the Info of the opened file, or zero if openRegular has created the file.
func (p place) openRegular(name string, flag int,
	perm fs.FileMode) (fd int, got vfs.Info, err error) {
	const safely = unix.O_NOFOLLOW | unix.O_NONBLOCK
	fail := func(err error) (int, vfs.Info, error) {
		return 0, vfs.Info{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	for range swaps {
		seen, err := statAt(p.fd, p.last, p.last)
		switch {
		case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
			fd, err := openAt(p.fd, p.last, flag|unix.O_EXCL|safely, uint32(perm.Perm()))
			if err == nil {
				return fd, vfs.Info{}, nil
			}
			if !errors.Is(err, fs.ErrExist) {
				return fail(err)
			}
			continue
		case err != nil:
			return fail(err)
		case !seen.Mode.IsRegular():
			return 0, vfs.Info{}, vfs.NotRegular("open", name, path.Base(name), seen.Mode)
		case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
			return fail(unix.EEXIST)
		}
		// Omit O_CREATE. In a sticky directory, fs.protected_regular refuses it for existing files.
		fd, err := openAt(p.fd, p.last, flag&^os.O_CREATE|safely, 0)
		switch {
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR):
			continue // another kind of file has replaced it
		case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
			continue
		case err != nil:
			return fail(err)
		}
		got, err := statAt(fd, "", p.last)
		if err == nil && got.Mode.IsRegular() {
			return fd, got, nil
		}
		if failed := unix.Close(fd); err != nil || failed != nil {
			return fail(errors.Join(err, failed))
		}
	}
	return fail(errSwapped)
}

// makeDir creates the directory dir/part unless it exists, and syncs dir. It syncs dir even if
// dir/part exists, because the process that created it may have been killed before its sync. If
// dir/part exists, makeDir ignores all errors of the sync except EIO.
func makeDir(dir int, part string, perm fs.FileMode) error {
	made := uninterrupted(func() error { return unix.Mkdirat(dir, part, uint32(perm.Perm())) })
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	err := uninterrupted(func() error { return unix.Fsync(dir) })
	if made != nil && !errors.Is(err, unix.EIO) {
		return nil
	}
	return err
}
