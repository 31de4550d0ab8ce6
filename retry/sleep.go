package retry

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends: then it returns the cause. It is for loops that Do does not
// fit, because they do other work between two attempts. A d of 0 or less does not wait.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() == nil && d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
