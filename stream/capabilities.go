package stream

import (
	"context"
	"errors"
	"time"
)

// What a component may be able to do beyond its interface. The engine asks for these interfaces and
// no others; a component that has the methods has the capability, unless it reports otherwise
// (Encodes, Finishes, HasAssignments), because its options decide:
//
//	Sink    Encoder            encodes batches before they are dispatched
//	        AppendSink         appends to something that has an end, and may sync later than it acknowledges
//	        TransactionalSink  stores positions in the transaction of the data
//	        PartitionLedger    and fences off other processes for each partition
//	Source  Finisher           renames or deletes partitions that are delivered
//	        Holder             keeps deleted data until all routes have read it
//	        AssignedSource     has partitions that a broker assigns and revokes, and stores positions there
//	Reader  AssignedReader     knows which partitions it owns; that of an AssignedSource
//	        Estimator          knows how much is left
//	        InputReader        notices that its input changes while nothing reads it
//	        PartitionTracker   recognizes partitions after a restart, and knows which are deleted
//	        RangeReader        reads data again that waits for a retry
//	        SettledReader      answers its senders when their data is settled
//	        DrainingReader     returns the data that it has taken when its route drains
//	options Shaper, Preferred, EnvironmentUser
//	errors  Grouped

// Encoder is a [Sink] that encodes batches in the processor pool, before dispatch, so that a
// redelivery costs no second encoding and the measured round trip is the receiver's. Pieces of a
// batch (Cut, Pick) have no Payload: Deliver encodes them itself.
type Encoder interface {
	// Encodes reports which batches Encode changes. It is called once, before Open.
	Encodes() Encoding
	// Encode appends to dst what Deliver will send, and returns it; the engine keeps it in
	// Batch.Payload. Nil means that Deliver sends the batch's own bytes. It is called by several
	// goroutines at once.
	Encode(dst []byte, b *Batch) ([]byte, error)
}

// Encoding is which batches an [Encoder] encodes.
type Encoding uint8

// The encodings.
const (
	EncodeNone    Encoding = iota // no batch, with these options
	EncodeChanged                 // nil is returned for batches as they were read; without processors Deliver encodes the rare others
	EncodeAll
)

// AppendSink is a [Sink] with one ordered lane that appends, as to a file.
type AppendSink interface {
	// StartPlace returns, after Open, where the lane starts, such as the size of a file that held
	// something. If that is not SinkOptions.Place, it is saved in the checkpoint before the first
	// Deliver: after a kill, delivered data must not be taken for data that was there before.
	StartPlace() string
	// Sync returns when everything that was delivered is durable (`fsync: interval`), by an earlier
	// instance too, up to SinkOptions.Place. It is called before a partition is finished and at drain.
	Sync(ctx context.Context) error
}

// TransactionalSink is a [Sink] that stores Batch.Spans in the transaction of the data. It gets
// batches of which no record is left, too, to store their spans.
type TransactionalSink interface {
	// Load fences off every earlier process, then returns the progress of all partitions. It is
	// authoritative: a partition that it lacks starts from the beginning. If it returns nothing
	// although the local state shows progress, the route stops.
	Load(ctx context.Context) ([]Mark, error)
	// LedgerName returns where the ledger is, such as the table and the rows in it, for messages. It
	// is called after Load.
	LedgerName() string
	// Store stores spans without data: their records are durable dead letters. It is called by another
	// goroutine than Deliver, and retried with backoff.
	Store(ctx context.Context, spans []Span) error
	// Compact may fold what lies at or below the watermarks of m. It is called by the checkpoint's
	// goroutine.
	Compact(ctx context.Context, m []Mark) error
	// Prune deletes, in one transaction, what the ledger holds of deleted partitions, at most a few
	// hundred. Nothing of them was delivered or stored since Load: else a late transaction would find
	// no trace of what it repeats. It is called by the checkpoint's goroutine, and again for the same
	// partitions after an error.
	Prune(ctx context.Context, partitionIDs []string) error
}

