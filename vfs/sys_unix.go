//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// openFlags are added to every open: a symlink as the last part is refused, and a FIFO does not
// block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func syncDir(handle *os.File) error { return bare(handle.Sync()) }
