//penstock:pure

package table

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// turn is when something is to be looked at again: a partition behind whose end nothing was, or the
// list of the tables.
type turn struct {
	due      time.Duration // the reader's clock
	interval time.Duration // between the last looks in vain; 0: the last one was not
}

// The bounds of how often the end is looked at.
const (
	pollShare = 100 // the shortest wait at the end is so small a part of `poll`,
	pollLeast = 5 * time.Millisecond
	openWait  = 250 * time.Millisecond // the longest while transactions are open that may write before the last row
)

// pacing is how the waits at the end grow.
func pacing(poll time.Duration) backoff.Adaptive {
	return backoff.Adaptive{Min: max(pollLeast, poll/pollShare), Max: max(pollLeast, poll)}
}

// found makes it due at once: where something was, more may follow.
func (t *turn) found() { *t = turn{} }

// nothing makes it due later than the last time. waiting: a row was seen that does not count yet;
// left is how long it lacks of the lag, 0 when other transactions have to end first.
func (t *turn) nothing(now time.Duration, pace backoff.Adaptive, waiting bool, left time.Duration) {
	t.interval = pace.Next(t.interval, false)
	d := t.interval
	switch {
	case waiting && left > 0:
		d = min(d, max(left, pollLeast))
	case waiting:
		d = min(d, openWait)
	}
	t.due = now + d
}
