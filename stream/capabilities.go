package stream

import (
	"context"
	"errors"
	"time"
)

// Encoder is a [Sink] that encodes batches in the processor pool, before dispatch, so that a
// redelivery needs no second encoding and measured round trips do not include the encoding. Pieces
// of a batch (Cut, Pick) have no Payload: Deliver encodes them itself.
type Encoder interface {
	// Encodes reports which batches Encode changes. It is called once, before Open.
	Encodes() Encoding
	// Encode appends the data that Deliver will send to dst and returns it; the engine keeps it in
	// Batch.Payload. Nil means that Deliver sends the batch's own bytes. It is called concurrently.
	Encode(dst []byte, b *Batch) ([]byte, error)
}

// Encoding selects the batches that an [Encoder] encodes.
type Encoding uint8

// The encodings.
const (
	EncodeNone Encoding = iota // no batch, with these options
	// changed batches: Encode returns nil for unchanged ones. Without processors Encode is not
	// called, and Deliver encodes the few batches that are changed.
	EncodeChanged
	EncodeAll
)

// AppendSink is a [Sink] with one ordered lane that appends, as to a file.
type AppendSink interface {
	// StartToken returns, after Open, the resume token of the position at which the lane starts,
	// such as the size of an existing file. If it differs from SinkOptions.ResumeToken, it is saved
	// in the checkpoint before the first Deliver: after a kill, delivered data must not be mistaken
	// for data that existed before.
	StartToken() string
	// Sync makes all delivered data durable (`fsync: interval`), including data of earlier
	// instances up to SinkOptions.ResumeToken. It is called before a partition is finished and at
	// drain.
	Sync(ctx context.Context) error
}

// TransactionalSink is a [Sink] that stores Batch.Spans in the transaction of the data. It also
// gets batches without kept records, to store their spans.
type TransactionalSink interface {
	// Load fences off every earlier process, then returns the progress of all partitions. This
	// progress is authoritative: a partition that is not in it starts from the beginning. If Load
	// returns nothing although the local state shows progress, the route stops.
	Load(ctx context.Context) ([]Mark, error)
	// LedgerName returns the location of the ledger, such as the table and the rows in it, for
	// messages. It is called after Load.
	LedgerName() string
	// Store stores the spans of durable dead letters, for which there is no data to write. It is
	// not called by the goroutine of Deliver, and is retried with backoff.
	Store(ctx context.Context, spans []Span) error
	// Compact may fold entries at or below the watermarks of m. It is called by the checkpoint's
	// goroutine.
	Compact(ctx context.Context, m []Mark) error
	// Prune deletes the entries of deleted partitions, at most a few hundred, in one transaction.
	// The engine passes only partitions of which nothing was delivered or stored since Load. For
	// others, a late transaction needs the entries to detect that its data is already stored. It is
	// called by the checkpoint's goroutine, and again for the same partitions after an error.
	Prune(ctx context.Context, partitionIDs []string) error
}

// DeadLetterSink is an optional interface of a [TransactionalSink] that also stores dead letters,
// in the transaction of their spans. The engine writes them to its own files, too.
type DeadLetterSink interface {
	// StoresDeadLetters reports whether the options enable this. It is called once, before Open. If
	// so, Deliver stores the dead records of each batch with its kept ones.
	StoresDeadLetters() bool
	// StoreDead is called in place of Store. It stores the dead records of b, with the reasons that
	// [Batch.Reason] returns, and the spans. No record of b is kept.
	StoreDead(ctx context.Context, b *Batch) error
}

// SourceBoundSink is an optional interface of a [Sink] that can store positions in the source's own
// store, in the transaction of the data. An example is the offsets of a Kafka consumer group.
type SourceBoundSink interface {
	// BindSource returns the sink that replaces this one in a route with an [AssignedSource], or
	// nil if the options ask for no such transactions. route is the same as [OpenOptions].Route.
	// The returned sink is a [PartitionLedger], and the engine does not call the Commit of the
	// route's [Reader]. An error refuses the config. BindSource is called once, before Open, and
	// not for a replay of dead letters.
	BindSource(source Source, route string) (Sink, error)
}

// Finisher is a [Source] that acts on delivered partitions, for example by renaming files.
type Finisher interface {
	// Finishes reports whether these options require any action. It is called once, before Open.
	Finishes() bool
	// Finish is called after all routes have settled every record of the sealed partition p, and
	// its sinks and the checkpoint are synced: the file may now be renamed or deleted. It may be
	// called again for the same p after a crash. An error is logged, and Finish is retried with
	// backoff.
	Finish(ctx context.Context, p Partition) error
}

// Estimator is a [Reader] that knows the amount of remaining data, for progress and remaining time.
type Estimator interface {
	// Remaining returns the number of available bytes that were not read yet. It is called a few
	// times per second, also while the route does not read. It is safe for concurrent use with all
	// methods, and must not wait for a running Read.
	Remaining() int64
}

