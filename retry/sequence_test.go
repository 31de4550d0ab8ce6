package retry

import (
	"context"
	"testing"
	"time"
)

// TestSleepNoticesTheEndWhateverSelectTakes checks that sleep notices the end of the context even
// if the timer has expired, too. The select of sleep then takes either of its two cases.
func TestSleepNoticesTheEndWhateverSelectTakes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var s sequence
	for range 1000 {
		if s.sleep(ctx, time.Nanosecond) == nil {
			t.Fatal("a wait ended well although the context had ended")
		}
	}
}
