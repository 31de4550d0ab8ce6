//penstock:pure

package ledger

import (
	"slices"
	"sort"
)

// entry is one range between the watermark and the tail. It begins at the end of the previous one.
type entry struct {
	to      Position
	parts   []Range // settled pieces: ascending, disjoint, not adjacent, never the whole
	settled bool
}

// settle adds piece, a range within the entry, to the settled parts. It reports whether any part
// of piece was not settled before. The parameter begin is the start of the entry.
func (e *entry) settle(piece Range, begin Position) bool {
	// The parts from i to j-1 touch the piece and are joined with it. Part i is the first part that
	// ends at or after the start of the piece. Part j is the first part that begins after the end
	// of the piece.
	i, _ := slices.BinarySearchFunc(e.parts, piece.From,
		func(p Range, at Position) int { return p.To.Compare(at) })
	j := i
	for j < len(e.parts) && e.parts[j].From.Compare(piece.To) <= 0 {
		j++
	}
	if j > i {
		first, last := e.parts[i], e.parts[j-1]
		if j == i+1 && first.From.Compare(piece.From) <= 0 && first.To.Compare(piece.To) >= 0 {
			return false
		}
		if first.From.Compare(piece.From) < 0 {
			piece.From = first.From
		}
		if last.To.Compare(piece.To) > 0 {
			piece.To = last.To
		}
	}
	if piece.From.Compare(begin) == 0 && piece.To.Compare(e.to) == 0 {
		e.settled, e.parts = true, nil
		return true
	}
	e.parts = slices.Replace(e.parts, i, j, piece)
	return true
}

// ring is a queue of entries in ascending order of their positions, with a binary search. The
// length of buf is 0 or a power of two.
type ring struct {
	buf  []entry
	head int
	n    int
}

func (r *ring) at(i int) *entry { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// find returns the index of the first entry that ends after p, or n if there is none.
func (r *ring) find(p Position) int {
	return sort.Search(r.n, func(i int) bool { return r.at(i).to.Compare(p) > 0 })
}

func (r *ring) push(e entry) {
	if r.n == len(r.buf) {
		r.grow()
	}
	*r.at(r.n) = e
	r.n++
}

func (r *ring) pop() {
	*r.at(0) = entry{} // release its keys and parts
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}

// grow makes space in a full ring. It first joins adjacent settled entries, so that at least every
// second entry is unsettled. If more than half of the ring is still in use, at least a quarter of
// the ring is unsettled entries, and grow doubles the size. So the number of unsettled entries
// bounds the size. A push takes amortized O(1) time.
func (r *ring) grow() {
	kept := make([]entry, 0, max(4, len(r.buf)*2))
	for i := range r.n {
		e := r.at(i)
		if n := len(kept); n > 0 && e.settled && kept[n-1].settled {
			kept[n-1].to = e.to
			continue
		}
		kept = append(kept, *e)
	}
	r.head, r.n = 0, len(kept)
	if half := len(r.buf) / 2; r.n > half || half == 0 {
		r.buf = kept[:cap(kept)]
		return
	}
	clear(r.buf)
	copy(r.buf, kept)
}
