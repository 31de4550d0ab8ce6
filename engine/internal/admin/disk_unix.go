//go:build linux || darwin

package admin

import "syscall"

// Free is how many bytes are free for this user where path lies; -1: it cannot be told.
func Free(path string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
