package retry

import (
	"context"
	"time"
)

// Sleep waits for d and returns nil. If ctx ends first, it returns the cause. Use it between two
// attempts in a loop that does not fit Do. A d of 0 or less does not wait.
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
	return context.Cause(ctx)
}
