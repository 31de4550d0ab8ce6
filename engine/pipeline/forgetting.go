package pipeline

import (
	"fmt"

	"github.com/penstock-io/penstock"
)

// note has the reader say what it wants to find again with each mark. A note that is too long is left out: it can only
// save work or find a mistake.
func (r *route) note(marks []penstock.Mark) {
	noter, ok := r.reader.(penstock.Noter)
	if !ok {
		return
	}
	for i := range marks {
		if note := noter.Note(marks[i]); len(note) <= penstock.MaxNote {
			marks[i].Note = note
		}
	}
}

// forget drops what is kept of partitions that the source calls gone; of one in work, later.
func (r *route) forget() error {
	f, ok := r.reader.(penstock.Forgetter)
	if !ok {
		return nil
	}
	r.gone = append(r.gone, f.Forget()...)
	if len(r.gone) == 0 {
		return nil
	}
	r.mu.Lock()
	now, later := r.books.forget(r.gone)
	r.mu.Unlock()
	r.gone = later
	if err := r.memory.forget(now); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// forget drops partitions of which nothing is in work and nothing unsaved, and returns the others as later.
func (k *books) forget(ids []string) (now, later []string) {
	for _, id := range ids {
		if p := k.parts[id]; p != nil && (p.dirty || p.ledger.Pending() > 0) {
			later = append(later, id)
			continue
		}
		delete(k.parts, id)
		now = append(now, id)
	}
	return now, later
}

// keptAccounts is how many accounts of partitions stay open of which nothing is in work.
const keptAccounts = 1024

// rest closes the accounts of partitions of which nothing is in work and everything is saved: one that comes again is opened at its
// mark. A hundred thousand files would hold as many ledgers else.
func (k *books) rest(saved []penstock.Mark) {
	for _, m := range saved {
		if len(k.parts) <= keptAccounts {
			return
		}
		p := k.parts[m.Part.ID]
		if p == nil || p.dirty || p.ledger.Pending() > 0 || len(m.Above) > 0 || p.sealed && !p.finished ||
			p.ledger.Watermark() != m.Watermark || p.finished != m.Finished {
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
