//penstock:pure

package pipeline

import (
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// This file is about batches that the reader withdraws before a worker gets them. Their records are
// counted neither as read nor as settled.
//
// A withdrawal takes three steps. First, the accounts of partitions that the source may read again
// are removed. Then the reader's method Withdrawn is called. Last, the withdrawn ranges of the
// other partitions are marked as settled, so that the watermarks can move past them:
//
//	withdrawAccounts ─▶ Withdrawn ─▶ settleRange
//	                    │            └ from here on, marks contain the withdrawn ranges as settled
//	                    └ from here on, Read may return the partitions again

// canWithdraw reports whether b may be withdrawn. It may not if one of its records has become a
// dead letter.
func canWithdraw(b *stream.Batch) bool {
	return !slices.ContainsFunc(b.Records, func(r stream.Record) bool {
		return r.State == stream.Dead
	})
}

// withdrawAccounts subtracts b from the counts of k. It removes the accounts (the progress in
// memory) of partitions that the source may read again (readsAgain returns true), and returns the
// spans of all other partitions. The caller then calls the reader's method Withdrawn, and after
// that settles the returned spans, but no others: partitions with removed accounts may have new
// accounts by then.
func withdrawAccounts(
	k *books, b *stream.Batch, readsAgain func(id string) bool,
) (closing []stream.Span) {
	k.counts.readRecords -= int64(b.Origins)
	k.counts.readBytes -= b.RawBytes() - int64(b.Added)
	gone := make(map[*partition]bool)
	for i := range b.Spans {
		s := &b.Spans[i]
		p := k.parts[s.Part.ID]
		switch {
		case readsAgain(s.Part.ID):
			if p != nil {
				delete(k.parts, s.Part.ID)
				delete(k.pending, p)
				gone[p] = true
			}
		case p != nil && s.From != s.To:
			closing = append(closing, *s)
		}
	}
	if len(gone) > 0 {
		k.dirty = slices.DeleteFunc(k.dirty, func(p *partition) bool { return gone[p] })
	}
	return closing
}
