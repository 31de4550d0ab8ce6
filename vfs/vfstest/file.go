package vfstest

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/penstock-io/penstock/vfs"
)

// file is an open file of a Mem; m.mu guards it.
type file struct {
	m      *Mem
	node   *node
	flag   int
	name   string
	offset int64
	closed bool
}

// may returns an error unless the file is open for writing, or for reading if writes is false.
func (f *file) may(op string, writes bool) error {
	if f.closed {
		return pathError(op, f.node.path, fs.ErrClosed)
	}
	access := f.flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	if writes && access == os.O_RDONLY || !writes && access == os.O_WRONLY {
		return pathError(op, f.node.path, syscall.EBADF)
	}
	return nil
}

func (f *file) Read(p []byte) (n int, err error) {
	err = f.call(OpRead, false, func(c *Call, _ *Fault) error {
		if err := f.may("read", false); err != nil {
			return err
		}
		if len(p) > 0 && f.offset >= int64(len(f.node.data.b)) {
			return io.EOF
		}
		if len(p) > 0 {
			n = copy(p, f.node.data.b[f.offset:])
		}
		f.offset += int64(n)
		c.Size = n
		return nil
	})
	return n, err
}

func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.call(OpRead, false, func(c *Call, _ *Fault) error {
		if err := f.may("read", false); err != nil {
			return err
		}
		if off < 0 {
			return pathError("read", f.node.path, fs.ErrInvalid)
		}
		if off < int64(len(f.node.data.b)) {
			n = copy(p, f.node.data.b[off:])
		}
		c.Size = n
		if n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

func (f *file) Write(p []byte) (n int, err error) {
	err = f.callWith(OpWrite, true, func(c *Call, fault *Fault) error {
		if err := f.may("write", true); err != nil {
			return err
		}
		n = len(p)
		if fault != nil {
			n = max(0, min(fault.Short, len(p)-1))
		}
		if f.flag&os.O_APPEND != 0 {
			f.offset = int64(len(f.node.data.b))
		}
		if n > 0 {
			f.node.write(int(f.offset), p[:n])
			f.node.changed = f.m.time()
		}
		f.offset += int64(n)
		c.Size = n
		if fault != nil {
			return pathError("write", f.node.path, fault.Err)
		}
		return nil
	})
	return n, err
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, pathError("seek", f.node.path, fs.ErrClosed)
	}
	switch whence {
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += int64(len(f.node.data.b))
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, pathError("seek", f.node.path, fs.ErrInvalid)
	}
	f.offset = offset
	return offset, nil
}

func (f *file) Stat() (info vfs.Info, err error) {
	err = f.call(OpStat, false, func(*Call, *Fault) error {
		if f.closed {
			return pathError("stat", f.node.path, fs.ErrClosed)
		}
		info = f.node.info(f.name)
		return nil
	})
	return info, err
}

func (f *file) Truncate(size int64) error {
	return f.call(OpTruncate, true, func(c *Call, _ *Fault) error {
		if err := f.may("truncate", true); err != nil {
			return err
		}
		if size < 0 {
			return pathError("truncate", f.node.path, fs.ErrInvalid)
		}
		c.Size = int(size)
		f.node.truncate(int(size))
		f.node.changed = f.m.time()
		return nil
	})
}

func (f *file) Sync() error {
	return f.callWith(OpSync, true, func(_ *Call, fault *Fault) error {
		if f.closed {
			return pathError("sync", f.node.path, fs.ErrClosed)
		}
		f.node.sync(fault != nil)
		if fault != nil {
			return pathError("sync", f.node.path, fault.Err)
		}
		return nil
	})
}

func (f *file) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathError("close", f.node.path, fs.ErrClosed)
	}
	f.closed = true
	return nil
}
