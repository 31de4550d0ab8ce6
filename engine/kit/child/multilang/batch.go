package multilang

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// Do sends some records of batch to the child, as tuples. indexes lists the indexes of these
// records in batch. The tuple of record indexes[n] has the number n. Do waits until the child has
// answered each tuple with ack or fail. If ctx ends first, Do kills the child, because the child
// hangs or its result is no longer needed.
//
// If the child ends while Do waits for answers, Do returns no error, but Work.Err has the reason.
// If either error is set, the Work holds the answers received so far. After Do has returned, the
// bolt does not change the Work any more.
func (b *Bolt) Do(ctx context.Context, batch *stream.Batch, indexes []int) (*Work, error) {
	work := NewWork(len(indexes))
	var values []byte
	var err error
	for n, i := range indexes {
		values = AppendValues(values[:0], batch, i)
		if err = b.Give(ctx, Tuple{Values: values, Of: work, Number: n}); err != nil {
			break
		}
	}
	if err == nil {
		select {
		case <-work.Done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			b.Kill(context.Cause(ctx))
		}
		<-b.Ended()
	}
	return work, err
}
