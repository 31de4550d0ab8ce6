package vfs

// Numbers of system calls that package syscall does not name.
const (
	sysStatx     = 332
	sysRenameat2 = 316
)
