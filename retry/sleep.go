package retry

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends, and then returns the cause. Use it in loops that do other
// work between two attempts, for which Do does not fit. A d of 0 or less does not wait.
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
