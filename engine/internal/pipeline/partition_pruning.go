package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// addMetadata adds the reader's metadata (such as a fingerprint of a file) to the saved progress of
// each partition. It omits metadata that is too long. Progress without metadata is valid, too:
// metadata only saves work or detects mistakes.
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

// forget deletes the progress of partitions that the source reports as deleted. A partition with
// unsettled, waiting or unsaved data stays for now, and a later call deletes its progress. If the
// sink has a ledger, keepFinished may keep other partitions, too.
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
	if err := r.layers.deleteParts(drop); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// lateTransaction is the time between the deletion of a partition from the checkpoint and from the
// sink's ledger. After this time, no transaction of this run with data of the partition can still
// be open and commit. The time is ample: the sinks make their databases end the session of a
// vanished client after about a minute.
const lateTransaction = time.Hour

// prunedPartition is a partition that the source reports as deleted. Its progress was removed from
// the checkpoint, but is still in the ledger that the sink keeps in its own database.
type prunedPartition struct {
	id string
	at time.Time
}

// pruneLate queues the partitions in drop. They must be removed from the sink's ledger, but only
// after lateTransaction. It omits those in idle: this run has read no data of them, so they can be
// removed at once. pruneLate returns the queued partitions for which lateTransaction has passed: no
// transaction with their data can be open any more.
func (s *resumed) pruneLate(drop []string, idle map[string]bool) (ids []string) {
	now := time.Now()
	for _, id := range drop {
		if !idle[id] {
			s.late = append(s.late, prunedPartition{id, now})
		}
	}
	for len(s.late) > 0 && now.Sub(s.late[0].at) > lateTransaction {
		ids = append(ids, s.late[0].id)
		s.late = s.late[1:]
	}
	return ids
}

// maxKeptFinished is the maximum number of deleted partitions whose progress stays in the
// checkpoint because the sink's ledger still has rows of them. Above this number, the progress of
// the oldest partition is deleted first.
const maxKeptFinished = 10_000

// keepFinished is called with deleted partitions whose accounts are closed (the first argument). It
// decides which of them stay in the checkpoint, and appends these to r.resumed.kept. It returns the
// others: their progress can be deleted.
//
// A partition stays if it is finished and this run has read it. The sink's ledger keeps the rows of
// such a partition until a later run. Until then, the checkpoint must tell the source that the
// partition is finished. Otherwise the source could read the partition again for another route that
// has no ledger and has already deleted its own progress.
func (r *saver) keepFinished(now []string, idle map[string]bool) (drop []string) {
	for _, id := range now {
		if m, ok := r.layers.mark(id); ok && m.Finished && !idle[id] {
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

// pruneAtOnce is the maximum number of partitions that a sink removes in one transaction.
const pruneAtOnce = 200

// prune makes a sink with a ledger delete its rows of the deleted partitions in r.prunable. Their
// progress must have been deleted from the checkpoint durably before. In the opposite order, the
// ledger could have less progress than the checkpoint after a crash.
//
// A partition enters r.prunable only when no open transaction can still add rows of it:
//
//   - If the ledger had the partition at the start, and this run has not read it, this is at once:
//     Load prevents all transactions of earlier runs from committing.
//   - Otherwise it is after lateTransaction (see pruneLate) or in a later run.
//
// If the process is killed, the next run notices the deleted partitions and deletes their rows.
func (r *saver) prune(ctx context.Context) error {
	r.mu.Lock()
	r.prunable = slices.DeleteFunc(r.prunable, r.books.handedOut) // the partition was put back
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

// pruneAll prunes the partitions that are still in r.prunable at the end of a run, because a short
// run may not have called prune at all.
func (r *saver) pruneAll(ctx context.Context) error {
	if len(r.prunable) == 0 {
		return nil
	}
	if err := r.layers.synced(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	for len(r.prunable) > 0 && r.prune(ctx) == nil { // after a failure, a later run prunes the rest
		continue
	}
	return nil
}

// forget closes the accounts of deleted partitions (the account of a partition has its settled and
// unsettled ranges). It returns the ids in two lists: now has the partitions with closed accounts.
// later has those with unsettled, waiting or unsaved data: their accounts stay open, and the caller
// must try again later. idle has those partitions of the list now of which this run has read no
// data.
func (k *books) forget(ids []string) (now, later []string, idle map[string]bool) {
	idle = make(map[string]bool)
	for _, id := range ids {
		p := k.parts[id]
		if k.waits(id) || p != nil && (p.dirty || p.ledger.Pending() > 0) {
			later = append(later, id)
			continue
		}
		if !k.handedOut(id) {
			idle[id] = true
		}
		delete(k.parts, id)
		now = append(now, id)
	}
	return now, later, idle
}

// handedOut reports whether this run has read data of the partition since the partition's account
// (its ranges in memory) was last closed.
func (k *books) handedOut(id string) bool { return k.parts[id] != nil && k.parts[id].handedOut }

// maxIdleAccounts is the number of open accounts of partitions (see partition) above which
// closeIdle closes those without unsettled or unsaved data, to save memory.
const maxIdleAccounts = 1024

// closeIdle closes accounts of partitions: their settled and unsettled ranges in memory. It closes
// only those of partitions in saved that have no unsettled or unsaved data, until at most
// maxIdleAccounts are open. So a hundred thousand files do not need a hundred thousand accounts.
// When a closed account is needed again, it is opened with the progress in the checkpoint.
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

// deleteParts deletes the progress of partitions from both layers of the checkpoint.
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
