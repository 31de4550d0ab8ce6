package flow

import (
	"errors"
	"fmt"
	"time"
)

// ErrAbandoned is the cause with which an attempt's context ends at Options.Abandon.
var ErrAbandoned = errors.New("flow: attempt abandoned, it took too long")

// ErrSuperseded is the cause with which an attempt's context ends when another attempt has settled its item.
var ErrSuperseded = errors.New("flow: attempt abandoned, another one has settled the item")

// Throttled says that the worker is alive but full: its gate closes until After has passed. It is no failure
// and no sample of its round trip.
type Throttled struct {
	After time.Duration // from now; 0: it did not say
	Err   error
}

// Rejected says that this value will never be taken: it is bisected until the refused part is found, which is buried.
type Rejected struct{ Err error }

// Misconfigured says that the fault is the lane's (401, 403, 404, no such table): its breaker opens, its
// health turns red, nothing is settled, and it never makes a dead letter.
type Misconfigured struct{ Err error }

// Died says that the worker died while it had the value, or had to be killed because it hung: of the value, maybe. Return
// it for the one value that may be to blame, not for others that went down with the worker. It is retryable; but a value
// of which several workers have died is refused ([control.Poison]): cut, and what is left is buried. A panic in Deliver
// says the same.
type Died struct{ Err error }

// Split says that a value was settled in part. Done, Rest and Refused together are exactly the value.
type Split[T any] struct {
	Done    []Item[T] // delivered; Settled is called for each
	Rest    []Item[T] // stands in the item's place, in order, and is tried again
	Refused []Item[T] // never: to Options.Bury, no further attempt
	Err     error
	// Refusals, where set, says for each of Refused why; the others have Err.
	Refusals []error
	// Died, where above 0, says that the worker died while it was at Rest[Died-1], as the error Died does.
	Died int
}

// Error says that the worker is full, until when, and why.
func (e *Throttled) Error() string { return fmt.Sprintf("throttled for %v: %v", e.After, e.Err) }

// Unwrap returns the cause.
func (e *Throttled) Unwrap() error { return e.Err }

// Error says that the value was refused, and why.
func (e *Rejected) Error() string { return fmt.Sprintf("rejected: %v", e.Err) }

// Unwrap returns the cause.
func (e *Rejected) Unwrap() error { return e.Err }

// Error says that the lane is misconfigured, and why.
func (e *Misconfigured) Error() string { return fmt.Sprintf("misconfigured: %v", e.Err) }

// Unwrap returns the cause.
func (e *Misconfigured) Unwrap() error { return e.Err }

// Error says what the worker died of.
func (e *Died) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns the cause.
func (e *Died) Unwrap() error { return e.Err }

// Error counts the parts.
func (e *Split[T]) Error() string {
	return fmt.Sprintf("settled in part (%d delivered, %d to be sent again, %d refused): %v",
		len(e.Done), len(e.Rest), len(e.Refused), e.Err)
}

// Unwrap returns the cause.
func (e *Split[T]) Unwrap() error { return e.Err }

// PanicError is a panic, or a call of runtime.Goexit, in code that the Sender was given: a worker's counts as
// a retryable outcome, a producer's or Bury's stops the Sender, one of what is called on the loop comes out of Run.
type PanicError struct {
	Where string // such as `worker "a"`; "callback": what is called on the loop
	Value any    // what was panicked with; nil: runtime.Goexit
	Stack []byte
}

// Error gives place, value and stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("%s: runtime.Goexit was called\n%s", e.Where, e.Stack)
	}
	return fmt.Sprintf("%s: panic: %v\n%s", e.Where, e.Value, e.Stack)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
