package vfs

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

// Flags and error of LockFileEx.
const (
	lockFailImmediately = 1
	lockExclusive       = 2
	errLockViolation    = syscall.Errno(33)
	errIOPending        = syscall.Errno(997)
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

// takeLock locks one byte far behind the text, because a lock here keeps others from reading what it covers, and they
// are to read who holds it. The lock ends with the handle.
func takeLock(f *os.File) error {
	if err := lockFileEx.Find(); err != nil {
		return err
	}
	at := syscall.Overlapped{OffsetHigh: 1 << 30}
	ok, _, err := lockFileEx.Call(f.Fd(), lockFailImmediately|lockExclusive, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	if ok != 0 {
		return nil
	}
	if errors.Is(err, errLockViolation) || errors.Is(err, errIOPending) {
		return ErrLocked
	}
	return err
}
