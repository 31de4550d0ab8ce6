//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// openFlags are added to every open of a file. With O_NONBLOCK, the open does not block on a FIFO.
// If os.Root follows a symlink despite O_NOFOLLOW, osDir.verify rejects the file.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func syncDir(handle *os.File) error { return bare(handle.Sync()) }
