//penstock:pure

package table

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// checkSchedule is the time of the next check of the end of a partition, or of the list of tables.
type checkSchedule struct {
	due time.Duration // on the reader's clock
	// the wait after the last check without a result; 0 if the last check had one
	interval time.Duration
}

// The bounds of the intervals of checks.
const (
	pollShare = 100 // the shortest interval, as a fraction of `poll`
	pollLeast = 5 * time.Millisecond
	// the longest interval while open transactions may write before the last row
	openWait = 250 * time.Millisecond
)

// pacing returns the growth of the intervals.
func pacing(poll time.Duration) backoff.Adaptive {
	return backoff.Adaptive{Min: max(pollLeast, poll/pollShare), Max: max(pollLeast, poll)}
}

// found makes the next check due at once, because more rows may follow.
func (t *checkSchedule) found() { *t = checkSchedule{} }

// notFound schedules the next check after one without a result. waiting means that a row is visible
// but does not count yet. left is the rest of its lag, or 0 if other transactions have to end
// first.
func (t *checkSchedule) notFound(now time.Duration, pace backoff.Adaptive, waiting bool,
	left time.Duration) {
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
