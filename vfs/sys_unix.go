//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// openFlags are added to every open of a file. With them, the open fails if the last part is a
// symlink, and does not block on a FIFO.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func syncDir(handle *os.File) error { return bare(handle.Sync()) }
