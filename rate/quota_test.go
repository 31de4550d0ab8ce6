package rate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/rate"
)

// TestWaitBeyondQuota checks a caller that wants more events at once than a server allows in a
// window. The caller must wait for a full window. Later callers must wait longer than otherwise,
// but not forever.
func TestWaitBeyondQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := rate.New(rate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l.Observe(rate.Advice{Limit: 5, Remaining: 2, Reset: time.Second, Window: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		for _, step := range []struct {
			n        int
			from, to time.Duration
		}{
			{10, time.Second, 1100 * time.Millisecond},    // the first full window
			{1, 2 * time.Second, 3200 * time.Millisecond}, // the first with something left
		} {
			if err := l.WaitN(ctx, step.n); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took < step.from || took > step.to {
				t.Errorf("WaitN(%d) returned after %v, want %v to %v", step.n, took, step.from,
					step.to)
			}
		}
	})
}
