package osfs

import (
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// descriptor is a file descriptor that may be closed while other goroutines use it. It is then
// closed at the end of the last use. If it were closed earlier, the system could give its number to
// another file while a system call uses it.
type descriptor struct {
	fd    int
	state atomic.Int64 // flag closing, plus user for each running call
}

const (
	closing = 1
	user    = 2
)

// acquire keeps the descriptor open until release. After close, it returns fs.ErrClosed.
func (d *descriptor) acquire() error {
	for {
		s := d.state.Load()
		if s&closing != 0 {
			return fs.ErrClosed
		}
		if d.state.CompareAndSwap(s, s+user) {
			return nil
		}
	}
}

func (d *descriptor) release() {
	if d.state.Add(-user) == closing {
		_ = unix.Close(d.fd) // close has already returned, so the error is lost
	}
}

// close closes the descriptor. If other calls are using it, the last of them closes it. A second
// call of close returns fs.ErrClosed.
func (d *descriptor) close() error {
	switch before := d.state.Or(closing); {
	case before&closing != 0:
		return fs.ErrClosed
	case before != 0:
		return nil
	default:
		return unix.Close(d.fd)
	}
}

// use calls do with the descriptor. If a signal interrupts do, use calls it again.
func (d *descriptor) use(do func(fd int) error) error {
	if err := d.acquire(); err != nil {
		return err
	}
	defer d.release()
	return uninterrupted(func() error { return do(d.fd) })
}

// uninterrupted calls do again while it returns EINTR, the error of a call that a signal has
// interrupted.
func uninterrupted(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}

func openAt(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = uninterrupted(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, perm)
		return err
	})
	return fd, err
}
