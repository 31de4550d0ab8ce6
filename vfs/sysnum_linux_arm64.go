package vfs

// Numbers of system calls that package syscall does not name on every architecture.
const (
	sysStatx     = 291
	sysRenameat2 = 276
)
