//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"errors"
	"os"
	"syscall"
)

// takeLock locks f until it is closed. It uses flock(2), which locks the open file description. So
// the lock ends with the process, and a second lock in the same process fails, too. Children do not
// inherit it, because os opens files with O_CLOEXEC.
func takeLock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) {
		for {
			failed = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
			if !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	}); err != nil {
		return err
	}
	if errors.Is(failed, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return failed
}
