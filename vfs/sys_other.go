//go:build !unix

package vfs

import (
	"io/fs"
	"os"
)

const openFlags = 0

func inode(fs.FileInfo) (dev, ino, links uint64) { return 0, 0, 0 }

// syncDir does nothing: Windows flushes only files that are open for writing, and a directory never
// is.
func syncDir(*os.File) error { return nil }
