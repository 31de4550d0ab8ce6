package stream

import (
	"context"
	"errors"
	"time"
)

// Encoder is an optional interface of a [Sink]. It encodes batches before they are sent, on the
// goroutines that run processors. So a batch that is delivered again is not encoded again, and
// measured round trips do not include the encoding. Pieces of a batch (made by Cut or Pick) have no
// Payload: Deliver encodes them itself.
type Encoder interface {
	// Encodes reports which batches Encode changes. It is called once, before Open.
	Encodes() Encoding
	// Encode appends to dst the data that Deliver will send. The engine keeps the result in
	// Batch.Payload. Nil means that Deliver sends the batch's own bytes. Encode is called
	// concurrently.
	Encode(dst []byte, b *Batch) ([]byte, error)
}

// Encoding selects the batches that an [Encoder] encodes.
type Encoding uint8

// The encodings.
const (
	EncodeNone Encoding = iota // no batch, with these options
	// EncodeChanged means that Encode encodes batches with changed records, and returns nil for
	// unchanged batches. If the route has no processors, the engine does not call Encode: nearly
	// all batches are unchanged, and Deliver encodes the few others.
	EncodeChanged
	EncodeAll
)

// AppendSink is an optional interface of a [Sink] with one ordered lane that appends to an output,
// such as a file.
type AppendSink interface {
	// StartToken returns, after Open, the resume token of the position at which the lane starts,
	// such as the size of an existing file. If the token differs from SinkOptions.ResumeToken, the
	// engine saves it in the checkpoint before the first Deliver. After a kill, the token tells the
	// sink how much data the file had before the first delivery.
	StartToken() string
	// Sync makes all delivered data durable, including data that earlier instances of the sink
	// delivered up to SinkOptions.ResumeToken. It is called before the checkpoint is synced, such
	// as before a partition is finished and at drain. With `fsync: interval`, Deliver acknowledges
	// data that is not durable yet.
	Sync(ctx context.Context) error
}

// TransactionalSink is an optional interface of a [Sink] with a ledger. A ledger is progress that
// the sink stores in the receiver: it stores Batch.Spans in the same transaction as the data. If
// all records of a batch are dropped or dead-lettered, the sink gets the batch nevertheless, to
// store its spans.
type TransactionalSink interface {
	// Load first makes the ledger refuse transactions of every earlier process (fencing). Then it
	// returns the progress of all partitions. The engine uses this progress even if the checkpoint
	// is ahead of it. A partition that is not in the ledger starts from the beginning. But if the
	// ledger is empty although the checkpoint has progress, the ledger was probably lost, and the
	// route stops.
	Load(ctx context.Context) ([]Mark, error)
	// LedgerName returns the location of the ledger, such as the table and the rows in it, for
	// messages. It is called after Load.
	LedgerName() string
	// Store stores the spans of records that became durable dead letters, and for which there is no
	// data to write. The engine does not call it on the goroutine of Deliver, and retries it with
	// backoff.
	Store(ctx context.Context, spans []Span) error
	// Compact may combine entries of the ledger that are at or below the watermarks of m. It is
	// called by the checkpoint's goroutine.
	Compact(ctx context.Context, m []Mark) error
	// Prune deletes the ledger's entries of deleted partitions, at most a few hundred, in one
	// transaction. It is called by the checkpoint's goroutine. After an error it is called again
	// for the same partitions.
	//
	// The engine passes a partition at once if nothing of it was delivered or stored since Load. It
	// passes any other partition only an hour after its deletion. Before that, an attempt to
	// deliver a batch of the partition may still be running. Such an attempt needs the entries of
	// the ledger: they show whether an earlier attempt has stored the batch already.
	Prune(ctx context.Context, partitionIDs []string) error
}

// DeadLetterSink is an optional interface of a [TransactionalSink] that also stores dead letters,
// in the transaction that stores their spans. The engine writes the dead letters to its own files,
// too.
type DeadLetterSink interface {
	// StoresDeadLetters reports whether this sink stores dead letters, given its options. It is
	// called once, before Open. If it returns true, Deliver stores the dead records of each batch
	// together with the kept ones.
	StoresDeadLetters() bool
	// StoreDead is called instead of Store. It stores the dead records of b, with the reasons that
	// [Batch.Reason] returns, and the spans. b contains no record to deliver.
	StoreDead(ctx context.Context, b *Batch) error
}

