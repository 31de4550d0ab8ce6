package stream

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// Mark is what one route has settled of one partition: the watermark, and the ranges above it.
type Mark struct {
	Part      Partition
	Watermark Position
	Above     []Range // ascending, disjoint, all above Watermark
	Finished  bool    // the source was told to finish it and did, or it was sealed and wholly settled
	Note      string  // what the source asked to find here again: see Noter; "": nothing
	Waiting   bool    // some of it waits for a retry, and is kept elsewhere: the partition is not finished

	// Assignment numbers the assignment that settled it, in Commit of an AssignedReader; else 0.
	Assignment uint32
}

// Source is data that can be read again. Every route opens a [Reader] of its own at its own place,
// so that a dead route stops nobody.
type Source interface {
	// Open returns a reader that starts where o.Resume says, for each partition it meets. It is called
	// once a route, before anything is read, and again when the route has failed and starts anew. An
	// error ends the route and is shown as it is: name the place and the remedy.
	Open(ctx context.Context, o OpenOptions) (Reader, error)
}

// OpenOptions says where a Reader starts and when it may stop waiting.
type OpenOptions struct {
	Route string // "pipeline/route"
	// Resume returns what this route has settled of a partition, and false when it has never seen it.
	Resume func(partitionID string) (Mark, bool)
	// Known yields every mark of this route. A source that must recognise data under a changed name or
	// a grown head (a file: device, inode, birth time, head length) searches here at Open.
	Known iter.Seq[Mark]
	// Linger is how long a batch that has been begun waits for more; 0 means not at all.
	Linger time.Duration
	// State opens this route's own state directory, and creates it if missing, for state that the
	// marks cannot hold. The source closes it. State that all routes share belongs in
	// [SourceHost].State. nil if there is none, as in a test.
	State func() (vfs.Dir, error)
	// Assignments is for sources that tell of partitions that a broker assigns and revokes; nil
	// unless the Source is an AssignedSource. Resume and Known then know of no partition: Assign
	// returns where each begins.
	Assignments Assignments
	// Once makes Read return io.EOF when what is there now has been read.
	Once bool
	// Count adds n to a counter of what this route's reader met: a file that vanished, a row that came
	// late. n may be 0, which shows the counter from the start. The name is the code's, never data.
	// What concerns the source and no route it counts by its Host. It is safe for concurrent use. nil:
	// as by the Host.
	Count func(name string, n int64)
}

// Reader hands out the records of a source in batches. It is called by one goroutine;
// [Finisher.Finish] of its source may be called from another one meanwhile.
type Reader interface {
	// Read appends whole records and their spans to b until b is [Batch.Full] or nothing more is at
	// hand. It blocks while b is empty, then at most Linger. It skips ranges that Resume reports as
	// settled, and cuts where it would cut again after a crash. A span with no bytes may stand alone,
	// to say that a partition is sealed (Last).
	//
	// io.EOF (with or without records in b): nothing will follow. Any other error ends the route after
	// what is in b; what a reader can survive (one unreadable file among many) it logs, retries with
	// backoff and goes on with the rest. A done ctx makes Read return context.Cause(ctx) soon; what is
	// in b then is dropped unread, so that it will be read again.
	Read(ctx context.Context, b *Batch) error
	// Commit tells the source what this route has made durable, so that a broker may advance. It runs
	// on the checkpoint's goroutine.
	Commit(ctx context.Context, marks []Mark) error
	Close() error
}
