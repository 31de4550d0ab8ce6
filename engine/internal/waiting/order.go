//penstock:pure

package waiting

import (
	"slices"
	"sort"

	"github.com/penstock-io/penstock/stream"
)

// blockSize is the maximum number of entries in a block of an order. It bounds the entries that an
// insertion moves.
const blockSize = 512

// order has the entries of one partition in blocks, sorted by the start of their ranges. The ranges
// do not overlap. No block is empty.
type order struct {
	blocks [][]uint32
	n      int
}

// cursor is a position in an order.
type cursor struct{ block, at int }

// seek returns the position of the first entry that ends after pos.
func (o *order) seek(x *index, pos stream.Position) cursor {
	c := o.last(x, pos)
	if c.block < 0 {
		return cursor{}
	}
	if x.at(o.blocks[c.block][c.at]).rangeOf().To.Compare(pos) <= 0 {
		o.next(&c)
	}
	return c
}

// last returns the position in o of the last entry that begins at or before pos. If there is none,
// the field block of the result is -1.
func (o *order) last(x *index, pos stream.Position) cursor {
	behind := func(i uint32) bool { return x.at(i).rangeOf().From.Compare(pos) > 0 }
	b := sort.Search(len(o.blocks), func(b int) bool { return behind(o.blocks[b][0]) }) - 1
	if b < 0 {
		return cursor{block: -1}
	}
	s := o.blocks[b]
	return cursor{b, sort.Search(len(s), func(k int) bool { return behind(s[k]) }) - 1}
}

// get returns the entry at c. It returns false if c is behind the last entry.
func (o *order) get(c cursor) (uint32, bool) {
	if c.block >= len(o.blocks) {
		return 0, false
	}
	return o.blocks[c.block][c.at], true
}

func (o *order) next(c *cursor) {
	if c.at++; c.at >= len(o.blocks[c.block]) {
		c.block, c.at = c.block+1, 0
	}
}

func (o *order) insert(x *index, i uint32) {
	o.n++
	c := o.last(x, x.at(i).rangeOf().From)
	switch {
	case len(o.blocks) == 0:
		o.blocks = append(o.blocks, []uint32{i})
		return
	case c.block < 0:
		c = cursor{0, -1}
	}
	s := slices.Insert(o.blocks[c.block], c.at+1, i)
	o.blocks[c.block] = s
	if len(s) <= blockSize {
		return
	}
	cut := len(s) / 2
	if c.block == len(o.blocks)-1 && c.at+2 == len(s) {
		cut = len(s) - 1 // ranges mostly arrive in order, so leave the full block full
	}
	o.blocks = slices.Insert(o.blocks, c.block+1, slices.Clone(s[cut:]))
	o.blocks[c.block] = slices.Clip(s[:cut])
}

func (o *order) remove(x *index, i uint32) {
	c := o.last(x, x.at(i).rangeOf().From)
	if c.block < 0 || o.blocks[c.block][c.at] != i {
		panic("waiting: BUG: an entry is not in its order")
	}
	o.n--
	s := slices.Delete(o.blocks[c.block], c.at, c.at+1)
	o.blocks[c.block] = s
	if len(s) == 0 {
		o.blocks = slices.Delete(o.blocks, c.block, c.block+1)
	}
}

// all yields the entries in order.
func (o *order) all(yield func(uint32) bool) {
	for _, b := range o.blocks {
		for _, i := range b {
			if !yield(i) {
				return
			}
		}
	}
}
