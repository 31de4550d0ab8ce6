package child

import (
	"errors"
	"fmt"
	"strings"
)

// StartError is a program that could not be started: it is not there, may not be executed, or its
// folder is missing. It will not pass by itself.
type StartError struct {
	Program string
	Err     error
}

// Error gives program and reason.
func (e *StartError) Error() string {
	return fmt.Sprintf("start %s: %v; it must be an executable file, or a program that is in PATH", e.Program, e.Err)
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// ErrEnded means that a child in a [Slot] ended by itself, with status 0.
var ErrEnded = errors.New("ended by itself, with status 0")

// EndedCleanly reports whether err, with which a session of a [Slot] ended, means that the child
// ended by itself with status 0 and broke no rule of its protocol. Programs that serve a limited
// number of requests end like this.
func EndedCleanly(err error) bool {
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code == 0 && exit.Talk == nil && errors.Is(exit.Killed, ErrNotReading)
	}
	return errors.Is(err, ErrEnded)
}

// ExitError is a child that did not end with status 0, or had to be killed.
type ExitError struct {
	Program   string
	Code      int    // its exit status; -1: a signal ended it
	State     string // in words: "exit status 1", "signal: killed"
	Signalled bool   // by a signal that was not ours
	Killed    error  // why this process killed it; nil: it did not
	Talk      error  // what the one who talked to it found wrong; nil: nothing but its end
	Said      string // the end of what it wrote to standard error, at most 300 bytes
}

// Error says how it ended and quotes what it said last.
func (e *ExitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Program, e.State)
	if e.Killed != nil {
		fmt.Fprintf(&b, " by penstock: %v", e.Killed)
	}
	if e.Talk != nil {
		fmt.Fprintf(&b, ": %v", e.Talk)
	}
	if e.Said != "" {
		fmt.Fprintf(&b, "; it said: %q", e.Said)
	}
	return b.String()
}

// Unwrap returns why it was killed and what was wrong with its talk.
func (e *ExitError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Killed, e.Talk} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
