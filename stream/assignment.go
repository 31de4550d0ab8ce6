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

// AssignedReader is the [Reader] of an [AssignedSource]. These rules apply to its methods:
//
//   - Read returns data of a partition only after the Assign of the partition, and before its
//     Revoke or Lost. Each span carries the number of the assignment. All spans of a batch belong
//     to one assignment. Positions have no Key.
//   - Commit stores marks in the broker. It is called by the checkpoint's goroutine, or by the
//     goroutine that called Revoke, but never by both at once. Commit skips a mark if its
//     Assignment is not current, because another process may own that partition by now. Some
//     brokers cannot store all settled ranges of a mark. Commit then sets the mark's Above to the
//     ranges that it has stored. A crash would repeat the other ranges, so the engine counts their
//     bytes against `checkpoint.replay`.
//   - Close gives all partitions back to the broker. The engine commits all settled progress before
//     it calls Close.
type AssignedReader interface {
	Reader
	// Owns asks the broker whether this process still owns the partition. It must send a new
	// request for this, such as a heartbeat or the read of a lease, and not use an earlier result.
	Owns(ctx context.Context, partitionID string) (bool, error)
}

// Assignments is the engine's side of an [AssignedSource], one for each Reader. The source calls it
// when the broker assigns or revokes partitions. It is safe for concurrent use, and may be called
// from the start of Source.Open until Reader.Close has returned. These rules prevent deadlocks:
//
//   - Open must not wait until a call of Assignments returns.
//   - Read must not call Assignments.
//   - The caller must not hold a lock that Commit or Owns takes.
//
// Calls for one partition must not overlap. If the broker revokes a partition while its Assign is
// still running, the source cancels the ctx of Assign, waits until Assign has returned, and then
// calls Revoke.
//
//	Assign ──▶ assigned ──Revoke──▶ revoking ──▶ ended
//	              └──────────Lost──────┴─────────▶ ended
type Assignments interface {
	// Assign begins an assignment of each offered partition and returns the assignments, with their
	// start positions, in the same order. If the sink has a ledger, Assign first makes the ledger
	// refuse transactions of the partitions' earlier owners (fencing). While the sink is down,
	// Assign waits.
	//
	// An error means that nothing was assigned: ctx or the route has ended, an offer is invalid, or
	// the broker did not confirm that this process owns the partitions. If the process still owns
	// them, the source calls Assign again.
	Assign(ctx context.Context, offers []PartitionOffer) ([]Assignment, error)
	// Revoke ends assignments in an orderly way. It withdraws batches that no worker has, and waits
	// for deliveries in progress until ctx is done, for at most [RevokeTimeout]. Then it commits
	// the progress and removes the partitions. A delivery that is still running at this commit is
	// not part of the committed progress. The next owner then delivers its batch again, unless the
	// sink has a ledger. Revoke ignores partitions that are not assigned.
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
	// Number is unique among the assignments of a Reader. Spans and marks carry it. If a partition
	// is revoked and assigned again, the engine thereby distinguishes a late batch of the earlier
	// assignment from a batch of the current one.
	Number uint32
	// Mark is the progress to resume from: read after its watermark, and skip the ranges in Above.
	Mark Mark
	// Err is not nil if the partition must not be read. The engine has already reported the error.
	// The source may keep the partition without reading it, so that the broker does not move it
	// from process to process.
	Err error
}

// PartitionLedger is an optional interface of a [TransactionalSink] that fences each partition of
// its ledger separately, so that several processes can own different partitions. Each time a
// process becomes the owner of a partition, Take begins a new epoch of that partition. If an
// earlier owner has lost its connection to the broker and still delivers, it cannot commit, because
// its epoch is not the newest.
//
// With an [AssignedSource] the engine calls Take instead of Load. Deliver and Store check
// [Span].Assignment, and return a [FencedError] in these cases:
//
//   - The assignment was not taken, or not confirmed.
//   - The assignment was released.
//   - Another process has taken the partition since.
type PartitionLedger interface {
	TransactionalSink
	// Take begins a new epoch of each partition and then returns, in the same order, the progress
	// in the ledger. No transaction of an earlier epoch commits after Take has returned. After a
	// FencedError, the engine calls Take again for the same assignment if this process still owns
	// the partition.
	Take(ctx context.Context, parts []Taking) ([]Taken, error)
	// Confirm allows deliveries for assignments of the latest Take. It does no I/O.
	//
	// Between Take and Confirm the engine asks the broker whether this process still owns the
	// partitions. Without this check, a process that was suspended could write to partitions that
	// it no longer owns. Example: process A is suspended just before Take, and the broker gives its
	// partitions to process B. When A resumes, its Take begins an epoch that is newer than the
	// epoch of B. So the ledger would accept the transactions of A, and refuse those of B.
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
	// MustExist forbids Take to add the partition to the ledger. If the ledger does not contain the
	// partition, Take does not take it. The engine sets MustExist if the broker stores progress of
	// the partition, because the ledger should then have progress, too. If it has none, the ledger
	// was lost, or the sink was configured with another ledger.
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