// SourceBoundSink is an optional interface of a [Sink] that can store the source's positions in the
// source's own store, in the transaction of the data. An example is a Kafka sink that stores the
// offsets of a consumer group.
type SourceBoundSink interface {
	// BindSource returns the sink that replaces this one in a route with an [AssignedSource]. The
	// returned sink is a [PartitionLedger] that stores the source's positions, and the engine does
	// not call the Commit of the route's [Reader]. If the options do not ask the sink to store
	// these positions, BindSource returns nil. An error makes the config invalid. route is the
	// same as [OpenOptions].Route. BindSource is called once, before Open. It is not called for a
	// replay of dead letters.
	BindSource(source Source, route string) (Sink, error)
}

// Finisher is an optional interface of a [Source] that acts on delivered partitions, for example by
// renaming files.
type Finisher interface {
	// Finishes reports whether these options require any action. It is called once, before Open.
	Finishes() bool
	// Finish is called after all routes have settled every record of the sealed partition p, and
	// after the sinks and the checkpoint have been synced. If p is a file, Finish may now rename or
	// delete it. After a crash, Finish may be called again for the same p. An error is logged, and
	// Finish is retried with backoff.
	Finish(ctx context.Context, p Partition) error
}

// Estimator is an optional interface of a [Reader] that knows how much data remains. The engine
// shows this number as source_lag_bytes in its status and metrics. On a terminal, `penstock run
// --once` derives the progress and the remaining time from it.
type Estimator interface {
	// Remaining returns the number of available bytes that were not read yet. It is called a few
	// times per second, even while the route does not read. It is safe for concurrent use with all
	// methods, and must not wait for a running Read.
	Remaining() int64
}

// InputReader is an optional interface of a [Reader] that can detect changes of its input while it
// is not reading. The guard stops a route if too many of its records become dead letters. The
// engine restarts such a route when the value of Input changes, because the input may have been
// corrected.
type InputReader interface {
	// Input returns a number that changes when files of the input appear, grow, change or
	// disappear. It is called every few seconds, and not during Read.
	Input() (uint64, error)
}

// MaxMetadata is the maximum length of a [Mark]'s Metadata in bytes.
const MaxMetadata = 256

// PartitionTracker is an optional interface of a [Reader] that recognizes its partitions after a
// restart and knows which of them are deleted. The engine then deletes the stored progress of
// deleted partitions. Without this interface the stored progress would grow forever, for example
// with each rotated file. The goroutine that writes the checkpoint calls the methods, concurrently
// with Read. They must not wait.
type PartitionTracker interface {
	// Metadata returns metadata to be saved with m: printable text of at most MaxMetadata bytes,
	// such as a hash of the bytes before the watermark, or "". Only Part and Watermark of m are
	// set. Metadata is called before m is written. If the sink is a [TransactionalSink], Metadata
	// is also called between two Reads, before the first batch of a partition goes to the sink. So
	// after a kill, the checkpoint shows to which file the entries in the sink's ledger belong.
	Metadata(m Mark) string
	// Deleted returns the ids of deleted partitions. Read returns no more data of a deleted
	// partition. Data that appears later under the same name belongs to a partition with another
	// id. The engine deletes the partition's mark after everything that was read of it is settled.
	// Each id is returned once.
	Deleted() []string
}

// SharedSource is an optional interface of a [Source] with partitions and positions that mean the
// same on every machine. Examples are a table of a database server and an API. In a cluster one
// process at a time runs the source, and the next one resumes from the stored marks. An
// [AssignedSource] does not need this interface.
type SharedSource interface {
	Source
	// Shared returns nil if this instance is a SharedSource, and otherwise the reason and a remedy.
	Shared() error
}

