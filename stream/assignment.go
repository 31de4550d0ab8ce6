package stream

import (
	"context"
	"fmt"
	"time"
)

// AssignedSource is an optional part of a [Source] that reads from a broker: the broker assigns
// partitions to this process and revokes them while it runs, and it stores their positions. Its
// Open returns an [AssignedReader].
//
// The engine keeps no marks of such a source. A partition resumes where the sink's ledger says, if
// the sink has one, else where the broker's store says. A sink with a ledger must be a
// [PartitionLedger].
type AssignedSource interface {
	Source
	// HasAssignments reports whether this instance is such a source. It is called once, before
	// Open.
	HasAssignments() bool
}

// AssignedReader is the [Reader] of an [AssignedSource].
//
//   - Read hands out a partition only between its Assign and its Revoke or Lose. Spans carry the
//     number of the assignment. All spans of a batch belong to one assignment. Positions have no
//     Key.
//   - Commit stores marks in the broker. It is called by one goroutine at a time: that of the
//     checkpoint, or the caller of Revoke. It skips marks whose Assignment is not current, so that
//     it never commits a partition that another process owns. The slice is the reader's: if the
//     broker cannot store all ranges of a mark, Commit replaces its Above by the ranges that were
//     stored, and the others count against the replay bound.
//   - Close gives all partitions back. Everything that had settled was committed before it.
type AssignedReader interface {
	Reader
	// Owns asks the broker whether this process still owns the partition. The answer is to a
	// question that was sent after the call: a heartbeat that was answered, or a lease that was
	// read.
	Owns(ctx context.Context, partitionID string) (bool, error)
}

// Assignments is the engine's side of an [AssignedSource], one for each Reader. The source calls
// it when the broker assigns or revokes partitions. It is safe for concurrent use, and may be
// called from the start of Open until Close has returned. Open must not wait for it, Read must not
// call it, and the caller holds no lock that Commit or Owns takes. The calls for one partition are
// made one after the other: before it revokes a partition that is still being assigned, the source
// ends the ctx of Assign and waits.
//
//	Assign ──▶ assigned ──Revoke──▶ revoking ──▶ ended
//	              └──────────Lose──────┴─────────▶ ended
type Assignments interface {
	// Assign begins an assignment of each partition and returns in the same order where to read it
	// from. It fences off other owners in the sink's ledger, which may take as long as the sink is
	// down. The error means that nothing was assigned, because ctx or the route has ended or an
	// offer is invalid.
	Assign(ctx context.Context, offers []PartitionOffer) ([]Assignment, error)
	// Revoke ends assignments in an orderly way. Batches that no worker has are withdrawn. Those
	// that a worker has may finish until ctx is done, for at most [RevokeTimeout]. Then Revoke
	// commits the progress and forgets the partitions. Batches that are still with a worker may be
	// delivered a second time by the next owner, unless the sink has a ledger. Partitions that are
	// not assigned are ignored.
	Revoke(ctx context.Context, partitionIDs []string)
	// Lose ends assignments that the broker has already given to another process, or may have:
	// nothing is committed, and running deliveries are canceled, also those that an earlier Revoke
	// of the partitions has left. It does not block.
	Lose(partitionIDs []string)
}

// RevokeTimeout bounds the wait of a revocation for deliveries in progress. A source whose broker
// waits less passes a ctx that ends earlier.
const RevokeTimeout = 15 * time.Second

// PartitionOffer is a partition that the broker has assigned, with the position that it has
// stored.
type PartitionOffer struct {
	Part      Partition
	Origin    PositionOrigin
	Watermark Position // where to begin, if the sink has no ledger
	Above     []Range  // settled above it
}

// PositionOrigin is the origin of the position of a [PartitionOffer].
type PositionOrigin uint8

// The origins of a position.
const (
	// FromStart means that nothing is stored: the source's options decide where to begin.
	FromStart PositionOrigin = iota
	// FromOthers means that other software stored the position, such as a tool that resets
	// offsets.
	FromOthers
	// FromCommit means that a Commit of this software stored it.
	FromCommit
)

// Assignment is one partition's time with one Reader.
type Assignment struct {
	// Number is unique in the Reader. Spans and marks carry it, so that an earlier assignment of
	// the same partition is never taken for this one.
	Number uint32
	// Mark is where to read from: behind the watermark, without the ranges above it.
	Mark Mark
	// Err is not nil if the partition must not be read. The engine has reported it. The partition
	// may stay assigned, unread, so that it does not wander from process to process.
	Err error
}

// PartitionLedger is an optional part of a [TransactionalSink] whose ledger can have several
// owners: each partition is fenced separately. With an [AssignedSource] the engine calls Take
// instead of Load. A process that is cut off and still delivers cannot commit, because its epoch is
// not the newest.
//
// Deliver and Store check [Span].Assignment. They return a [FencedError] for an assignment that was
// not taken and confirmed, was released, or whose epoch another process has passed.
type PartitionLedger interface {
	TransactionalSink
	// Take begins a new epoch of each partition and then returns, in the same order, the progress
	// in the ledger. No transaction of an earlier epoch commits after Take has returned. It is
	// called again for the same assignment after a FencedError, if this process still owns the
	// partition.
	Take(ctx context.Context, parts []Taking) ([]Taken, error)
	// Confirm allows deliveries of assignments that Take has taken last. The engine has verified
	// meanwhile that this process owns the partitions: a process that was suspended before Take,
	// and lost them, must not write into the epoch that it took from the true owner. Confirm does
	// no I/O.
	Confirm(assignments []uint32)
	// Release removes assignments. It does no I/O and waits for nothing.
	Release(assignments []uint32)
}

// Taking is one partition for [PartitionLedger].Take.
type Taking struct {
	Assignment uint32
	Part       Partition
	// Start is stored as the progress of a partition that is missing in the ledger.
	Start Mark
	// MustExist forbids that: a missing partition is not taken. It is set if the broker stores
	// progress that the ledger should have.
	MustExist bool
}

// Taken is the ledger's answer about one partition.
type Taken struct {
	Mark  Mark
	Found bool // the ledger had the partition before; if false, Mark is Taking.Start
}

// FencedError is the error of a delivery to a partition that this process may not write any more.
// It may be wrapped. The engine asks the broker for the owner of the partition, and takes it again
// or gives it up.
type FencedError struct {
	Assignment uint32
	Part       Partition
	Err        error // nil, or the reason
}

// Error returns a message with the name of the partition.
func (e *FencedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("partition %q: another process has taken it over", e.Part.Name)
	}
	return fmt.Sprintf("partition %q: another process has taken it over: %v", e.Part.Name, e.Err)
}

// Unwrap returns the reason.
func (e *FencedError) Unwrap() error { return e.Err }
