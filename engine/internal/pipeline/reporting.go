package pipeline

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// settlerOf returns the reader of r if clients of the source wait for the outcome of their
// records. Such a reader must learn which records were delivered, dead-lettered or dropped (have
// settled). settlerOf returns nil for other readers.
func settlerOf(r *saver) stream.SettledReader {
	s, _ := r.reader.(stream.SettledReader)
	return s
}

// reportSettled reports the settled progress of the route to its reader, which then answers the
// clients that sent the records. An answered record must not be lost. If the sink appends to a
// file, or acknowledges data before it is durable, a restart could truncate the output to an
// older offset in the checkpoint. In these two cases, reportSettled first syncs the sink and
// writes the checkpoint. Batches that settle during a sync share the next sync.
func reportSettled(ctx context.Context, r *saver, reader stream.SettledReader) error {
	r.mu.Lock()
	marks, placed := r.books.marks(), len(r.books.places) > 0
	r.mu.Unlock()
	if placed || r.syncer != nil {
		return r.sync(ctx) // sync reports to the reader
	}
	reader.Settled(marks)
	return nil
}
