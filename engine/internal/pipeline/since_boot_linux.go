package pipeline

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns for how long the operating system has been running, suspended or not; 0 if it
// does not tell.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
