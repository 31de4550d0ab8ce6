package stream

import "context"

// Rereadable is an optional interface of the options of a [Source]. It lets `penstock audit` read
// the data a second time, while a route runs and without side effects.
type Rereadable interface {
	// Reread describes how to read all data again. The error is the reason if these options make
	// that impossible.
	Reread() (Reread, error)
}

// Reread describes how a source reads all of its data again.
type Reread struct {
	// Options are passed to [Component].New of the source.
	Options any
	// Finished reports whether the source has finished the partition of this name (see [Finisher]).
	// All records of a finished partition were settled, even if the partition's mark has been
	// deleted. Nil means that no partition is finished.
	Finished func(name string) bool
}

// AuditedSink is an optional interface of a [Sink]. It lets `penstock audit` count the sink's
// contents while a route runs, without changing them.
type AuditedSink interface {
	// Audit connects to the receiver. It is called instead of Open. Only Pipeline, Route and
	// ResumeToken of o are set.
	Audit(ctx context.Context, o SinkOptions) (Audit, error)
}

// Audit compares the records that a receiver must hold with the records that it holds. It is used
// by one goroutine.
type Audit interface {
	// Ledger returns the progress in the ledger of a TransactionalSink. Unlike Load, it does not
	// fence off the process that uses the ledger. ok is false if the sink has no ledger.
	Ledger(ctx context.Context) (marks []Mark, ok bool, err error)
	// Expect is called with each batch that was read a second time. It adds the records of b that
	// are neither dropped nor dead-lettered to the records that the receiver must hold. If the
	// receiver cannot have accepted a record, Expect may call [Batch.Drop] for it. It does not
	// retain b.
	Expect(ctx context.Context, b *Batch) error
	// Compare passes each difference to found. Records with equal content are reported as one
	// difference.
	Compare(ctx context.Context, found func(AuditDifference) error) error
	// Close frees all resources.
	Close() error
}

// AuditDifference describes equal records of which the receiver holds fewer or more than expected.
type AuditDifference struct {
	RecordID string // of one of them; see [Batch.AppendRecordID]
	Missing  int64  // records that are missing; negative if the receiver holds more than expected
}
