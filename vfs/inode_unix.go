//go:build unix

package vfs

import (
	"io/fs"
	"syscall"
)

func inode(info fs.FileInfo) (dev, ino, links uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino), uint64(st.Nlink)
	}
	return 0, 0, 0
}
