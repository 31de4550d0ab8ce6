//go:build unix

package vfs

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags are added to every open: the last part is no symlink, and a FIFO does not block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func inode(info fs.FileInfo) (dev, ino, links uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino), uint64(st.Nlink)
	}
	return 0, 0, 0
}

func syncDir(handle *os.File) error { return bare(handle.Sync()) }
