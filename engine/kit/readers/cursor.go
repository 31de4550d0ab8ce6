//penstock:pure

package readers

import (
	"math"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// Cursor is the position of a reader in one partition.
type Cursor struct {
	At    int64          // position after the last record that was read
	Above []stream.Range // settled ranges (delivered, dead-lettered or dropped) after At, ascending
}

// IsSettled reports whether the records just after At are settled.
func (c *Cursor) IsSettled() bool { return len(c.Above) > 0 && c.Above[0].From.Num <= c.At }

// Skip moves the cursor to the end of the first settled range in Above, whose records need not be
// read. Call it only if IsSettled returns true.
func (c *Cursor) Skip() {
	c.At = max(c.At, c.Above[0].To.Num)
	c.Above = c.Above[1:]
}

// Border returns the position up to which a batch may be extended. This is the first end of an
// earlier batch (in cuts) after c.At, or the start of the first settled range, whichever comes
// first. If there is neither, Border returns [math.MaxInt64]. If IsSettled returns true, the
// returned position is not after c.At.
func (c *Cursor) Border(cuts Cuts) int64 {
	border := cuts.next(c.At)
	if len(c.Above) > 0 {
		border = min(border, c.Above[0].From.Num)
	}
	return border
}

// Cover extends the only span of b up to a position (the parameter to), and moves the cursor there.
// If b has no span, Cover adds one for the given partition.
func (c *Cursor) Cover(b *stream.Batch, part *stream.Partition, to int64) {
	if len(b.Spans) == 0 {
		from := stream.Position{Num: c.At}
		b.Spans = append(b.Spans, stream.Span{Part: part, Range: stream.Range{From: from}})
	}
	span := &b.Spans[0]
	span.To.Num, span.Bytes = to, len(b.Data)
	c.At = to
}

// Cuts are the positions at which a route's batches have ended, ascending. A restarted route ends
// its batches there again. The batches then have the same ids, and a sink recognizes them.
type Cuts []int64

// Add adds the end of a batch. It does nothing unless this position is after all other ends.
func (c *Cuts) Add(at int64) {
	if n := len(*c); n == 0 || (*c)[n-1] < at {
		*c = append(*c, at)
	}
}

// Has reports whether a batch has ended at this position.
func (c Cuts) Has(at int64) bool {
	_, found := slices.BinarySearch(c, at)
	return found
}

// Trim removes the ends up to the given settled position, including an end at this position.
func (c *Cuts) Trim(settled int64) {
	n, _ := slices.BinarySearch(*c, settled+1)
	*c = slices.Delete(*c, 0, n)
}

// next returns the first end after the given position, or [math.MaxInt64] if there is none.
func (c Cuts) next(at int64) int64 {
	if n, _ := slices.BinarySearch(c, at+1); n < len(c) {
		return c[n]
	}
	return math.MaxInt64
}
