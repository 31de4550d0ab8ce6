package stream

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/flow"
)

// Worker delivers batches to one endpoint, connection, child process or file. See [flow.Worker].
type Worker = flow.Worker[*Batch]

// Lane is a worker with its name and limits.
type Lane = flow.Lane[*Batch]

// Attempt is one delivery of one batch.
type Attempt = flow.Attempt[*Batch]

// Split is a partial outcome of a batch. See [flow.Split]. Create its items with [Piece].
type Split = flow.Split[*Batch]

// Piece returns b, cut from a delivered batch by [Batch.Cut] or [Batch.Pick], as an item of a
// [Split]. The item has no Keys: the Sender gives it the keys of the item that was split.
func Piece(b *Batch) flow.Item[*Batch] {
	return flow.Item[*Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes()}
}

// Processor changes records between source and sink. Each instance is used by one goroutine. It
// must keep no data between calls, because any instance may get any batch.
type Processor interface {
	// Process changes b in place: it sets fields, drops records ([Batch.Drop]), dead-letters them
	// ([Batch.DeadLetter]) or adds some ([Batch.Expand]). If it cannot process a record, it changes
	// the state of that record. An error ends the route, which restarts after a wait. After a
	// panic, a new instance gets the unchanged batch. A record that alone has caused three panics
	// is dead-lettered.
	Process(ctx context.Context, b *Batch) error
}

// Sink is a destination of data. Each route has its own instance, which the engine opens once.
type Sink interface {
	// Open connects, or checks in another way that the first batch can be delivered. It calls
	// o.Lanes at least once before it returns. An error ends the route before anything is read.
	// After a wait, the engine creates and opens another sink.
	Open(ctx context.Context, o SinkOptions) error
	// Close frees all resources. It is called when no Deliver is running. It may be called twice.
	Close() error
}

// SinkOptions are the parameters of Sink.Open.
type SinkOptions struct {
	Pipeline, Route string
	// ResumeToken tells the sink where to continue in its output after a restart. A file sink, for
	// example, truncates its file to the length in the token. The token is the last one that an
	// ordered lane reported (Report.ResumeToken) before the checkpoint was saved. It is "" the
	// first time.
	ResumeToken string
	// Lanes sets the whole list of workers. The sink calls it again when the list changes because
	// of DNS, restarts or remote nodes. Workers are identified by name: existing names are kept,
	// new names are added, and missing names get no further batches. It is safe for concurrent use.
	Lanes func([]Lane)
	// StateDir returns the path of the route's own directory for the sink, beneath the state
	// directory, and creates it. The contents survive restarts. StateDir is nil if there is no
	// state directory, as in a test.
	StateDir func() (string, error)
	// DeadLetter makes dead letters of records that the engine has counted as delivered. A
	// [ParkingSink] needs it. It returns when the dead letters are durable. It is safe for
	// concurrent use. DeadLetter is nil if dead letters cannot be stored, as in a test.
	DeadLetter func(ctx context.Context, letters []DeadLetter) error
	// Synced returns a time. Records that were settled before it are not read again after a crash,
	// because their positions are in a synced checkpoint. Records that were settled later may be
	// read again. The time is zero before the first sync. Synced is safe for concurrent use. It is
	// nil if there is no checkpoint, as in a test.
	Synced func() time.Time
	// Own and Keep are the results of [RequestSource.KeepsRequests]. If Keep is above 0, several
	// processes use the ledger at the same time. Load then must not fence off other processes.
	// Before a process stores a request, it checks in the ledger whether another process has stored
	// the request.
	Own  string
	Keep time.Duration
	// OwnLetters is set in a replay of dead letters if a broker assigns the partitions of the route
	// that wrote the letters. Several processes then own partitions of that route's ledger. So the
	// sink keeps the progress of the replay in a separate ledger.
	OwnLetters bool
	// Once is set if the work of this route is finite (`run --once`).
	Once bool
}

// Preferred is an optional interface of a sink's options (the result of [Component].Options).
// PreferredBatch returns the batch limits at which the sink is fast. They are used if the config
// does not set `batch:`. A zero field means no preference. PreferredBatch is called after decoding.
type Preferred interface{ PreferredBatch() BatchLimits }
