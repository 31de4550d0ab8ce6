//penstock:pure

package limit

import (
	"fmt"
	"time"
)

// Outcome is the result of a call with regard to the server's load.
type Outcome uint8

// How a call ended.
const (
	// Success means that the server did the work, whatever the response. The limit depends on the
	// durations of these calls.
	Success Outcome = iota
	// Overloaded means that the server refused the call because it already has too many calls (503,
	// 429, RESOURCE_EXHAUSTED). With the default algorithm, each such call shrinks the limit by
	// one. All such calls of one round trip together shrink it at most to half.
	Overloaded
	// TimedOut means that no response came in time. With the default algorithm, the limit shrinks
	// to half, at most once per round trip.
	TimedOut
	// Ignored means that the result is unrelated to the load: the caller gave up, or the call
	// failed before the server worked on it. If fast failures counted as Success, they would look
	// like a fast server.
	Ignored
)

var outcomeNames = [...]string{"success", "overloaded", "timed out", "ignored"}

// String returns the outcome in words, such as "timed out".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Priority orders waiting callers. Callers of a higher priority go first, and callers of one
// priority in the order of arrival. If the queue is full, a new caller displaces a waiting caller
// of a lower priority: the newest one of the lowest priority.
type Priority int8

// The priorities. A value below Low counts as Low, a value above High as High.
const (
	Low    Priority = iota - 1 // background work: first to be shed
	Normal                     // the zero value
	High                       // health checks, payments
)

const priorities = 3

// class returns the index of the queue for p: 0 is served first.
func (p Priority) class() int { return int(High - min(max(p, Low), High)) }

// Reason is the reason for which a caller was refused.
type Reason uint8

// Reasons for which a caller is refused.
const (
	_            Reason = iota
	QueueFull           // Options.MaxWaiting callers wait already, or waiting is off
	QueueTooSlow        // its wait would exceed Options.MaxWait, or has exceeded it or the deadline
	DeadlineSoon        // its deadline would pass before the expected end of the call
	Displaced           // a caller of higher priority took its place in a full queue
)

var reasonNames = [...]string{
	"", "queue is full", "wait exceeds its limit", "deadline is too soon",
	"displaced by a higher priority",
}

// String returns the reason in words, such as "queue is full".
func (r Reason) String() string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// RefusedError is returned to a caller that the limiter refused. The call has not been made, so the
// caller may try another server.
type RefusedError struct {
	Reason Reason
	Wait   time.Duration // expected wait of a new caller; zero means not known
}

// Error names the reason and, if known, the expected wait.
func (e *RefusedError) Error() string {
	if e.Wait == 0 {
		return "concurrency limit: " + e.Reason.String()
	}
	return fmt.Sprintf("concurrency limit: %v (expected wait %v)", e.Reason, e.Wait)
}

// RetryAfter returns Wait, the hint that package retry follows.
func (e *RefusedError) RetryAfter() time.Duration { return e.Wait }

// Refused returns true, because the call was not made. A breaker or another limiter around the call
// ignores the error.
func (e *RefusedError) Refused() bool { return true }
