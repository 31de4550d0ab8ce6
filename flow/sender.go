package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Defaults of Options.
const (
	DefaultMaxBytes = 32 << 20
	DefaultAbandon  = time.Minute
)

// Sender delivers what a Producer hands out. Its methods are safe for concurrent use.
type Sender[T any] struct {
	o   Options[T]
	box *mailbox[T]

	mu      sync.Mutex // guards what follows; no callback runs under it
	machine machine
	names   []string // of lanes, by number; "" where the number is free
	started bool
}

// machine is what the Sender needs of control.Machine.
type machine interface {
	Step(e control.Event, out []control.Command) []control.Command
	Wake() (time.Duration, bool)
	Room() bool
	Status() control.Status
}

// New checks o and starts nothing.
func New[T any](o Options[T]) (*Sender[T], error) {
	if o.Bury == nil { // there is no grave: only a worker's own refusal may ask for one
		o.Control.Poison.Deaths, o.Control.Poison.Refuse = -1, false
	}
	m, err := control.New(o.Control)
	if err != nil {
		return nil, fmt.Errorf("flow: %w", err)
	}
	return newSender(o, m)
}

func newSender[T any](o Options[T], m machine) (*Sender[T], error) {
	if err := checkLanes(o.Lanes); err != nil {
		return nil, err
	}
	if o.Settled == nil {
		return nil, errors.New("flow: Options.Settled is nil; it is where a ledger learns what is done")
	}
	if o.Abandon < 0 {
		return nil, fmt.Errorf("flow: Options.Abandon is %v; want a duration, or 0 for %v", o.Abandon, DefaultAbandon)
	}
	if o.Abandon == 0 {
		o.Abandon = DefaultAbandon
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	s := &Sender[T]{o: o, box: newMailbox[T](), machine: m}
	s.box.putLanes(slices.Clone(o.Lanes))
	return s, nil
}

func checkLanes[T any](lanes []Lane[T]) error {
	seen := make(map[string]bool, len(lanes))
	for i, l := range lanes {
		switch {
		case l.Name == "":
			return fmt.Errorf("flow: lane %d has no name; lanes are told apart by name", i)
		case seen[l.Name]:
			return fmt.Errorf("flow: two lanes are named %q; lanes are told apart by name", l.Name)
		case l.Worker == nil:
			return fmt.Errorf("flow: lane %q has no worker", l.Name)
		case l.Limits.InFlight < 0:
			return fmt.Errorf("flow: lane %q: Limits.InFlight is %d; want a number above 0, or 0 for none", l.Name, l.Limits.InFlight)
		}
		seen[l.Name] = true
	}
	return nil
}

// Run pulls from p until io.EOF and returns nil when everything has settled, or says why not. When ctx is
// done it abandons what is in flight: the attempts' contexts end, Run waits for their Delivers and returns
// context.Cause(ctx). It may be called once.
func (s *Sender[T]) Run(ctx context.Context, p Producer[T]) error {
	s.mu.Lock()
	again := s.started
	s.started = true
	s.mu.Unlock()
	if again {
		return errors.New("flow: Run was called before; make a new Sender")
	}
	return newLoop(s).run(ctx, p)
}

// SetLanes replaces the lanes by name: a name that stays is kept with its Worker and all that is known of it,
// only its Limits become those given now; a new one is added, a missing one gets nothing more. An Ordered lane
// that was missing comes back when what still ran of it has returned. It takes effect when the Sender next
// looks, and not at all after Run. An error changes nothing.
func (s *Sender[T]) SetLanes(l []Lane[T]) error {
	if err := checkLanes(l); err != nil {
		return err
	}
	s.box.putLanes(slices.Clone(l))
	return nil
}

// Saved tells that n bytes of settled items are now in the checkpoint, which opens the replay bound.
func (s *Sender[T]) Saved(n int64) { s.box.putSaved(n) }

// Status is a picture of the sender; the second result gives the lanes' names by Lane number. Callbacks of
// Options may call it too.
func (s *Sender[T]) Status() (control.Status, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Status(), slices.Clone(s.names)
}
