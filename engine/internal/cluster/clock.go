package cluster

import "time"

var started = time.Now()

// monotonic returns the time since the process was started.
func monotonic() time.Duration { return time.Since(started) }
