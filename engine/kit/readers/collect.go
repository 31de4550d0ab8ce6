// Package readers has the common parts of readers ([stream.Reader]) that wait for data. [Collect]
// fills a batch until it is complete. [Cursor] is a position, with the settled ranges after it:
// those with records that are delivered, dead-lettered or dropped. [Cuts] are the ends of earlier
// batches. A restarted route ends its batches at the same positions again. [AppendRecord] and
// [ExtendSpan] fill a batch with records of one partition.
package readers

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Collect calls fill until the batch is complete. The batch is complete if b has a span, and either
// fill reports that b is full, or b got its first span longer than linger ago.
//
// fill adds available records to b. It returns a channel that is closed when another call may add
// more. If fill returns an error, the batch ends, and Collect returns the error. If ctx ends first,
// Collect returns its cause, and the caller must drop the batch.
func Collect(ctx context.Context, b *stream.Batch, linger time.Duration,
	fill func() (full bool, changed <-chan struct{}, err error)) error {
	var timeout <-chan time.Time
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		full, changed, err := fill()
		some := len(b.Spans) > 0
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case some && (full || linger <= 0):
			return nil
		case some && timeout == nil:
			timer := time.NewTimer(linger)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
