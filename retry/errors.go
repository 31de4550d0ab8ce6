package retry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Why a retry stopped, as Error.Stop; a context that ended stands there with its own error and cause.
var (
	// ErrPermanent: the failure was marked Permanent or classified as Fail.
	ErrPermanent = errors.New("retry: not worth another attempt")
	// ErrExhausted: MaxAttempts was reached, or Policy gave up.
	ErrExhausted = errors.New("retry: attempts exhausted")
	// ErrElapsed: the next wait would have passed MaxElapsed.
	ErrElapsed = errors.New("retry: time limit of the call reached")
	// ErrFailing: the next wait would have passed MaxFailing.
	ErrFailing = errors.New("retry: failing for too long")
	// ErrDeadline: the next wait would have outlived the context's deadline. It is context.DeadlineExceeded too.
	ErrDeadline error = &deadlineError{}
	// ErrHint: the server asked for a longer wait than HintLimit.Max; Error.After has it.
	ErrHint = errors.New("retry: told to wait longer than allowed")
	// ErrBudget: the Budget refused another attempt.
	ErrBudget = errors.New("retry: budget exhausted")
	// ErrNested: an outer retry, in whose attempt this one ran, will try again.
	ErrNested = errors.New("retry: left to the outer retry")
	// ErrAbandoned: the body of a Loop left an attempt without End.
	ErrAbandoned = errors.New("retry: attempt left without an end")
)

// ErrAttemptTimeout is the cause of an attempt's context that ended by Retrier.AttemptTimeout.
var ErrAttemptTimeout error = attemptTimeoutError{}

type deadlineError struct{}

func (*deadlineError) Error() string   { return "retry: the next wait would outlive the deadline" }
func (*deadlineError) Is(t error) bool { return t == context.DeadlineExceeded }

type attemptTimeoutError struct{}

func (attemptTimeoutError) Error() string   { return "retry: attempt timed out" }
func (attemptTimeoutError) Timeout() bool   { return true }
func (attemptTimeoutError) Temporary() bool { return true }

// MaxErrors is how many failures an Error keeps: the first one and the last ones.
const MaxErrors = 8

// Error tells why a retry stopped and what it had seen. It is never changed once returned.
type Error struct {
	// Stop is the reason: ErrPermanent, ErrExhausted, ... or what ended the context.
	Stop error
	// Last is the last attempt's failure; nil if no attempt was made.
	Last error
	// Attempts counts the attempts made.
	Attempts int
	// Elapsed is the time from the call to the stop. Where no setting needs the clock (MaxElapsed, AttemptTimeout,
	// Budget, OnEvent, Key) it counts from the first wait, so that calls without waits need no clock.
	Elapsed time.Duration
	// Waited is the part of Elapsed that was spent waiting.
	Waited time.Duration
	// After is what the server asked for, where Stop is ErrHint.
	After time.Duration
	// Errs are the failures in order: all of them up to MaxErrors, else the first and the last ones.
	Errs []error
}

// Error implements error: why it stopped, after how much, and the last failure.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Stop.Error())
	if e.Attempts > 0 {
		b.WriteString(" after " + strconv.Itoa(e.Attempts) + " attempt")
		if e.Attempts > 1 {
			b.WriteByte('s')
		}
	}
	if d := e.Elapsed.Round(time.Millisecond); d > 0 {
		b.WriteString(" in " + d.String())
	}
	if e.After > 0 {
		b.WriteString(" (asked to wait " + e.After.String() + ")")
	}
	if e.Last != nil {
		b.WriteString(": " + e.Last.Error())
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.AsType the reason and every kept failure.
func (e *Error) Unwrap() []error { return append([]error{e.Stop}, e.Errs...) }

// ended describes why ctx has ended: its error, and its cause where that says more. nil while it lives.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && cause != err {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// failures keeps the first failure and the last MaxErrors-1.
type failures struct {
	first error
	last  [MaxErrors - 1]error
	n     int // failures after the first
}

func (f *failures) add(err error) {
	if f.first == nil {
		f.first = err
		return
	}
	f.last[f.n%len(f.last)] = err
	f.n++
}

// list returns what is kept, oldest first.
func (f *failures) list() []error {
	if f.first == nil {
		return nil
	}
	all := make([]error, 1, 1+min(f.n, len(f.last)))
	all[0] = f.first
	for i := max(0, f.n-len(f.last)); i < f.n; i++ {
		all = append(all, f.last[i%len(f.last)])
	}
	return all
}