// InputReader is a [Reader] that can detect changes of its input while it is not reading. A route
// that was stopped because of its input is restarted when the value of Input changes.
type InputReader interface {
	// Input returns a number that changes with the input: files that appear, grow, change or
	// disappear. It is called every few seconds, and not during Read.
	Input() (uint64, error)
}

// MaxMetadata is the maximum length of a [Mark]'s Metadata in bytes.
const MaxMetadata = 256

// PartitionTracker is a [Reader] that recognizes its partitions after a restart and knows which are
// deleted, so that the state grows with the existing partitions only. Its methods are called by the
// checkpoint's goroutine, concurrently with Read, and must not wait.
type PartitionTracker interface {
	// Metadata returns metadata to save with m, whose Part and Watermark are set: printable text of
	// at most MaxMetadata bytes, such as a hash of the bytes before the watermark, or "". It is
	// called before m is written. It is also called between two Reads, before a batch of a
	// partition without a mark goes to a [TransactionalSink].
	Metadata(m Mark) string
	// Deleted returns the ids of deleted partitions: none of their data will be handed out again,
	// and later data under their names has other ids. Their marks are deleted when everything read
	// of them is settled. Each id is returned once.
	Deleted() []string
}

// SharedSource is an optional interface of a [Source]: its partitions and positions mean the same
// on every machine, like those of a table of a database server or of an API. In a cluster one
// process at a time runs the source, and the next one resumes from its marks. An [AssignedSource]
// does not need this interface.
type SharedSource interface {
	Source
	// Shared returns nil if this instance is a SharedSource, and otherwise the reason and a remedy.
	Shared() error
}

// SettledReader is a [Reader] of data that cannot be read again: its senders
// wait for the outcome.
type SettledReader interface {
	// Settled reports progress of this route as soon as it is safe against a crash: delivered
	// records are as durable as the sink makes them, and dead letters are on disk. Only then may a
	// sender be told that its data has arrived. Marks are as in Commit, which follows later. It is
	// called on the checkpoint's goroutine, concurrently with Read, and must not wait.
	Settled(marks []Mark)
}

// DrainingReader is a [Reader] of data that cannot be read again.
type DrainingReader interface {
	// Drain is called once, concurrently with Read, when the route drains. After that, Read returns
	// the data that the source has already taken, then io.EOF. The context of Read ends only if
	// that takes longer than `drain:`. The context of a reader without Drain ends at once.
	Drain()
}

// WithdrawingReader is a [Reader] of data that cannot be read again: its senders may want it back
// before a worker gets it. See OpenOptions.Withdraw. Its methods are called concurrently with Read
// and must not block.
//
//	read ──▶ unsent ──first attempt──▶ delivered, dead-lettered or dropped
//	            └──Unwanted──▶ Withdrawn
type WithdrawingReader interface {
	// Unwanted reports whether the senders of all records of b want them back. It is called before
	// the first attempt of b. Once true for b, it stays true.
	Unwanted(b *Batch) bool
	// Withdrawn reports that no worker has got b, and that the route will not deliver it.
	Withdrawn(b *Batch)
	// ReadsAgain reports whether Read may return a partition again from its beginning after
	// Withdrawn. All that was read of such a partition must be in one batch. In other partitions,
	// withdrawn positions are passed over like settled ones.
	ReadsAgain(partitionID string) bool
}

// RangeReader is a [Reader] that can read data again, in any order, until it is settled. For
// batches that wait long for a retry, its route stores only positions, not the data.
type RangeReader interface {
	// CanReadRanges reports whether ReadRanges can read this partition.
	CanReadRanges(partitionID string) bool
	// ReadRanges appends to b the records of ascending ranges of one partition, with at least one
	// span for each range. Read has handed them out in this run or an earlier one, and b has space
	// for them. It is called by other goroutines, concurrently with Read, and must not wait for new
	// data. It returns [ErrRangeMissing] if it does not find the data, either permanently or
	// because it has not recognized the partition yet after a restart. An error that wraps
	// [ErrRangeGone] is permanent. After an error the contents of b are not used.
	ReadRanges(ctx context.Context, b *Batch, p Partition, ranges []Range) error
}

var (
	// ErrRangeMissing is returned by a RangeReader that does not find the data.
	ErrRangeMissing = errors.New("the data of a waiting batch was not found")
	// ErrRangeGone is returned by a RangeReader whose data no longer exists.
	ErrRangeGone = errors.New("the data of a waiting batch no longer exists")
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
	Oldest string        // the file kept longest; empty if Files is 0
	Age    time.Duration // time since the deletion of the oldest
	Route  string        // a route that has not read the oldest
}
