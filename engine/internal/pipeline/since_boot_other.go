//go:build !linux

package pipeline

import "time"

// sinceBoot returns 0. This system has no boot id, so the wall clock is used.
func sinceBoot() time.Duration { return 0 }
