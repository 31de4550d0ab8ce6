//penstock:pure

// Package ledger tracks which items of one partition are settled (delivered, dead-lettered or
// dropped). It keeps a watermark, up to which every item is settled, and the settled ranges above
// the watermark.
//
// It combines cumulative and selective acks, so that after a crash only the missing ranges are sent
// again. Example: after the acks of the items 1, 3 and 4, the watermark is 1, and the range (2, 4]
// above it is settled. After the ack of item 2, the watermark is 4.
//
//	l, err := ledger.New(watermark, settled) // as saved before the restart
//	...
//	err = l.Open(r)                          // for each range, in the order of reading
//	...
//	l.Settle(r)                              // in any order
//	...
//	watermark, settled = l.Progress()        // to be saved
//
// A Ledger is pure and not safe for concurrent use. It does not interpret positions, and never
// forgets a settled range. The package runs under testing/synctest.
package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxOpen is the maximum number of ranges that are open, which means read and not settled. It
// bounds the memory of a ledger. If the first range settles late, the ledger keeps the settled
// ranges after it, in at most 4*MaxOpen entries of 56 bytes.
const MaxOpen = 1 << 16

// ErrFull means that MaxOpen ranges are open. Open the range again when Room reports true.
var ErrFull = errors.New("ledger: too many ranges are open")

// Position is the position of an item in a source, ordered by Num, then Key. Only the source
// interprets it. The zero value precedes every item.
type Position struct {
	Num int64  // byte offset, topic offset, stream sequence, row number
	Key string // order-preserving encoding of a keyset (SQL); otherwise ""
}

// Compare returns -1, 0 or +1 if p is before, at or after q.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Num, q.Num); c != 0 {
		return c
	}
	return strings.Compare(p.Key, q.Key)
}

// String returns the number, followed by the quoted key if there is one.
func (p Position) String() string {
	if p.Key == "" {
		return fmt.Sprint(p.Num)
	}
	return fmt.Sprintf("%d %q", p.Num, p.Key)
}

// Range is the half-open range (From, To]: it contains To, but not From.
type Range struct{ From, To Position }

// String returns the ends, as in "(3, 7]".
func (r Range) String() string { return fmt.Sprintf("(%v, %v]", r.From, r.To) }

// Ledger tracks the ranges of one partition that were opened (their items were read), and the
// ranges that are settled. Create it with New.
type Ledger struct {
	watermark Position // everything at or before it is settled
	tail      Position // everything at or before it was opened, or was settled before the restart
	// open has the ranges between watermark and tail, settled or not. Each starts at the end of the
	// previous one.
	open    ring
	pending int // entries of open that are not settled
	// restored has the ranges that were settled before the restart and that Open has not reached
	// yet. They are ascending, disjoint and not adjacent.
	restored []Range
}

// New returns a ledger that resumes from saved progress: everything up to watermark is settled, and
// so are the ranges in settled. These may be unordered, adjacent and overlapping. Empty ranges are
// ignored. A range that ends before it begins is an error. New does not retain the slice of ranges.
func New(watermark Position, settled []Range) (*Ledger, error) {
	l := &Ledger{watermark: watermark, tail: watermark}
	for _, r := range settled {
		c := r.From.Compare(r.To)
		if c > 0 {
			return nil, fmt.Errorf("ledger: settled range %v ends before it begins; "+
				"the saved progress is damaged", r)
		}
		if c < 0 && r.To.Compare(watermark) > 0 {
			l.restored = append(l.restored, r)
		}
	}
	l.restored = Join(l.restored)
	l.skip()
	return l, nil
}

// Join sorts ranges and joins adjacent and overlapping ones, in place.
func Join(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return a.From.Compare(b.From) })
	joined := ranges[:0]
	for _, r := range ranges {
		joined = join(joined, 0, r)
	}
	return joined
}

// join appends r to dst, or extends the last range of dst[base:] by r if the two are adjacent or
// overlap. r must not begin before that last range.
func join(dst []Range, base int, r Range) []Range {
	if n := len(dst); n > base && r.From.Compare(dst[n-1].To) <= 0 {
		if r.To.Compare(dst[n-1].To) > 0 {
			dst[n-1].To = r.To
		}
		return dst
	}
	return append(dst, r)
}

// Open adds the next range in the order of reading. r.From must be [Ledger.Next]. r must not extend
// beyond [Ledger.Limit], the start of the next range that was settled before the restart. If r is
// empty (From equals To), Open does nothing. After an error the ledger is unchanged. After ErrFull,
// Open can be repeated later.
func (l *Ledger) Open(r Range) error {
	if c := r.From.Compare(l.tail); c != 0 {
		if c > 0 {
			return fmt.Errorf("ledger: open %v: %v before it was never opened; "+
				"open ranges in read order", r, Range{l.tail, r.From})
		}
		return fmt.Errorf("ledger: open %v: everything up to %v is open or settled already; "+
			"read on from there", r, l.tail)
	}
	switch c := r.To.Compare(r.From); {
	case c < 0:
		return fmt.Errorf("ledger: open %v: it ends before it begins", r)
	case c == 0:
		return nil
	case len(l.restored) > 0 && r.To.Compare(l.restored[0].From) > 0:
		return fmt.Errorf("ledger: open %v: %v of it was settled before the restart; cut at %v", r,
			l.restored[0], l.restored[0].From)
	case l.pending >= MaxOpen:
		return fmt.Errorf("%w: %d", ErrFull, l.pending)
	}
	l.open.push(entry{to: r.To})
	l.pending++
	l.tail = r.To
	l.skip()
	return nil
}

