//go:build !linux

package cluster

import "time"

// clock returns the time since the process was started. On some systems it stops while the system
// is suspended.
func clock() time.Duration { return monotonic() }
