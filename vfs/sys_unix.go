//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// openFlags are added to every open: the last part is no symlink, and a FIFO does not block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func syncDir(handle *os.File) error { return bare(handle.Sync()) }
