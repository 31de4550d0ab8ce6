package stream

import (
	"context"

	"github.com/penstock-io/penstock/flow"
)

// Worker delivers batches to one endpoint, connection, child process or file; see [flow.Worker].
type Worker = flow.Worker[*Batch]

// Lane is a worker with its name and limits, as flow sees it.
type Lane = flow.Lane[*Batch]

// Attempt is one delivery of one batch.
type Attempt = flow.Attempt[*Batch]

// Split settles a batch in part; see [flow.Split]. Make its items with [Piece].
type Split = flow.Split[*Batch]

// Piece returns b, cut from a delivered batch by [Batch.Cut] or [Batch.Pick], as an item of a [Split]. It has no Keys: the
// Sender gives it those of the item whose place it takes.
func Piece(b *Batch) flow.Item[*Batch] {
	return flow.Item[*Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes()}
}

// Processor changes records between source and sink. One instance serves one goroutine; it keeps nothing
// between calls and moves nothing between batches, so that any instance may get any batch.
type Processor interface {
	// Process changes b in place: it sets fields, drops records ([Batch.Drop]), buries them
	// ([Batch.Bury]) or makes more of one ([Batch.Expand]). What goes wrong with one record is that record's state; an
	// error ends the route, which starts again after a wait. After a panic the batch goes, as it was, to a new instance; a
	// record of which three have died alone is buried.
	Process(ctx context.Context, b *Batch) error
}

// Sink is where data goes. The engine opens it once for each route.
type Sink interface {
	// Open connects or checks what must be right before the first batch, and calls o.Lanes at least once
	// before it returns. An error ends the route before anything is read; another sink is opened after a wait.
	Open(ctx context.Context, o SinkOptions) error
	// Close frees everything. No Deliver runs any more. It may be called twice.
	Close() error
}

// SinkOptions is what a sink is told when it is opened.
type SinkOptions struct {
	Pipeline, Route string
	// Place is what an ordered lane reported last (Report.Place) in the checkpoint from which this run
	// resumes; "" the first time. A file sink truncates to it.
	Place string
	// Lanes takes the whole list of workers, again when it changes: DNS, restarts, remote nodes. Workers are
	// told apart by name: a name that stays is kept, a new one added, a missing one drained. Safe for concurrent use.
	Lanes func([]Lane)
	// Sealed is set when the batches of this route are pieces of finite work (`run --once`).
	Once bool
}

// Encoder is an optional part of a Sink. Encode runs in the processor pool, before dispatch, so that a redelivery costs
// no second encoding and the measured round trip is the receiver's. It appends what Deliver will send to dst and returns
// it; the engine keeps it in Batch.Payload. nil means that Deliver sends the batch's own bytes. It is called from
// several goroutines at once. Pieces of a batch (Cut, Pick) have no Payload: Deliver then encodes for itself.
type Encoder interface {
	Encode(dst []byte, b *Batch) ([]byte, error)
}

// Verbatim is an optional part of an [Encoder] that need not be asked where no processor changes a batch: batches then go to the workers
// without the way through the processor pool, and Deliver encodes for itself the rare one with a dead letter in it.
type Verbatim interface {
	// Verbatim says that Encode returns nil for every batch that is as it was read. It is called once, before Open.
	Verbatim() bool
}

// Placed is an optional part of a Sink whose ordered lane counts from what it found: a file that already held something.
// After Open the engine asks for StartPlace and, where it is not the Place that it gave, has it durable in the checkpoint
// before the first Deliver; else a kill before the first settle would count as found what was delivered in vain.
type Placed interface {
	StartPlace() string
}

// Syncer is an optional part of a Sink: what was delivered without being durable (`fsync: interval`) is durable when
// Sync returns, what an earlier instance delivered up to the Place that Open was given, too. The engine calls it before a
// partition is finished and at drain.
type Syncer interface {
	Sync(ctx context.Context) error
}

// Ledgered is an optional part of a Sink that stores Batch.Spans in the transaction of the data. It gets batches of which
// no record is left, too: their spans are stored alike.
type Ledgered interface {
	// Load first fences off every earlier process, then returns what the sink holds. It wins over the local state, also for partitions
	// that it lacks. If it returns nothing although the local state shows progress, the route stops: see LedgerNamer.
	Load(ctx context.Context) ([]Mark, error)
	// Store stores spans without data: their records have become dead letters, which are durable. It is called from
	// another goroutine than Deliver, and again, with backoff, when it returned an error.
	Store(ctx context.Context, spans []Span) error
	// Compact may fold what lies at or below the watermarks of m. It is called from the checkpoint's goroutine.
	Compact(ctx context.Context, m []Mark) error
}

// LedgerNamer is an optional part of a [Ledgered] sink. LedgerName returns where its ledger is, such as the table and the rows in it, for
// messages. It is called after Load.
type LedgerNamer interface{ LedgerName() string }

// Pruner is an optional part of a [Ledgered] sink, so that its ledger grows with what is there and not with what ever was.
type Pruner interface {
	// Prune removes, in one transaction, what the ledger holds of partitions that are gone for good, a few hundred at most. Since
	// Load nothing of them was delivered or stored: else a transaction that comes late would find no trace of what it repeats. It
	// is called from the checkpoint's goroutine, and again with the same ones where it returned an error.
	Prune(ctx context.Context, partitionIDs []string) error
}

// Preferred is an optional part of a sink's options (what [Component].Options returns): the batch with which the sink is
// fast, for where the config does not say `batch:`. Zero fields mean no wish. It is asked after decoding.
type Preferred interface{ PreferredBatch() BatchLimits }
