package pipeline

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the operating system started, including the time when it was
// suspended. It returns 0 if unknown.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
