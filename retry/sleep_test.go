package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// TestSleep checks that a sleep lasts as long as it should, and ends early with the cause of its
// context's end.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for _, d := range []time.Duration{time.Second, 0, -time.Second} {
			if err := retry.Sleep(t.Context(), d); err != nil {
				t.Errorf("Sleep(%v): %v", d, err)
			}
		}
		if since := time.Since(begun); since != time.Second {
			t.Errorf("slept for %v, want 1s", since)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		// The second one finds a context that has ended.
		for _, d := range []time.Duration{time.Hour, 0} {
			if err := retry.Sleep(ctx, d); err != enough {
				t.Errorf("Sleep(%v) in a context that ends: %v, want the cause", d, err)
			}
		}
		if since := time.Since(begun); since != 2*time.Second {
			t.Errorf("awake after %v, want 2s", since)
		}
	})
}
