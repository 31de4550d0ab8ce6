package multilang

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// Do gives the bolt the records of batch at these indexes, numbered from 0 in this order, and waits
// until it has answered for all of them. When ctx ends before, the bolt is killed: it hangs, or
// nobody waits for it any more. When Do returns, the bolt reads and writes nothing of the Work;
// where it does not return nil, the Work says what was answered until then.
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
