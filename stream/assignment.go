package stream

import (
	"context"
	"fmt"
	"time"
)

// AssignedSource is an optional interface of a [Source] that reads from a broker. The broker
// assigns partitions to this process, revokes them while the source runs, and stores their
// positions. Open returns an [AssignedReader].
//
// The engine stores no marks of an AssignedSource in its checkpoint. A partition resumes at the
// position that the broker stores. But if the sink has a ledger, the partition resumes at the
// ledger's position, and the sink must be a [PartitionLedger].
type AssignedSource interface {
	Source
	// HasAssignments reports whether this instance is an AssignedSource, given its options. It is
	// called once, before Open.
	HasAssignments() bool
}

// AssignedReader is the [Reader] of an [AssignedSource].
//
//   - Read returns data of a partition only between its Assign and its Revoke or Lost. Spans
//     carry the number of the assignment. All spans of a batch belong to one assignment.
//     Positions have no Key.
//   - Commit stores marks in the broker. It is called by one goroutine at a time: the
//     checkpoint's, or the caller of Revoke. It skips marks whose Assignment is not current, so
//     that it never commits a partition that another process owns. Commit may change the slice:
//     if the broker cannot store all ranges of a mark, Commit sets the mark's Above to the
//     stored ranges. The ranges that are not stored count as data that a crash would repeat,
//     which `checkpoint.replay` bounds.
//   - Close gives all partitions back to the broker. The engine commits all settled progress
//     before it calls Close.
type AssignedReader interface {
	Reader
	// Owns asks the broker whether this process still owns the partition. The result comes from a
	// request that was sent after the call, such as a heartbeat or the read of a lease.
	Owns(ctx context.Context, partitionID string) (bool, error)
}

// Assignments is the engine's side of an [AssignedSource], one for each Reader. The source calls it
// when the broker assigns or revokes partitions. It is safe for concurrent use, and may be called
// from the start of Source.Open until Reader.Close has returned. Three rules prevent deadlocks.
// Open must not wait for a call of Assignments to return. Read must not call Assignments. The
// caller must not hold a lock that Commit or Owns takes. Calls for one partition must not overlap.
// To revoke a partition that is still being assigned, the source cancels the ctx of Assign and
// waits until Assign returns.
//
//	Assign ──▶ assigned ──Revoke──▶ revoking ──▶ ended
//	              └──────────Lost──────┴─────────▶ ended
type Assignments interface {
	// Assign begins an assignment of each offered partition and returns the assignments, with their
	// start positions, in the same order. In the sink's ledger, it excludes earlier owners of the
	// partitions (fencing), and waits while the sink is down. An error means that nothing was
	// assigned: ctx or the route has ended, an offer is invalid, or the broker did not confirm that
	// this process owns the partitions. If the process still owns them, the source calls Assign
	// again.
	Assign(ctx context.Context, offers []PartitionOffer) ([]Assignment, error)
	// Revoke ends assignments in an orderly way. It withdraws batches that no worker has, and waits
	// for deliveries in progress until ctx is done, for at most [RevokeTimeout]. Then it commits
	// the progress and removes the partitions. If a delivery has not ended before this commit, the
	// next owner may deliver its batch a second time, unless the sink has a ledger. Revoke ignores
	// partitions that are not assigned.
	Revoke(ctx context.Context, partitionIDs []string)
	// Lost ends assignments of partitions that another process may own already. It commits nothing,
	// and cancels running deliveries, including those that an earlier Revoke left running. It does
	// not block.
	Lost(partitionIDs []string)
}

// RevokeTimeout bounds the time for which Revoke waits for deliveries in progress. If the broker
// allows less time, the source passes a ctx that ends earlier.
const RevokeTimeout = 15 * time.Second

// PartitionOffer is a partition that the broker has assigned to this process, with the position
// that the broker stores for it.
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
	// FromStart means that the broker stores no position. The source's options decide where to
	// begin.
	FromStart PositionOrigin = iota
	// FromOthers means that the position was stored by other software, such as a tool that resets
	// offsets.
	FromOthers
	// FromCommit means that a Commit of this software stored the position.
	FromCommit
)

// Assignment is the period in which one Reader owns one partition.
type Assignment struct {
	// Number is unique among the assignments of a Reader. Spans and marks carry it. Thus a late
	// batch of an earlier assignment of the same partition is not mistaken for a batch of this one.
	Number uint32
	// Mark is the progress to resume from: read after its watermark, and skip the ranges in Above.
	Mark Mark
	// Err is not nil if the partition must not be read. The engine has already reported the error.
	// The source may keep the partition without reading it, so that the broker does not move it
	// from process to process.
	Err error
}

// PartitionLedger is an optional interface of a [TransactionalSink] that fences each partition of
// its ledger separately, so that several processes can own different partitions. Take begins a new
// epoch of a partition for each owner. A process that is cut off from the broker and still delivers
// cannot commit, because its epoch is not the newest.
//
// With an [AssignedSource] the engine calls Take instead of Load. Deliver and Store check
// [Span].Assignment. They return a [FencedError] for an assignment that was not taken and
// confirmed, that was released, or whose partition another process has taken since.
type PartitionLedger interface {
	TransactionalSink
	// Take begins a new epoch of each partition and then returns, in the same order, the progress
	// in the ledger. No transaction of an earlier epoch commits after Take has returned. After a
	// FencedError, the engine calls Take again for the same assignment if this process still owns
	// the partition.
	Take(ctx context.Context, parts []Taking) ([]Taken, error)
	// Confirm allows deliveries for assignments of the latest Take. Between Take and Confirm the
	// engine verifies that this process still owns the partitions. The check is needed because a
	// process may be suspended just before Take. While it is suspended, the broker gives the
	// partitions to another process. When it resumes, Take begins an epoch that is newer than that
	// of the present owner. Without the check, it would then write to partitions that it does not
	// own. Confirm does no I/O.
	Confirm(assignments []uint32)
	// Release removes assignments. It does no I/O and waits for nothing.
	Release(assignments []uint32)
}

// Taking is one partition's request to [PartitionLedger].Take.
type Taking struct {
	Assignment uint32
	Part       Partition
	// Start is the progress that Take stores for a partition that is missing in the ledger.
	Start Mark
	// MustExist means that Take does not take the partition if the ledger does not contain it. The
	// engine sets MustExist if the broker stores progress of the partition. In this case the ledger
	// should contain the partition as well. If it does not, the ledger was lost, or it is another
	// one.
	MustExist bool
}

// Taken is one partition's result of [PartitionLedger].Take.
type Taken struct {
	Mark  Mark
	Found bool // the ledger had the partition before; if false, Mark is Taking.Start
}

// FencedError is the error of a delivery to a partition that this process may no longer write. It
// may be wrapped. The engine then asks the broker whether this process still owns the partition,
// and takes the partition again or gives it up.
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
