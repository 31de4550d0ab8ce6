package vfs

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

// takeLock locks f until it is closed. It locks one byte far beyond the end of the text, because
// other processes must be able to read the text, and Windows does not let them read a locked range.
func takeLock(f *os.File) error {
	const (
		failImmediately, exclusiveLock = 1, 2
		errLockViolation               = syscall.Errno(33)
	)
	at := syscall.Overlapped{OffsetHigh: 1 << 30}
	locked, _, err := lockFileEx.Call(f.Fd(), failImmediately|exclusiveLock, 0, 1, 0,
		uintptr(unsafe.Pointer(&at)))
	switch {
	case locked != 0:
		return nil
	case errors.Is(err, errLockViolation), errors.Is(err, syscall.ERROR_IO_PENDING):
		return ErrLocked
	}
	return err
}
