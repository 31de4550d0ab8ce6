//penstock:pure

package pipeline

import (
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// This file has the accounts of batches that the reader takes back before a worker gets them. They
// count neither as read nor as settled.
//
// Partitions that may be read again lose their account. In the others, the withdrawn range is
// closed, so that it looks like a delivered one. The reader must learn between the two steps which
// data was withdrawn:
//
//	withdrawAccounts ─▶ Withdrawn ─▶ withdrawRanges
//	                    │            └ from here on, marks contain the closed ranges
//	                    └ from here on, Read may return the partitions again

// canWithdraw reports whether b may be taken back: none of its records has become a dead letter.
func canWithdraw(b *stream.Batch) bool {
	return !slices.ContainsFunc(b.Records, func(r stream.Record) bool {
		return r.State == stream.Dead
	})
}

// withdrawAccounts subtracts b from the counts, and removes the accounts of partitions that may be
// read again.
func withdrawAccounts(k *books, b *stream.Batch, readsAgain func(id string) bool) {
	k.counts.readRecords -= int64(b.Origins)
	k.counts.readBytes -= b.RawBytes() - int64(b.Added)
	for i := range b.Spans {
		id := b.Spans[i].Part.ID
		if p := k.parts[id]; p != nil && readsAgain(id) {
			delete(k.parts, id)
			delete(k.pending, p)
			k.dirty = slices.DeleteFunc(k.dirty, func(q *partition) bool { return q == p })
		}
	}
}

// withdrawRanges closes the other ranges of b.
func withdrawRanges(k *books, b *stream.Batch) {
	for i := range b.Spans {
		s := &b.Spans[i]
		if p := k.parts[s.Part.ID]; p != nil && s.From != s.To {
			k.settleRange(p, s.Range)
			k.markDirty(p)
		}
	}
}
