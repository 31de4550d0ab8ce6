//penstock:pure

package table

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// checkSchedule determines the time of the next check for new rows of a partition (a table, or a
// part of one), or for new tables.
type checkSchedule struct {
	due time.Duration // on the reader's clock
	// time between the last check and the next one; 0 if the last check has found rows or
	// tables
	interval time.Duration
}

// The bounds of the intervals between checks.
const (
	pollShare = 100 // the shortest interval is `poll` divided by pollShare
	pollLeast = 5 * time.Millisecond
	// openWait is the longest time between two checks while open transactions may still write
	// rows before the last visible row.
	openWait = 250 * time.Millisecond
)

// pacing returns the policy by which the intervals between checks grow, for the option poll.
func pacing(poll time.Duration) backoff.Adaptive {
	return backoff.Adaptive{Min: max(pollLeast, poll/pollShare), Max: max(pollLeast, poll)}
}

// found makes the next check due at once, because a check that follows a successful one often finds
// rows, too.
func (t *checkSchedule) found() { *t = checkSchedule{} }

// notFound schedules the next check after a check that has found nothing. waiting means that a row
// is visible but must not be read yet. The parameter left is then the remaining time of the option
// lag for this row. It is 0 if the row waits until open transactions have ended.
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
