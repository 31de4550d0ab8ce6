//penstock:pure

package nats

import (
	"math"

	"github.com/penstock-io/penstock/stream"
)

// cursor is the position of a reader that reads a stream in the order of its sequence numbers.
type cursor struct {
	last  int64          // the last sequence read or skipped
	from  int64          // start of the current batch's span
	above []stream.Range // settled ranges beyond last
}

// step is the result of advance: the treatment of the next message of a stream.
type step uint8

const (
	takeMessage step = iota
	skipMessage      // the message is settled
	// the span ends at a settled range before the message; the message belongs to the next span
	endSpan
)

// begin records the current position as the start of the span of a new batch.
func (c *cursor) begin() { c.from = c.last }

// advance moves the cursor to the message with sequence seq and returns takeMessage, or skipMessage
// if the message is settled (delivered, dead-lettered or dropped). A span must not continue beyond
// a settled range. If such a range lies before the message, advance may therefore move the cursor
// only to the start of the range, and return endSpan. hasSpan means that the batch already has a
// span. Example: the cursor is at 10, the positions 11 to 20 are settled, and seq is 21. With a
// span, advance returns endSpan. Without one, it moves the cursor to 21 and returns takeMessage.
func (c *cursor) advance(seq uint64, hasSpan bool) step {
	n := int64(min(seq, math.MaxInt64))
	for len(c.above) > 0 && n > c.above[0].From.Num {
		first := c.above[0]
		if c.last < first.From.Num {
			c.last = first.From.Num // the sequences before the range have no messages
			return endSpan
		}
		if hasSpan {
			return endSpan
		}
		c.last = max(c.last, first.To.Num)
		c.from, c.above = c.last, c.above[1:]
	}
	if n <= c.last {
		return skipMessage
	}
	c.last = n
	return takeMessage
}
