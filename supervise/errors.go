package supervise

import (
	"errors"
	"fmt"
	"strings"
)

// What a child returns to say what is to follow, also wrapped.
var (
	// ErrStop: I have done what I was for; do not start me again, whatever my Restart says.
	ErrStop = errors.New("supervise: done, not to be restarted")
	// ErrEscalate: a restart will not help; the supervisor gives up at once and its parent decides.
	ErrEscalate = errors.New("supervise: a restart does not help")
)

// The causes with which a child's context ends, beside that of the supervisor's own.
var (
	// ErrRestarting: the child will be started again: Restart, or the strategy, asked for it.
	ErrRestarting = errors.New("supervise: restarting")
	// ErrRemoved: Remove was called.
	ErrRemoved = errors.New("supervise: removed")
)

// An EscalatedError is what Serve returns when a supervisor has given up. Its children have been stopped. To a
// supervisor above it is a crash like any other, also when ErrEscalate is within.
type EscalatedError struct {
	Supervisor string // its path
	Child      string // whose end was one too many
	Reason     string
	Errs       []error // the last of the children's errors, oldest first, at most 8
}

// Error gives who, why and what they died of.
func (e *EscalatedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "supervisor %q gave up at child %q: %s", e.Supervisor, e.Child, e.Reason)
	for i, err := range e.Errs {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep)
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap returns the children's errors.
func (e *EscalatedError) Unwrap() []error { return e.Errs }

// A StuckError names the children that had not returned when the outermost supervisor's Serve did. Their goroutines
// still run; only the end of the process is sure to stop them.
type StuckError struct {
	Supervisor string
	Children   []string // paths below Supervisor, in the order in which they were told to stop
}

// Error names them.
func (e *StuckError) Error() string {
	return fmt.Sprintf("supervisor %q: did not stop in time: %s: they must return when their context ends",
		e.Supervisor, strings.Join(e.Children, ", "))
}

// asksToEscalate says whether err is a child's own ErrEscalate and not one that a supervisor has already dealt with.
func asksToEscalate(err error) bool {
	if _, dealt := errors.AsType[*EscalatedError](err); dealt {
		return false
	}
	return errors.Is(err, ErrEscalate)
}
