package multilang

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// Do gives the bolt the records of batch at the given indexes, and waits until the bolt has
// answered all of them. It numbers them from 0 in this order. If ctx ends first, the bolt is
// killed: it hangs, or its result is no longer needed. When Do returns, the bolt no longer accesses
// the Work. If Do returns an error, the Work holds the answers received so far.
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
