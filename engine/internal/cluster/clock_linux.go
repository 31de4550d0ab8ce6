package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock returns the time since the system was started, including suspended time.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return monotonic()
	}
	return time.Duration(t.Nano())
}
