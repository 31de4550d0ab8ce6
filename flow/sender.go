package flow

import (
	"context"

	"github.com/penstock-io/penstock/flow/control"
)

// Sender delivers what a Producer hands out. Its methods are safe for concurrent use.
type Sender[T any] struct{ o Options[T] }

// New checks o and starts nothing.
func New[T any](o Options[T]) (*Sender[T], error) { return &Sender[T]{o: o}, nil }

// Run pulls from p until io.EOF and returns nil when everything has settled, or says why not. When ctx is
// done it abandons what is in flight: the attempts' contexts end, Run waits for their Delivers and returns
// context.Cause(ctx). It may be called once.
func (s *Sender[T]) Run(ctx context.Context, p Producer[T]) error { return nil }

// SetLanes replaces the lanes by name: a name that stays is kept with all that is known of it, a new one is
// added, a missing one gets nothing more.
func (s *Sender[T]) SetLanes(l []Lane[T]) error { return nil }

// Saved tells that n bytes of settled items are now in the checkpoint, which opens the replay bound.
func (s *Sender[T]) Saved(n int64) {}

// Status is a picture of the sender; the second result gives the lanes' names by Lane number.
func (s *Sender[T]) Status() (control.Status, []string) { return control.Status{}, nil }
