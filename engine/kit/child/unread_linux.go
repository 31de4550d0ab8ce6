package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// unreadBytes returns the number of bytes in a pipe, given its read end.
func unreadBytes(readEnd *os.File) (bytes int, ok bool) {
	raw, err := readEnd.SyscallConn()
	if err != nil {
		return 0, false
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		bytes, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	})
	if err != nil || failed != nil {
		return 0, false
	}
	return bytes, true
}