// skip moves the tail past the restored ranges that begin there.
func (l *Ledger) skip() {
	for len(l.restored) > 0 && l.restored[0].From.Compare(l.tail) <= 0 {
		if to := l.restored[0].To; to.Compare(l.tail) > 0 {
			l.open.push(entry{to: to, settled: true})
			l.tail = to
		}
		l.restored[0] = Range{}
		l.restored = l.restored[1:]
	}
	l.advance()
}

// advance moves the watermark to the first position after which something is not settled.
func (l *Ledger) advance() {
	for l.open.n > 0 {
		e := l.open.at(0)
		if e.settled {
			l.watermark = e.to
			l.open.pop()
			continue
		}
		if len(e.parts) == 0 || e.parts[0].From.Compare(l.watermark) > 0 {
			return
		}
		l.watermark = e.parts[0].To
		e.parts = slices.Delete(e.parts, 0, 1)
	}
}

// Settle marks r as settled and reports whether any part of r was not settled before. Ranges may be
// settled in any order. r may be a part of an opened range, or cover several opened ranges. If r is
// empty or extends beyond the opened ranges, Settle does nothing.
//
// If n ranges are open and r overlaps m of them, Settle takes O(log n + m). If r covers only a part
// of an open range that has k settled parts already, it also takes O(k).
func (l *Ledger) Settle(r Range) bool {
	if r.To.Compare(l.tail) > 0 || r.From.Compare(r.To) >= 0 || r.To.Compare(l.watermark) <= 0 {
		return false
	}
	from := r.From
	if from.Compare(l.watermark) < 0 {
		from = l.watermark
	}
	settled := false
	for i := l.open.find(from); i < l.open.n; i++ {
		e, begin := l.open.at(i), l.begin(i)
		if begin.Compare(r.To) >= 0 {
			break
		}
		piece := Range{From: from, To: r.To}
		if begin.Compare(from) > 0 {
			piece.From = begin
		}
		if e.to.Compare(r.To) < 0 {
			piece.To = e.to
		}
		if e.settled {
			continue
		}
		if i == 0 && len(e.parts) == 0 && piece.From == l.watermark && piece.To != e.to {
			l.watermark, settled = piece.To, true // pieces that settle in order need no parts
			continue
		}
		settled = e.settle(piece, begin) || settled
		if e.settled {
			l.pending--
		}
	}
	l.advance()
	return settled
}

// begin returns the start of entry i.
func (l *Ledger) begin(i int) Position {
	if i == 0 {
		return l.watermark
	}
	return l.open.at(i - 1).to
}

// Progress returns the watermark and the settled ranges above it, which are ascending, disjoint and
// not adjacent. They are valid arguments of New.
func (l *Ledger) Progress() (watermark Position, above []Range) { return l.AppendProgress(nil) }

// AppendProgress is like Progress, but appends the ranges to dst, so that a caller can reuse
// memory. It does not join them with ranges already in dst.
func (l *Ledger) AppendProgress(dst []Range) (watermark Position, above []Range) {
	base, begin := len(dst), l.watermark
	for i := range l.open.n {
		e := l.open.at(i)
		if e.settled {
			dst = join(dst, base, Range{begin, e.to})
		}
		for _, p := range e.parts {
			dst = join(dst, base, p)
		}
		begin = e.to
	}
	return l.watermark, append(dst, l.restored...)
}

// Watermark returns the position up to which everything is settled.
func (l *Ledger) Watermark() Position { return l.watermark }

// Next returns the position at which the next range must begin.
func (l *Ledger) Next() Position { return l.tail }

// Limit returns the start of the next range that was settled before the restart. The next opened
// range must not extend beyond this start. Limit returns false if there is no such range.
func (l *Ledger) Limit() (end Position, ok bool) {
	if len(l.restored) == 0 {
		return Position{}, false
	}
	return l.restored[0].From, true
}

// Pending returns the number of open ranges that are not completely settled.
func (l *Ledger) Pending() int { return l.pending }

// Room reports whether another range may be opened: fewer than MaxOpen are pending.
func (l *Ledger) Room() bool { return l.pending < MaxOpen }

// Span returns the difference in Position.Num between the watermark and the end of the opened
// ranges. If positions are byte offsets, it is a number of bytes. Example: with the watermark 500,
// opened ranges up to 900 and the settled range (700, 800], Span is 400. A crash at this moment
// repeats 300 of them, because the settled range is not sent again.
func (l *Ledger) Span() int64 { return l.tail.Num - l.watermark.Num }
