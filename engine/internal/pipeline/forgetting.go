package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// note has the reader say what it wants to find again with each mark. A note that is too long is
// left out: it can only save work or find a mistake.
func (r *keeper) note(marks []stream.Mark) {
	tracker, ok := r.reader.(stream.PartitionTracker)
	if !ok {
		return
	}
	for i := range marks {
		if note := tracker.Note(marks[i]); len(note) <= stream.MaxNote {
			marks[i].Note = note
		}
	}
}

// forget drops what is kept of partitions that the source calls gone; of one in work, later.
func (r *keeper) forget() error {
	tracker, ok := r.reader.(stream.PartitionTracker)
	if !ok {
		return nil
	}
	r.gone = append(r.gone, tracker.Forget()...)
	if len(r.gone) == 0 {
		return nil
	}
	r.mu.Lock()
	now, later, idle := r.books.forget(r.gone)
	r.mu.Unlock()
	r.gone = later
	if err := r.memory.forget(now); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if r.resumed != nil {
		r.prunable = append(r.prunable, r.resumed.forget(now, idle)...)
	}
	return nil
}

// pruneAtOnce is how many partitions a sink drops in one transaction.
const pruneAtOnce = 200

// prune has a sink with a ledger of its own drop what it holds of partitions that the checkpoint
// has forgotten, durably, before: else it would hold less than the local state says. Only of those
// that Load returned and of which this run has handed out nothing: every transaction with anything
// of them was fenced off by Load, so none can come late and find no trace of what it repeats. The
// others are dropped in a later run. What a kill leaves is loaded, found to be gone and dropped
// then.
func (r *keeper) prune(ctx context.Context) error {
	r.mu.Lock()
	r.prunable = slices.DeleteFunc(r.prunable, r.books.handed) // it was put back meanwhile
	r.mu.Unlock()
	if len(r.prunable) == 0 {
		return nil
	}
	ids := r.prunable[:min(len(r.prunable), pruneAtOnce)]
	if err := r.ledgered.Prune(ctx, ids); err != nil {
		r.host.log.Warn("the sink could not drop what it holds of files that are gone; it is tried again",
			"files", len(r.prunable), "error", err)
		return err
	}
	if r.prunable = r.prunable[len(ids):]; len(r.prunable) == 0 {
		r.prunable = nil
	}
	return nil
}

// pruneAll is prune of all, at the end of a run: a short one may come to it here alone.
func (r *keeper) pruneAll(ctx context.Context) error {
	if len(r.prunable) == 0 {
		return nil
	}
	if err := r.memory.synced(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	for len(r.prunable) > 0 && r.prune(ctx) == nil { // what it cannot the next run drops
		continue
	}
	return nil
}

// forget drops partitions of which nothing is in work and nothing unsaved, and returns the others
// as later. Of idle ones, which are among those that are forgotten now, nothing was handed out in
// this run.
func (k *books) forget(ids []string) (now, later, idle []string) {
	for _, id := range ids {
		p := k.parts[id]
		if k.waits(id) || p != nil && (p.dirty || p.ledger.Pending() > 0) {
			later = append(later, id)
			continue
		}
		if !k.handed(id) {
			idle = append(idle, id)
		}
		delete(k.parts, id)
		now = append(now, id)
	}
	return now, later, idle
}

// handed says whether anything of a partition was handed out in this run and not forgotten since.
func (k *books) handed(id string) bool { return k.parts[id] != nil && k.parts[id].handed }

// keptAccounts is how many accounts of partitions stay open of which nothing is in work.
const keptAccounts = 1024

// rest closes the accounts of partitions of which nothing is in work and everything is saved: one
// that comes again is opened at its mark. A hundred thousand files would hold as many ledgers else.
func (k *books) rest(saved []stream.Mark) {
	for _, m := range saved {
		if len(k.parts) <= keptAccounts {
			return
		}
		p := k.parts[m.Part.ID]
		if p == nil || p.dirty || p.ledger.Pending() > 0 || len(m.Above) > 0 || p.sealed && !p.finished ||
			p.ledger.Watermark() != m.Watermark || p.finished != m.Finished || k.waits(m.Part.ID) {
			continue
		}
		delete(k.parts, m.Part.ID)
	}
}

// forget drops the marks of partitions, in both layers.
func (m *memory) forget(ids []string) error {
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
