package osfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/windows"

	"github.com/penstock-io/penstock/vfs"
)

func system() vfs.FS { return withLock(vfs.OS(), lockByte) }

// lockByte locks one byte of a file, far beyond the end of its text. Other processes must be able
// to read the text, and Windows does not let them read a locked range. The lock ends when the file
// is closed.
func lockByte(f vfs.File) error {
	handle, ok := f.(interface{ Fd() uintptr })
	if !ok {
		return fmt.Errorf("%T has no handle: %w", f, errors.ErrUnsupported)
	}
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(handle.Fd()),
		windows.LOCKFILE_FAIL_IMMEDIATELY|windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return vfs.ErrLocked
	}
	return err
}
