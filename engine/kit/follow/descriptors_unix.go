//go:build unix

package follow

import (
	"math"
	"syscall"
)

// descriptorLimit returns how many files the process may open, 0 if that is not known.
func descriptorLimit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), math.MaxInt32))
}
