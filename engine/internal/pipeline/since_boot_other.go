//go:build !linux

package pipeline

import "time"

// sinceBoot returns 0: there is no boot id here, so the wall clock is used.
func sinceBoot() time.Duration { return 0 }