// SettledReader is an optional interface of a [Reader] with senders that wait for the outcome, such
// as HTTP clients. Their data cannot be read again.
type SettledReader interface {
	// Settled tells the reader about progress of this route as soon as a crash can no longer undo
	// it. Delivered records are then as durable as the sink makes them, and dead letters are on
	// disk. Only then may the reader tell a sender that its data has arrived. Commit follows later.
	// Settled runs on the checkpoint's goroutine, concurrently with Read, and must not wait.
	Settled(marks []Mark)
}

// DrainingReader is a [Reader] of data that cannot be read again.
type DrainingReader interface {
	// Drain is called once, concurrently with Read, when the route drains. After that, Read returns
	// the data that the source has already taken from its senders, and then io.EOF. The engine
	// cancels the context of Read only if this takes longer than the time of the option `drain`.
	// For a reader without the method Drain, the engine cancels the context of Read at once.
	Drain()
}

// WithdrawingReader is an optional interface of a [Reader] of data that cannot be read again. The
// senders of the data may take it back before a worker gets it, for example to send it to another
// process. The reader then calls OpenOptions.Withdraw. The methods of this interface are called
// concurrently with Read and must not block.
//
//	read ──▶ unsent ──first attempt──▶ delivered, dead-lettered or dropped
//	            └──Unwanted──▶ Withdrawn
type WithdrawingReader interface {
	// Unwanted reports whether the senders want all records of b back, so that the route must not
	// deliver b. It is called before the first attempt of b, unless b contains a dead letter. After
	// it has returned true for b, it must always return true for b.
	Unwanted(b *Batch) bool
	// Withdrawn tells the reader that no worker has got b, and that the route will not deliver it.
	Withdrawn(b *Batch)
	// ReadsAgain reports whether Read may return a withdrawn partition again, from its beginning.
	// All data of such a partition that was read must be in one batch. If ReadsAgain returns false,
	// the withdrawn positions are never read again, and the watermark moves past them as if they
	// were settled.
	ReadsAgain(partitionID string) bool
}

// RangeReader is an optional interface of a [Reader] that can read data again, in any order, until
// it is settled. For batches that wait long for a retry, the route then stores only positions, not
// the data.
type RangeReader interface {
	// CanReadRanges reports whether ReadRanges can read this partition.
	CanReadRanges(partitionID string) bool
	// ReadRanges appends to b the records of ascending ranges of one partition, with at least one
	// span for each range. Read has returned these ranges before, in this run or an earlier one,
	// and b has space for them. ReadRanges is called concurrently with Read, by other goroutines
	// than Read, and must not wait for new data.
	//
	// If it does not find the data, it returns [ErrRangeMissing], which the engine retries: the
	// reader may not have recognized the partition yet after a restart. If the data can never be
	// read again, it returns an error that wraps [ErrRangeGone]. After an error the contents of b
	// are not used.
	ReadRanges(ctx context.Context, b *Batch, p Partition, ranges []Range) error
}

var (
	// ErrRangeMissing is returned by a RangeReader that does not find the data.
	ErrRangeMissing = errors.New("the data of a waiting batch was not found")
	// ErrRangeGone is returned by a RangeReader whose data no longer exists.
	ErrRangeGone = errors.New("the data of a waiting batch no longer exists")
)

// RetryingSource is an optional interface of a [Source] that retries by itself if it cannot get
// data, for example because its command fails. Its routes keep running meanwhile.
type RetryingSource interface {
	// Failure returns the reason why the source gets no data now, or nil. The process is not ready
	// while Failure returns an error. It is safe for concurrent use, and must not wait.
	Failure() error
}

// Holder is an optional interface of a [Source] that can still read deleted data, such as a deleted
// file that it has open, until all routes have read it.
type Holder interface {
	// Held returns the amount of deleted data that the source keeps now. It is safe for concurrent
	// use, and must not wait.
	Held() Held
}

// Held describes deleted files that still take disk space, because a route has not read them
// completely.
type Held struct {
	Files  int
	Bytes  int64         // data that several routes have not read counts once
	Oldest string        // the file kept longest; empty if Files is 0
	Age    time.Duration // time since the deletion of the oldest
	Route  string        // a route that has not read the oldest
}
