//go:build !linux && !darwin

package admin

// Free is how many bytes are free for this user where path lies; -1: it cannot be told.
func Free(string) int64 { return -1 }
