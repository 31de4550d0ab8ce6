package backoff_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// TestInABubble checks that a loop of waits runs under testing/synctest and takes exactly the time
// of the policy.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := backoff.Limit(backoff.Exponential(time.Second, 2, time.Minute), 5)
		began, waits := time.Now(), 0
		var state backoff.State
		for {
			wait, next, ok := policy.Next(state, nil)
			if !ok {
				break
			}
			time.Sleep(wait)
			state = next
			waits++
		}
		if elapsed := time.Since(began); elapsed != 15*time.Second || waits != 4 {
			t.Errorf("%d waits took %v, want 4 waits of 15s", waits, elapsed)
		}
	})
}
