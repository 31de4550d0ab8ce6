//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"errors"
	"os"
	"syscall"
)

// takeLock locks the open file for as long as it is open: flock(2) belongs to the open file, so
// that it ends with the process, and excludes a second open in the same process too. Children do
// not inherit it: os opens with O_CLOEXEC.
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
