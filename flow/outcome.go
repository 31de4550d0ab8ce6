package flow

import (
	"errors"
	"fmt"
	"time"
)

// ErrAbandoned is the cause if an attempt's context ends at Options.Abandon.
var ErrAbandoned = errors.New("flow: attempt abandoned, it took too long")

// ErrSuperseded is the cause if an attempt's context ends because another attempt has settled its
// item.
var ErrSuperseded = errors.New("flow: attempt abandoned, another one has settled the item")

// ErrWithdrawn is the cause if an attempt's context ends because its item was withdrawn with
// CancelAttempts.
var ErrWithdrawn = errors.New("flow: attempt abandoned, its item was withdrawn")

// Throttled means that the worker is alive but full. It gets no attempts until the time After has
// passed, or for about 5 minutes if After is longer. If After is 0, the Sender chooses the time.
// The attempt does not count as a failure, and its duration is not used as a round trip.
type Throttled struct {
	After time.Duration // wait from now; 0 if the worker did not name a time
	Err   error         // the cause; may be nil
}

// Rejected means that no worker will ever accept this value. The Sender bisects it to find the
// refused part, and dead-letters that part.
type Rejected struct{ Err error }

// Misconfigured means that the lane is at fault (401, 403, 404, no such table). The breaker of the
// lane opens, and the item goes to another lane. Nothing is settled or dead-lettered. If every lane
// is misconfigured, Run returns, unless Options.AwaitRepair is true.
type Misconfigured struct{ Err error }

// Died means that the worker died, or hung and had to be killed, perhaps because of the value. A
// panic in Deliver has the same meaning. If the worker had several values in progress, return Died
// only for the value that may be to blame.
//
// The value is tried again. A value that has killed several workers is refused ([control.Poison]):
// it is bisected, and the part that kills workers is dead-lettered.
type Died struct{ Err error }

// Split means that only a part of the value was delivered. Done, Rest and Refused together are
// exactly the value.
type Split[T any] struct {
	Done    []Item[T] // delivered; Settled is called for each
	Rest    []Item[T] // replaces the item, in order, and is tried again
	Refused []Item[T] // passed to Options.DeadLetter without another attempt
	Err     error     // the cause
	// Refusals, if not nil, has the reason for each item of Refused. If a reason is missing or nil,
	// a [Rejected] with the Err of the Split is used.
	Refusals []error
	// Died, if above 0, means that Rest[Died-1] killed the worker. See the type Died.
	Died int
}

// Error returns "throttled" with the delay and the cause, if they are known.
func (e *Throttled) Error() string {
	text := "throttled"
	if e.After > 0 {
		text = fmt.Sprintf("throttled for %v", e.After)
	}
	if e.Err == nil {
		return text
	}
	return fmt.Sprintf("%s: %v", text, e.Err)
}

// Unwrap returns the cause.
func (e *Throttled) Unwrap() error { return e.Err }

// Error returns "rejected" and the cause.
func (e *Rejected) Error() string { return fmt.Sprintf("rejected: %v", e.Err) }

// Unwrap returns the cause.
func (e *Rejected) Unwrap() error { return e.Err }

// Error returns "misconfigured" and the cause.
func (e *Misconfigured) Error() string { return fmt.Sprintf("misconfigured: %v", e.Err) }

// Unwrap returns the cause.
func (e *Misconfigured) Unwrap() error { return e.Err }

// Error returns "the worker died" and the cause.
func (e *Died) Error() string { return fmt.Sprintf("the worker died: %v", e.Err) }

// Unwrap returns the cause.
func (e *Died) Unwrap() error { return e.Err }

// Error returns the sizes of the parts and the cause.
func (e *Split[T]) Error() string {
	return fmt.Sprintf("settled in part (%d delivered, %d to be sent again, %d refused): %v",
		len(e.Done), len(e.Rest), len(e.Refused), e.Err)
}

// Unwrap returns the cause.
func (e *Split[T]) Unwrap() error { return e.Err }

// PanicError is a panic or a call of runtime.Goexit in a worker, producer or callback. In a worker
// it is the outcome of its attempt. In a producer, DeadLetter or WaitStore.Next it stops the
// Sender. After a panic in a callback on the loop, Run panics with it.
type PanicError struct {
	Where string // such as `worker "a"`; "callback" for a callback on the loop
	Value any    // the panic value; nil for runtime.Goexit
	Stack []byte // stack of the goroutine that panicked, as runtime/debug.Stack returns it
}

// Error returns Where, the panic value and, on the following lines, the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("%s: runtime.Goexit was called\n%s", e.Where, e.Stack)
	}
	return fmt.Sprintf("%s: panic: %v\n%s", e.Where, e.Value, e.Stack)
}

// Unwrap returns the panic value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
