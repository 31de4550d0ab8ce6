package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// unreadBytes returns the bytes in a pipe, asked of its read end.
func unreadBytes(readEnd *os.File) (bytes int, ok bool) {
	raw, err := readEnd.SyscallConn()
	if err != nil {
		return 0, false
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { bytes, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil || failed != nil {
		return 0, false
	}
	return bytes, true
}
