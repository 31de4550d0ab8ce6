package pipeline

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// settlerOf returns the reader of r if it is a SettledReader, otherwise nil. A SettledReader must
// learn when records are settled (delivered, dead-lettered or dropped), because clients of the
// source wait for that.
func settlerOf(r *saver) stream.SettledReader {
	s, _ := r.reader.(stream.SettledReader)
	return s
}

// reportSettled reports the settled progress of the route to its reader, which then answers the
// clients that sent the records. An answered record must not be lost.
//
// After a crash, an answered record could be missing in the output in two cases. The first case is
// a sink that appends to a file: the restart truncates the file to the offset in the checkpoint.
// The second case is a sink that acknowledges data before the data is durable. In both cases,
// reportSettled first syncs the sink and the checkpoint. Batches that settle during a sync share
// the next sync.
func reportSettled(ctx context.Context, r *saver, reader stream.SettledReader) error {
	r.mu.Lock()
	marks, placed := r.books.marks(), len(r.books.tokens) > 0
	r.mu.Unlock()
	if placed || r.syncer != nil {
		return r.sync(ctx) // sync reports to the reader
	}
	reader.Settled(marks)
	return nil
}
