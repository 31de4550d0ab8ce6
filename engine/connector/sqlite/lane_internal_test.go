package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/stream"
)

// TestCanceledBatch delivers batches 0 and 2, and cancels batch 2, which waits for batch 1. Batch
// 0, which is ready to be written, then fails as well, and so does batch 1 when it is delivered
// later. Each error must name the reason of the cancellation, and must not blame an earlier batch.
func TestCanceledBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(nil) // nothing is written
		deliver := func(ctx context.Context, place uint32) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := l.Deliver(ctx, stream.Attempt{Value: &stream.Batch{}, Index: place})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		ready := deliver(t.Context(), 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := deliver(ctx, 2)
		cancel(errors.New("too slow"))
		synctest.Wait()
		missing := deliver(t.Context(), 1)
		for name, done := range map[string]<-chan error{"ready": ready, "missing": missing,
			"waiting": waiting} {
			err := <-done
			if err == nil || strings.Contains(err.Error(), "earlier") ||
				!strings.Contains(err.Error(), "too slow") {
				t.Errorf("the %s batch: %v", name, err)
			}
		}
	})
}
