package pipeline

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// settlerOf returns the reader of r if its clients wait for an outcome, else nil.
func settlerOf(r *saver) stream.SettledReader {
	s, _ := r.reader.(stream.SettledReader)
	return s
}

// reportSettled reports the progress of the route to its reader. A sink that is durable when it
// acknowledges needs nothing more. Another sink is synced first and the checkpoint written, because
// a restart truncates an output file to the offset in the checkpoint. Batches that settle during a
// sync share the next one.
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
