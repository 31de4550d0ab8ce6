package child

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// StartError means that a program could not be started, and that a retry does not help. Usually the
// program does not exist, it is not executable, or its working directory is missing.
type StartError struct {
	Program string
	Err     error
}

// Error returns the program and the reason.
func (e *StartError) Error() string {
	return fmt.Sprintf("start %s: %v; it must be an executable file, or a program in PATH",
		e.Program, e.Err)
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// startError returns the error for a program that could not be started for the reason err. This is
// a StartError unless the reason is temporary.
func startError(program string, err error) error {
	if isTemporary(err) {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return &StartError{Program: program, Err: err}
}

// ErrEnded means that a child in a [Slot] ended by itself, with status 0.
var ErrEnded = errors.New("exited unexpectedly with status 0")

// EndedCleanly reports whether a child ended by itself with status 0 and without a protocol error.
// A program may do so because it serves only a limited number of requests. err is the error that
// [Session.End] receives.
func EndedCleanly(err error) bool {
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code == 0 && exit.Protocol == nil && errors.Is(exit.Killed, ErrNotReading)
	}
	return errors.Is(err, ErrEnded)
}

// ExitError means that a child exited with a non-zero status, or was ended by a signal, or that
// this process killed or terminated it.
type ExitError struct {
	Program   string
	Code      int    // its exit status; -1 if a signal ended it
	State     string // in words: "exit status 1", "signal: killed"
	Signalled bool   // a signal that this process did not send ended it
	Killed    error  // why this process killed or terminated it; nil if it did not
	Protocol  error  // a protocol error found by the session; nil if there is none
	Stderr    string // the last 300 bytes of its standard error
}

// Error describes how the child ended, and quotes the end of its standard error.
func (e *ExitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Program, e.State)
	if e.Killed != nil {
		fmt.Fprintf(&b, " by penstock: %v", e.Killed)
	}
	if e.Protocol != nil {
		fmt.Fprintf(&b, ": %v", e.Protocol)
	}
	if e.Stderr != "" {
		fmt.Fprintf(&b, "; it said: %q", e.Stderr)
	}
	return b.String()
}

// Unwrap returns the reason for the kill and the protocol error, if any.
func (e *ExitError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Killed, e.Protocol}, func(err error) bool {
		return err == nil
	})
}
