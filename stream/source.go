package stream

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// Mark is the settled progress of one route in one partition: the watermark, and the ranges above
// it.
type Mark struct {
	Part      Partition
	Watermark Position
	Above     []Range // ascending, disjoint, all above Watermark
	// the source has finished the partition (see Finisher), or the partition was sealed and
	// completely settled
	Finished bool
	// metadata of the source to be returned after a restart; see PartitionTracker; may be ""
	Metadata string
	// some of the data waits for a retry and is stored elsewhere: the partition is not finished
	Waiting bool

	// Assignment is the number of the assignment in which the progress was made. It is set in
	// Commit of an AssignedReader only; otherwise it is 0.
	Assignment uint32
}

// Source is data that can be read again. Every route opens its own [Reader] at its own position, so
// that a stopped route delays no other.
type Source interface {
	// Open returns a reader that starts each partition at the position given by o.Resume. It is
	// called once per route before anything is read, and again when a failed route restarts. An
	// error ends the route and is shown unchanged. It should name the affected file or address, and
	// the remedy.
	Open(ctx context.Context, o OpenOptions) (Reader, error)
}

// OpenOptions are the parameters of Source.Open.
type OpenOptions struct {
	Route string // "pipeline/route"
	// Resume returns the settled progress of this route in a partition; ok is false if it has none.
	Resume func(partitionID string) (Mark, bool)
	// Known yields all marks of this route. A source that must recognize data after it was renamed
	// or has grown searches these marks in Open. A file source, for example, compares device,
	// inode, birth time and head length.
	Known iter.Seq[Mark]
	// Linger bounds the wait of an incomplete batch for more data. Zero means no wait.
	Linger time.Duration
	// State opens this route's own state directory, creating it if missing, for state that does not
	// fit in marks. The source closes it. State shared by all routes belongs in [SourceHost].State.
	// State is nil if the route has no state directory, as in a test.
	State func() (vfs.Dir, error)
	// Assignments receives the partitions that a broker assigns to an AssignedSource and revokes.
	// It is nil for other sources. Resume and Known of an AssignedSource contain no partitions:
	// Assign returns the positions.
	Assignments Assignments
	// Withdraw is called by a [WithdrawingReader] when further batches have become Unwanted. It
	// makes the route withdraw those that it has not sent to a worker. It returns before the route
	// has done so. It is safe for concurrent use, but methods of the reader must not call it. Nil
	// means that the route withdraws nothing.
	Withdraw func()
	// Once makes Read return io.EOF after the currently existing data was read.
	Once bool
	// Count adds n to a counter of events in this route's reader, such as a vanished file or a late
	// row. n may be 0, which makes the counter visible from the start. The name must be a constant,
	// never data. Events of the source as a whole are counted with its Host. It is safe for
	// concurrent use. Nil means the Count of the Host.
	Count func(name string, n int64)
}

// Reader returns the records of a source in batches. It is called by one goroutine;
// [Finisher.Finish] of its source may be called concurrently.
type Reader interface {
	// Read appends whole records and their spans to b until b is [Batch.Full] or no more data is
	// available. It blocks while b is empty, then at most for Linger. It skips ranges that Resume
	// reports as settled, and cuts batches at the same positions again after a crash. A span
	// without bytes may be alone in a batch, to mark a partition as sealed (Last).
	//
	// io.EOF (with or without records in b) means that nothing will follow. Any other error ends
	// the route after the records in b. If a reader can continue, for example after one unreadable
	// file among many, it logs the error, retries with backoff and continues with the rest. When
	// ctx is done, Read returns context.Cause(ctx) soon; the records in b are then discarded and
	// will be read again.
	Read(ctx context.Context, b *Batch) error
	// Commit reports the progress that this route has made durable, for example to advance the
	// position in a broker. It is called by the checkpoint's goroutine.
	Commit(ctx context.Context, marks []Mark) error
	Close() error
}
