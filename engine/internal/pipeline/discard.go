package pipeline

import (
	"context"
	"errors"
	"io"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// DiscardLetters marks the dead letters in the file at path as settled without delivering them, if
// they match the filter and are not settled yet. It returns their number, and the number of bytes
// of their records, each with a line end. The store is the checkpoint, key is the route's name in
// it, and boot is the result of Boot. The sink of the route is not needed, and its ledger does not
// change.
func DiscardLetters(
	ctx context.Context, store *checkpoint.Store, boot, key string, fs vfs.FS, path string,
	filter deadletter.Filter,
) (discarded, size int64, err error) {
	letters := deadletter.Source{FS: fs, Path: path, Filter: filter}
	layers := storedProgress(store, key, boot)
	reader, err := letters.Open(ctx, stream.OpenOptions{Resume: layers.mark})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		b := stream.NewBatch(stream.BatchLimits{})
		end := reader.Read(ctx, b)
		if end != nil && !errors.Is(end, io.EOF) {
			return discarded, size, end
		}
		if err := discardBatch(layers, b); err != nil {
			return discarded, size, err
		}
		discarded += int64(len(b.Spans))
		size += int64(len(b.Data))
		if end != nil {
			return discarded, size, store.Sync()
		}
	}
}

// discardBatch saves that the letters of a batch are settled. A letter may have progress in the
// upper layer, for example after `checkpoint set` made it count as not replayed. This progress would
// take precedence, so discardBatch deletes it.
func discardBatch(layers *layeredStore, b *stream.Batch) error {
	marks, ids := make([]stream.Mark, 0, len(b.Spans)), make([]string, 0, len(b.Spans))
	for i := range b.Spans {
		s := &b.Spans[i]
		marks = append(marks, stream.Mark{
			Part: *s.Part, Watermark: s.Range.To, Finished: s.Last, Metadata: deadletter.Discarded,
		})
		ids = append(ids, s.Part.ID)
	}
	if err := layers.store.Append(layers.lower, marks, nil); err != nil || !layers.layered() {
		return err
	}
	return layers.store.Forget(layers.upper, ids)
}

// discard marks dead letters of a route of the running engine as settled, and counts them in
// result.
func (e *Engine) discard(
	ctx context.Context, path, key string, filter deadletter.Filter, result *status.Replay,
) error {
	store, err := e.state.store()
	if err != nil {
		return err
	}
	n, _, err := DiscardLetters(ctx, store, e.o.Boot, key, e.o.FS, path, filter)
	result.Letters, result.Dropped = n, n
	return err
}