// Finisher is a [Source] that does something with partitions that are delivered.
type Finisher interface {
	// Finishes reports whether there is anything to do, with these options. It is called once, before
	// Open.
	Finishes() bool
	// Finish is called when all routes have settled every record of the sealed partition p, its sinks
	// have synced and the checkpoint is synced: now the file may be renamed or deleted. It may be
	// called again for the same p after a crash. An error is logged, and Finish is retried with
	// backoff.
	Finish(ctx context.Context, p Partition) error
}

// Estimator is a [Reader] that knows how much there is, for progress and time left.
type Estimator interface {
	// Left returns how many bytes are there and not read yet. It is called between two calls of Read,
	// by the same goroutine, a few times a second.
	Left() int64
}

// InputReader is a [Reader] that can tell whether its input changes while nothing reads it. A route
// that was stopped because of its input starts again when the value of Input changes.
type InputReader interface {
	// Input returns a number that changes with the input: files that appear, grow, change or
	// disappear. It is called every few seconds, and not during Read.
	Input() (uint64, error)
}

// MaxNote is how many bytes a [Mark]'s Note may have at most.
const MaxNote = 256

// PartitionTracker is a [Reader] that recognizes its partitions after a restart, and knows which of
// them are deleted, so that the state grows with what exists and not with all that ever did. Its
// methods are called by the checkpoint's goroutine, beside Read, and must not wait.
type PartitionTracker interface {
	// Note returns metadata to save with m, whose Part and Watermark are set: printable text of at
	// most MaxNote bytes, such as a hash of the bytes before the watermark; "" for none. It is called
	// before m is written. Before a batch of a partition without a mark goes to a [TransactionalSink],
	// it is called between two Reads, too.
	Note(m Mark) string
	// Forget returns the ids of partitions that are deleted: nothing of them will be handed out again,
	// and later data under their names has other ids. Their marks are dropped when everything read of
	// them is settled. Each id is returned once.
	Forget() []string
}

// SettledReader is a [Reader] of data that cannot be read again: its senders
// wait for the outcome.
type SettledReader interface {
	// Settled reports progress of this route as soon as it is safe against a crash: delivered
	// records are as durable as the sink makes them, and dead letters are on disk. Only then may a
	// sender be told that its data has arrived. Marks are as in Commit, which follows later. It is
	// called on the checkpoint's goroutine, beside Read, and must not wait.
	Settled(marks []Mark)
}

// DrainingReader is a [Reader] of data that cannot be read again.
type DrainingReader interface {
	// Drain is called once, beside Read, when the route drains. From then on Read returns the data
	// that the source has already taken, then io.EOF. The context of Read ends only if that takes
	// longer than `drain:`. Without this part it ends at once.
	Drain()
}

// RangeReader is a [Reader] that can read data again, in any order, until it is settled. A route
// whose reader has it keeps batches that wait long for a retry by their place alone, without their
// data.
type RangeReader interface {
	// CanReadRanges reports whether ReadRanges can read this partition.
	CanReadRanges(partitionID string) bool
	// ReadRanges appends to b the records of ranges, ascending, of one partition, and a span or more
	// for each. Read has handed them out, in this run or an earlier one, and b has room for them. It
	// is called on other goroutines, beside Read, and must not wait for new data. The error is
	// [ErrRangeMissing] if it does not find the data: now, since it does not yet know the partition
	// again after a restart, or ever. An error that wraps [ErrRangeGone] means that it never will.
	// What is in b after an error is not used.
	ReadRanges(ctx context.Context, b *Batch, p Partition, ranges []Range) error
}

var (
	// ErrRangeMissing is returned by a RangeReader that does not find the data.
	ErrRangeMissing = errors.New("the data of a batch that waits is not found")
	// ErrRangeGone is returned by a RangeReader whose data does not exist any more.
	ErrRangeGone = errors.New("the data of a batch that waits does not exist any more")
)

// Holder is a [Source] that keeps deleted data until all routes have read it.
type Holder interface {
	// Held returns the deleted data that the source keeps now. It is safe for concurrent use, and
	// must not wait.
	Held() Held
}

// Held is deleted data that takes space until it is read.
type Held struct {
	Files  int
	Bytes  int64         // data that several routes have not read counts once
	Oldest string        // the file that has been kept longest; empty if Files is 0
	Age    time.Duration // of the oldest, since it was deleted
	Route  string        // a route that has not read the oldest
}
