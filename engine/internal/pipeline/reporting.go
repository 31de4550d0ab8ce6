package pipeline

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// settlerOf returns the reader of r if its clients wait for the outcome of their records, or nil.
func settlerOf(r *saver) stream.SettledReader {
	s, _ := r.reader.(stream.SettledReader)
	return s
}

// reportSettled reports settled progress of the route to its reader. If the sink is durable when it
// acknowledges, this needs nothing else. Otherwise the sink is synced and the checkpoint written
// before the report, because a restart truncates an output file to the offset in the checkpoint.
// Batches that settle during a sync share the next one.
func reportSettled(ctx context.Context, r *saver, reader stream.SettledReader) error {
	r.mu.Lock()
	marks, placed := r.books.marks(), len(r.books.places) > 0
	r.mu.Unlock()
	if placed || r.syncer != nil {
		return r.sync(ctx) // tells the reader
	}
	reader.Settled(marks)
	return nil
}
