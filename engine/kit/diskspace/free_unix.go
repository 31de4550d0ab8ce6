//go:build linux || darwin

// Package diskspace reports the free space of disks.
package diskspace

import "syscall"

// Free returns the bytes that are free for this user in the file system of path, or -1 if unknown.
func Free(path string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
