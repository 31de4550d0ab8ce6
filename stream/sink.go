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

// Piece returns b, cut from a delivered batch by [Batch.Cut] or [Batch.Pick], as an item of a
// [Split]. It has no Keys: the Sender gives it those of the item whose place it takes.
func Piece(b *Batch) flow.Item[*Batch] {
	return flow.Item[*Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes()}
}

// Processor changes records between source and sink. One instance serves one goroutine; it keeps
// nothing between calls and moves nothing between batches, so that any instance may get any batch.
type Processor interface {
	// Process changes b in place: it sets fields, drops records ([Batch.Drop]), buries them
	// ([Batch.Bury]) or makes more of one ([Batch.Expand]). What goes wrong with one record is that
	// record's state; an error ends the route, which starts again after a wait. After a panic the
	// batch goes, as it was, to a new instance; a record of which three have died alone is buried.
	Process(ctx context.Context, b *Batch) error
}

// Sink is where data goes. The engine opens it once for each route.
type Sink interface {
	// Open connects or checks what must be right before the first batch, and calls o.Lanes at least
	// once before it returns. An error ends the route before anything is read; another sink is opened
	// after a wait.
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
	// Lanes takes the whole list of workers, again when it changes: DNS, restarts, remote nodes.
	// Workers are told apart by name: a name that stays is kept, a new one added, a missing one
	// drained. Safe for concurrent use.
	Lanes func([]Lane)
	// Sealed is set when the batches of this route are pieces of finite work (`run --once`).
	Once bool
}

// Preferred is an optional part of a sink's options (what [Component].Options returns): the batch
// with which the sink is fast, for where the config does not say `batch:`. Zero fields mean no
// wish. It is asked after decoding.
type Preferred interface{ PreferredBatch() BatchLimits }
