//penstock:pure

package nats

import (
	"math"

	"github.com/penstock-io/penstock/stream"
)

// cursor is the position of a reader by sequence.
type cursor struct {
	next  int64          // the last sequence that was read or passed
	from  int64          // the start of the span of the current batch
	above []stream.Range // settled, beyond next
}

// step is the reaction to the next message of a stream.
type step uint8

const (
	takeMessage step = iota
	skipMessage      // it is settled
	endSpan          // a settled range begins before it: the span ends there, and the message comes in the next
)

// begin begins a batch.
func (c *cursor) begin() { c.from = c.next }

// advance moves the cursor to a message. hasSpan reports whether the batch has a span, which must
// not continue behind a settled range.
func (c *cursor) advance(seq uint64, hasSpan bool) step {
	n := int64(min(seq, math.MaxInt64))
	for len(c.above) > 0 && n > c.above[0].From.Num {
		first := c.above[0]
		if c.next < first.From.Num {
			c.next = first.From.Num // the sequences before the range have no messages
			return endSpan
		}
		if hasSpan {
			return endSpan
		}
		c.next = max(c.next, first.To.Num)
		c.from, c.above = c.next, c.above[1:]
	}
	if n <= c.next {
		return skipMessage
	}
	c.next = n
	return takeMessage
}
