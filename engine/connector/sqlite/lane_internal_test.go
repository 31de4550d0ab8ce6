package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/stream"
)

// TestCanceledBatch cancels a batch that waits for an earlier one. The other batches fail as well.
// It checks that the errors of the batch that was ready before, and of the missing batch, do not
// blame an earlier batch.
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
