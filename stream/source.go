package stream

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// Mark is the progress of one route in one partition. It has the watermark, up to which everything
// is settled (delivered, dead-lettered or dropped), and the settled ranges above it.
type Mark struct {
	Part      Partition
	Watermark Position
	Above     []Range // ascending, disjoint, all above Watermark
	// the source has finished the partition (see Finisher), or the partition was sealed and
	// completely settled
	Finished bool
	// some of the data waits for a retry and is stored elsewhere, so the partition is not finished
	Waiting bool
	// Assignment is the number of the assignment in which the progress was made. It is set in
	// Commit of an AssignedReader only; otherwise it is 0.
	Assignment uint32
	// metadata of the source to be returned after a restart; see PartitionTracker; may be ""
	Metadata string
}

// Source reads data that can be read again from any position, except with a [SettledReader]. Every
// route opens its own [Reader] at its own position. So a stopped route does not delay other routes.
type Source interface {
	// Open returns a reader that starts each partition at the position given by o.Resume. It is
	// called for each route before anything is read, and again after the route has failed. An error
	// ends the route and is shown. It should name the affected file or address, and the remedy.
	Open(ctx context.Context, o OpenOptions) (Reader, error)
}

// OpenOptions are the parameters of Source.Open.
type OpenOptions struct {
	Route string // "pipeline/route"
	// Resume returns the settled progress of this route in a partition, or false if it has none.
	Resume func(partitionID string) (Mark, bool)
	// Known yields all marks of this route. Some sources must recognize their data after it was
	// renamed or has grown. They search these marks in Open. A file source, for example, compares
	// the device, the inode, the birth time, and a hash of the file's first bytes.
	Known iter.Seq[Mark]
	// Linger bounds the wait of an incomplete batch for more data. Zero means no wait.
	Linger time.Duration
	// State opens the state directory that this route has for the source, and creates it if it is
	// missing. It is for state that does not fit in marks. The source closes it. State that all
	// routes share belongs in [SourceHost].State. State is nil if the route has no state directory,
	// as in a test.
	State func() (vfs.Dir, error)
	// Assignments receives the partitions that a broker assigns to an AssignedSource and revokes.
	// It is nil for other sources. For an AssignedSource, Resume and Known contain no partitions,
	// because each call of Assign returns the start positions of the partitions that it assigns.
	Assignments Assignments
	// Withdraw is called by a [WithdrawingReader] when further batches have become Unwanted. The
	// route then withdraws the Unwanted batches that it has not sent to a worker. Withdraw may
	// return before all are withdrawn. It is safe for concurrent use, but methods of the reader
	// must not call it. Nil means that the route withdraws nothing.
	Withdraw func()
	// Once makes Read return io.EOF after the currently existing data was read.
	Once bool
	// Count adds n to a counter of events in this route's reader, such as a vanished file or a late
	// row. An n of 0 makes the counter visible from the start. The name must be a constant, never
	// made from data. For events of the source as a whole, or if Count is nil, use the Count of the
	// Host. Count is safe for concurrent use.
	Count func(name string, n int64)
}

// Reader returns the records of a source in batches. One goroutine calls Read. At the same time,
// another goroutine may call Commit, or [Finisher.Finish] of the source.
type Reader interface {
	// Read appends whole records and their spans to b until b is [Batch.Full] or no more data is
	// available. While b is empty, it blocks. After that, it waits for more data for at most
	// Linger. It skips ranges that Resume reports as settled. When the same data is read again
	// after a crash, batches must end at the same positions as before. A batch may consist of a
	// single span without bytes, with Last set, which marks its partition as sealed.
	//
	// io.EOF (with or without records in b) means that no more data will follow. Any other error
	// ends the route after the records in b. If a reader can continue, for example if one of many
	// files is unreadable, it does not return the error. It logs the error, continues with the
	// other files, and retries the unreadable file with backoff. When ctx is done, Read soon
	// returns context.Cause(ctx). The records in b are then discarded and will be read again.
	Read(ctx context.Context, b *Batch) error
	// Commit tells the reader the progress that this route has made durable. The reader may, for
	// example, store the position in a broker. It is called by the checkpoint's goroutine, except
	// as [AssignedReader] describes.
	Commit(ctx context.Context, marks []Mark) error
	Close() error
}
