package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// addMetadata adds the reader's metadata to each mark. Metadata that is too long is omitted. This
// is harmless, because metadata only saves work or detects mistakes.
func (r *saver) addMetadata(marks []stream.Mark) {
	tracker, ok := r.reader.(stream.PartitionTracker)
	if !ok {
		return
	}
	for i := range marks {
		if note := tracker.Metadata(marks[i]); len(note) <= stream.MaxMetadata {
			marks[i].Metadata = note
		}
	}
}

// forget removes the state of partitions that the source reports as deleted. Partitions with
// unsettled or unsaved data are removed by a later call.
func (r *saver) forget() error {
	tracker, ok := r.reader.(stream.PartitionTracker)
	if !ok {
		return nil
	}
	r.deleted = append(r.deleted, tracker.Deleted()...)
	if len(r.deleted) == 0 {
		return nil
	}
	r.mu.Lock()
	now, later, idle := r.books.forget(r.deleted)
	r.mu.Unlock()
	r.deleted = later
	drop := now
	if r.resumed != nil {
		r.prunable = append(r.prunable, r.resumed.forget(now, idle)...)
		drop = r.keepFinished(now, idle)
		r.prunable = append(r.prunable, r.resumed.pruneLate(drop, idle)...)
	}
	if err := r.memory.deleteParts(drop); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// lateTransaction bounds the time in which an open transaction of this run may still commit data of
// a forgotten partition. Databases end the sessions of vanished clients after a minute.
const lateTransaction = time.Hour

// prunedPartition is a partition that was removed from the local state, but not yet from the sink's
// ledger.
type prunedPartition struct {
	id string
	at time.Time
}

// pruneLate records the partitions in drop that were handed out in this run. It returns those that
// were recorded more than lateTransaction ago, because no transaction with their data can still be
// open.
func (s *resumed) pruneLate(drop, idle []string) (ids []string) {
	now := time.Now()
	isIdle := make(map[string]bool, len(idle))
	for _, id := range idle {
		isIdle[id] = true
	}
	for _, id := range drop {
		if !isIdle[id] {
			s.late = append(s.late, prunedPartition{id, now})
		}
	}
	for len(s.late) > 0 && now.Sub(s.late[0].at) > lateTransaction {
		ids = append(ids, s.late[0].id)
		s.late = s.late[1:]
	}
	return ids
}

// maxKeptFinished bounds the marks that a route keeps of deleted partitions while the sink's ledger
// still has them. The oldest are removed first.
const maxKeptFinished = 10_000

// keepFinished returns those of the given partitions (now) that need no mark any more.
//
// The sink's ledger removes a partition of this run only after lateTransaction or in a later run.
// Until then the local mark tells the source that the partition is finished. Otherwise the source
// would read the partition again for a route without a ledger that has already removed its own
// mark.
func (r *saver) keepFinished(now, idle []string) (drop []string) {
	isIdle := make(map[string]bool, len(idle))
	for _, id := range idle {
		isIdle[id] = true
	}
	for _, id := range now {
		if m, ok := r.memory.mark(id); ok && m.Finished && !isIdle[id] {
			r.resumed.kept = append(r.resumed.kept, id)
		} else {
			drop = append(drop, id)
		}
	}
	if over := len(r.resumed.kept) - maxKeptFinished; over > 0 {
		drop = append(drop, r.resumed.kept[:over]...)
		r.resumed.kept = slices.Clone(r.resumed.kept[over:])
	}
	return drop
}

// pruneAtOnce bounds the partitions that a sink removes in one transaction.
const pruneAtOnce = 200

// prune makes a transactional sink remove its rows of partitions whose deletion from the checkpoint
// is durable. In the opposite order, the ledger could have less than the local state.
//
// prune removes only partitions that Load returned and that this run has not handed out. Load has
// fenced off every earlier transaction with their data, so no late transaction can repeat it
// unnoticed. Other partitions are removed after lateTransaction or in a later run. If the process
// is killed, the next run loads them, finds them deleted and removes them.
func (r *saver) prune(ctx context.Context) error {
	r.mu.Lock()
	r.prunable = slices.DeleteFunc(r.prunable, r.books.handedOut) // it was put back in the meantime
	r.mu.Unlock()
	if len(r.prunable) == 0 {
		return nil
	}
	ids := r.prunable[:min(len(r.prunable), pruneAtOnce)]
	if err := r.ledgered.Prune(ctx, ids); err != nil {
		r.host.log.Warn("the sink could not drop its progress of deleted files; retrying",
			"files", len(r.prunable), "error", err)
		return err
	}
	if r.prunable = r.prunable[len(ids):]; len(r.prunable) == 0 {
		r.prunable = nil
	}
	return nil
}

// pruneAll prunes all remaining partitions at the end of a run. A short run may end without any
// other call of prune.
func (r *saver) pruneAll(ctx context.Context) error {
	if len(r.prunable) == 0 {
		return nil
	}
	if err := r.memory.synced(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	for len(r.prunable) > 0 && r.prune(ctx) == nil { // after a failure, a later run prunes the rest
		continue
	}
	return nil
}

// forget removes the accounts of those partitions that have no unsettled or unsaved data. It
// returns these partitions (now) and the others (later). idle are the partitions in the first list
// that were not handed out in this run.
func (k *books) forget(ids []string) (now, later, idle []string) {
	for _, id := range ids {
		p := k.parts[id]
		if k.waits(id) || p != nil && (p.dirty || p.ledger.Pending() > 0) {
			later = append(later, id)
			continue
		}
		if !k.handedOut(id) {
			idle = append(idle, id)
		}
		delete(k.parts, id)
		now = append(now, id)
	}
	return now, later, idle
}

// handedOut reports whether a span of the partition was handed out in this run and the partition
// has not been forgotten since.
func (k *books) handedOut(id string) bool { return k.parts[id] != nil && k.parts[id].handedOut }

// maxIdleAccounts bounds the open accounts of partitions without unsettled data.
const maxIdleAccounts = 1024

// closeIdle closes the accounts of partitions without unsettled or unsaved data. A hundred thousand
// files therefore do not need as many ledgers. An account is opened again, at its mark, when it is
// needed.
func (k *books) closeIdle(saved []stream.Mark) {
	for _, m := range saved {
		if len(k.parts) <= maxIdleAccounts {
			return
		}
		p := k.parts[m.Part.ID]
		if p == nil || p.dirty || p.ledger.Pending() > 0 || len(m.Above) > 0 || p.sealed &&
			!p.finished ||
			p.ledger.Watermark() != m.Watermark || p.finished != m.Finished || k.waits(m.Part.ID) {
			continue
		}
		delete(k.parts, m.Part.ID)
	}
}

// deleteParts drops the marks of partitions from both layers.
func (m *layeredStore) deleteParts(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if m.layered() {
		for _, id := range ids {
			delete(m.pendingMarks, id)
		}
		if err := m.store.Forget(m.upper, ids); err != nil {
			return err
		}
	}
	return m.store.Forget(m.lower, ids)
}
