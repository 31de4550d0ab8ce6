//penstock:pure

package flow

import (
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/flow/ledger"
)

// MaxTies is the maximum number of rows that share one position. They are sent in one batch,
// regardless of [PackOptions].
const MaxTies = 1 << 16

// duplicateFilter skips rows of a Book that were settled before the restart. It also checks that
// the positions of the rows do not decrease. The goroutine that reads the rows owns it.
type duplicateFilter struct {
	watermark ledger.Position
	ahead     []ledger.Range // settled before the restart and not passed by reading; ascending
	unique    bool

	newest ledger.Position // position of the last row; zero if there was none
	out    ledger.Position // end of the last batch returned to the sender
	ties   int             // rows to deliver at position newest
	passed bool            // a settled range has been passed since the last row to deliver
	gap    bool            // a settled range lies between the last two rows to deliver
}

// mustDeliver reports whether the next row, which has the given position, must be delivered.
func (s *duplicateFilter) mustDeliver(at ledger.Position) (bool, error) {
	switch c := at.Compare(s.newest); {
	case at.Compare(ledger.Position{}) <= 0:
		return false, fmt.Errorf("a row is at %v; the zero position precedes every row: "+
			"count from 1", at)
	case c < 0:
		return false, fmt.Errorf("a row at %v comes after one at %v; give rows in the order of "+
			"their positions", at, s.newest)
	case c > 0:
		s.newest, s.ties = at, 0
	case s.ties > 0:
		return true, s.acceptTie()
	}
	if at.Compare(s.watermark) <= 0 {
		return false, nil
	}
	for len(s.ahead) > 0 && at.Compare(s.ahead[0].To) > 0 {
		s.ahead, s.passed = s.ahead[1:], true
	}
	if len(s.ahead) > 0 && at.Compare(s.ahead[0].From) > 0 {
		return false, nil
	}
	s.ties, s.gap, s.passed = 1, s.passed, false
	return true, nil
}

// acceptTie accepts a row with the same position as the row before it. The error gives the reason
// if it must not be accepted.
func (s *duplicateFilter) acceptTie() error {
	s.ties, s.gap = s.ties+1, false
	switch {
	case s.unique:
		return fmt.Errorf("two rows have the position %v, although BookOptions.Unique is true",
			s.newest)
	case s.newest.Compare(s.out) <= 0:
		return fmt.Errorf("a row at %v comes after the batch that ended there was handed out, "+
			"where Linger was over; "+
			"give positions a Key that tells rows apart, or read only up to where no row can "+
			"come any more", s.newest)
	case s.ties > MaxTies:
		return fmt.Errorf("more than %d rows have position %v, and would be one batch; "+
			"give positions a Key that tells rows apart", MaxTies, s.newest)
	}
	return nil
}

// progressTracker tracks the batches of a Book. The Book's mutex guards it.
type progressTracker[R any] struct {
	at      func(R) ledger.Position
	ledger  *ledger.Ledger
	batches []entry[R] // in read order
	closed  int        // entries of batches that have settled completely and are not yet removed

	// broken is the error of an invalid row or part of a batch. The watermark must not pass that
	// row. So no batch is opened and no progress is saved any more.
	broken  error
	dirty   bool  // something has settled since the last takeProgress
	unsaved int64 // bytes that have settled since the last takeProgress and are in the progress
	largest int64 // bytes of the largest batch so far
}

// entry is a batch that the sender holds. Its range of positions begins after from and includes to.
// Its rows are nil when all of them have settled.
type entry[R any] struct {
	from, to ledger.Position
	rows     []R
	pieces   *pieces // nil until a part of the batch settles by itself
}

// pieces counts the unsettled rows of a batch that settles in parts, by position.
type pieces struct {
	ends  []ledger.Position // the distinct positions of the rows, ascending
	left  []int             // unsettled rows, by index in ends
	total int               // sum of left
	// bytes counts the bytes of settled parts that are not in the progress yet, because another row
	// at one of their positions has not settled.
	bytes int64
}

// open enters a batch in the ledger as unsettled, and returns the end of the batch's range. Batches
// must be entered in read order. The parameter newest is the position of the last row read, which
// may be later than the batch. If newest is after the start of a range that was settled before the
// restart, the source has no row between the batch and that range. The batch's range then extends
// up to it.
func (a *progressTracker[R]) open(it Item[[]R], newest ledger.Position) (end ledger.Position,
	err error) {
	if a.broken != nil {
		return end, a.broken
	}
	first, end := a.at(it.Value[0]), a.at(it.Value[len(it.Value)-1])
	limit, ahead := a.ledger.Limit()
	for ; ahead && first.Compare(limit) > 0; limit, ahead = a.ledger.Limit() {
		// The rows of this range were deleted from the source. The ledger still expects them,
		// because they were unsettled before the restart. Settle the range without rows.
		none := ledger.Range{From: a.ledger.Next(), To: limit}
		if err := a.ledger.Open(none); err != nil {
			return end, err
		}
		a.ledger.Settle(none)
		a.dirty = true
	}
	if ahead && newest.Compare(limit) > 0 {
		end = limit // the source has no row between the batch and limit either
	}
	r := ledger.Range{From: a.ledger.Next(), To: end}
	if err := a.ledger.Open(r); err != nil {
		return end, err
	}
	a.batches = append(a.batches, entry[R]{from: r.From, to: r.To, rows: it.Value})
	a.largest = max(a.largest, it.Bytes)
	return end, nil
}

