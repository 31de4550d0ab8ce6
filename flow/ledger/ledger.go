//penstock:pure

// Package ledger knows what is settled of one partition on one route: a watermark, below which everything is,
// and the ranges above it that are too.
//
// It is the cumulative ack of the Storm system (acks 1, 3, 4 record 1; then ack 2 records 4) with the
// selective acks kept, so that after a crash only the holes are sent again. A Ledger is pure and not safe for
// concurrent use: its owner, the route's control loop, calls it. It never reads meaning into a position and
// never forgets a settle.
package ledger

import (
	"cmp"
	"strings"
)

// Position is a source's own mark of an item, ordered by Num, then Key. Only the source reads meaning into it. The zero
// value lies before every item.
type Position struct {
	Num int64  // byte offset, topic offset, stream sequence, row number
	Key string // order-preserving encoding of a keyset (SQL); "" elsewhere
}

// Compare returns -1, 0 or +1 as p lies before, at or after q.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Num, q.Num); c != 0 {
		return c
	}
	return strings.Compare(p.Key, q.Key)
}

// Range is the half-open stretch (From, To].
type Range struct{ From, To Position }
