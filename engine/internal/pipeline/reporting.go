package pipeline

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// settlerOf returns the reader of r if it must learn which records have settled, else nil. It must
// if clients of the source wait for the outcome of their records.
func settlerOf(r *saver) stream.SettledReader {
	s, _ := r.reader.(stream.SettledReader)
	return s
}

// reportSettled reports the settled progress of the route to its reader, which then answers the
// clients that sent the records. An answered record must not be lost. Before the report,
// reportSettled therefore syncs the sink and writes the checkpoint in two cases: the sink appends
// to an output file, or acknowledges data before it is durable. Otherwise a restart could truncate
// the file to an older offset in the checkpoint. Batches that settle during a sync share the next
// one.
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
