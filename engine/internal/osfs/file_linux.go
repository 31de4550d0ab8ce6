package osfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
)

// file is an open regular file.
type file struct {
	descriptor
	dir, name string // its directory and its name when it was opened; for messages
	opened    vfs.Info
}

// fail returns err as an error of the operation op. It returns nil if err is nil.
func (f *file) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(f.dir, f.name), Err: err}
}

// OpenInfo implements vfs.OpenStater.
func (f *file) OpenInfo() (vfs.Info, bool) { return f.opened, f.opened.Links > 0 }

func (f *file) Close() error { return f.fail("close", f.close()) }

func (f *file) Stat() (vfs.Info, error) {
	var info vfs.Info
	err := f.use(func(fd int) (err error) {
		info, err = statAt(fd, "", path.Base(f.name))
		return err
	})
	return info, f.fail("stat", err)
}

// Chmod sets the permissions of the file. The umask has no effect.
func (f *file) Chmod(mode fs.FileMode) error {
	return f.fail("chmod", f.use(func(fd int) error {
		return unix.Fchmod(fd, uint32(mode.Perm()))
	}))
}

func (f *file) Read(p []byte) (n int, err error) {
	err = f.use(func(fd int) (err error) {
		n, err = unix.Read(fd, p)
		return err
	})
	if err != nil {
		return 0, f.fail("read", err)
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *file) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, f.fail("read", errors.New("negative offset"))
	}
	for n < len(p) {
		m := 0
		err := f.use(func(fd int) (err error) {
			m, err = unix.Pread(fd, p[n:], offset+int64(n))
			return err
		})
		if err != nil {
			return n, f.fail("read", err)
		}
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

func (f *file) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m := 0
		err := f.use(func(fd int) (err error) {
			m, err = unix.Write(fd, p[n:])
			return err
		})
		if err == nil && m == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, f.fail("write", err)
		}
		n += m
	}
	return n, nil
}

// maxParts is the maximum number of buffers for writev(2) (IOV_MAX).
const maxParts = 1024

// WriteParts implements vfs.GatherWriter.
func (f *file) WriteParts(parts [][]byte) error {
	done := 0 // bytes of parts[0] that are written
	for len(parts) > 0 {
		batch := parts[:min(len(parts), maxParts)]
		n := 0
		err := f.use(func(fd int) (err error) {
			if done > 0 {
				n, err = unix.Write(fd, batch[0][done:])
			} else {
				n, err = unix.Writev(fd, batch)
			}
			return err
		})
		if err != nil {
			return f.fail("write", err)
		}
		wrote := n > 0
		n += done
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
			wrote = true
		}
		if done = n; !wrote {
			return f.fail("write", io.ErrUnexpectedEOF)
		}
	}
	return nil
}

func (f *file) Seek(offset int64, whence int) (at int64, err error) {
	err = f.use(func(fd int) (err error) {
		at, err = unix.Seek(fd, offset, whence)
		return err
	})
	return max(at, 0), f.fail("seek", err)
}

func (f *file) Truncate(size int64) error {
	return f.fail("truncate", f.use(func(fd int) error { return unix.Ftruncate(fd, size) }))
}

func (f *file) Sync() error { return f.fail("sync", f.use(unix.Fsync)) }

// Reserve implements vfs.Reserver.
func (f *file) Reserve(from, length int64) error {
	return f.fail("reserve", f.use(func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, from, length)
	}))
}

// WriteBack implements vfs.WriteBacker.
func (f *file) WriteBack(from, to int64) error {
	return f.fail("write back", f.use(func(fd int) error {
		return unix.SyncFileRange(fd, from, to-from, unix.SYNC_FILE_RANGE_WRITE)
	}))
}
