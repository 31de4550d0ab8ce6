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
//	withdrawAccounts ─▶ Withdrawn ─▶ settleRange
//	                    │            └ from here on, marks contain the closed ranges
//	                    └ from here on, Read may return the partitions again

// canWithdraw reports whether b may be taken back: none of its records has become a dead letter.
func canWithdraw(b *stream.Batch) bool {
	return !slices.ContainsFunc(b.Records, func(r stream.Record) bool {
		return r.State == stream.Dead
	})
}

// withdrawAccounts subtracts b from the counts, and removes the accounts of partitions that may be
// read again. It returns the spans of the other partitions: their ranges are to be closed after
// Withdrawn. A removed partition must not be closed, because it may have a new account by then.
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