// settle notes that a batch, or a piece of one, is settled.
func (a *progressTracker[R]) settle(it Item[[]R]) error {
	a.dirty = true
	if len(it.Value) == 0 {
		a.unsaved += it.Bytes // a Split or Bisect returned a piece without rows
		return nil
	}
	at := a.at(it.Value[0])
	i, _ := slices.BinarySearchFunc(a.batches, at, func(e entry[R], at ledger.Position) int {
		return e.to.Compare(at)
	})
	if i == len(a.batches) || a.batches[i].rows == nil || at.Compare(a.batches[i].from) <= 0 {
		return errUnknownRow(at)
	}
	e := &a.batches[i]
	if e.pieces == nil && len(it.Value) == len(e.rows) {
		a.ledger.Settle(ledger.Range{From: e.from, To: e.to})
		a.unsaved += it.Bytes
		a.close(e)
		return nil
	}
	if e.pieces == nil {
		e.pieces = a.countPieces(e)
	}
	return a.settlePiece(e, it)
}

func (a *progressTracker[R]) settlePiece(e *entry[R], it Item[[]R]) error {
	p, waits := e.pieces, false
	for i, row := range it.Value {
		at := a.at(row)
		whole, err := a.settleRow(e, at)
		if err != nil {
			return err
		}
		if next := i + 1; !whole && (next == len(it.Value) || a.at(it.Value[next]) != at) {
			waits = true // for rows at this position that are in other pieces
		}
	}
	if waits {
		p.bytes += it.Bytes
	} else {
		a.unsaved += it.Bytes
	}
	if p.total == 0 {
		a.unsaved += p.bytes
		a.close(e)
	}
	return nil
}

// errUnknownRow returns the error for pieces that do not match their batch.
func errUnknownRow(at ledger.Position) error {
	return fmt.Errorf("a row at %v has settled that is in no batch, or had settled before; "+
		"the pieces of a Split or of Bisect must be exactly the rows of the batch", at)
}

func (a *progressTracker[R]) countPieces(e *entry[R]) *pieces {
	p := &pieces{total: len(e.rows)}
	for _, row := range e.rows {
		at := a.at(row)
		if n := len(p.ends); n > 0 && p.ends[n-1] == at {
			p.left[n-1]++
			continue
		}
		p.ends, p.left = append(p.ends, at), append(p.left, 1)
	}
	return p
}

// settleRow counts one row at a position as settled. If this was the last unsettled row there, the
// position is settled, and the result is true.
func (a *progressTracker[R]) settleRow(e *entry[R], at ledger.Position) (whole bool, err error) {
	p := e.pieces
	i, found := slices.BinarySearchFunc(p.ends, at, ledger.Position.Compare)
	if !found || p.left[i] == 0 {
		return false, errUnknownRow(at)
	}
	p.total--
	if p.left[i]--; p.left[i] > 0 {
		return false, nil
	}
	r := ledger.Range{From: e.from, To: at}
	if i > 0 {
		r.From = p.ends[i-1]
	}
	if i == len(p.ends)-1 {
		r.To = e.to
	}
	a.ledger.Settle(r)
	return true, nil
}

// minSweep is the minimum number of settled entries that close removes at once.
const minSweep = 64

// close releases the rows of a settled batch. When more than half of the entries have settled, it
// removes the settled ones, in amortized O(1).
func (a *progressTracker[R]) close(e *entry[R]) {
	e.rows, e.pieces = nil, nil
	a.closed++
	if a.closed >= minSweep && 2*a.closed > len(a.batches) {
		a.batches = slices.DeleteFunc(a.batches, func(e entry[R]) bool { return e.rows == nil })
		a.closed = 0
	}
}

// takeProgress returns the progress to save, and the bytes that have settled since the previous
// progress was taken. It reports false if there is nothing new to save. The ranges are appended to
// dst.
func (a *progressTracker[R]) takeProgress(dst []ledger.Range) (watermark ledger.Position,
	above []ledger.Range,
	bytes int64, ok bool) {
	if !a.dirty || a.broken != nil {
		return ledger.Position{}, dst, 0, false
	}
	watermark, above = a.ledger.AppendProgress(dst)
	bytes, a.unsaved, a.dirty = a.unsaved, 0, false
	return watermark, above, bytes, true
}

// due reports whether the settled rows should be saved now. They should be saved if they reach a
// quarter of replay. They should also be saved if they leave less room in replay than the largest
// batch needs, because the next batch could not be sent before a save.
func (a *progressTracker[R]) due(replay int64) bool {
	return a.unsaved > 0 && (a.unsaved >= replay/4 || a.unsaved+a.largest > replay)
}
