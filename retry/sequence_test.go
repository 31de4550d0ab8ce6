package retry

import (
	"context"
	"testing"
	"time"
)

// Where the timer and the end of the context are both there, a select takes either: the wait must
// notice the end in any case.
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
