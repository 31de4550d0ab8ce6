package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// Defaults of Options.
const (
	DefaultMaxBytes = 32 << 20    // bytes of unsettled items
	DefaultAbandon  = time.Minute // time limit of one attempt
)

// Sender delivers the items of a Producer. Its methods are safe for concurrent use.
type Sender[T any] struct {
	o       Options[T]
	events  *eventQueue[T]
	started atomic.Bool // Run was called

	mu      sync.Mutex // guards the fields below; no callback runs under it
	machine machine
	names   []string // names of the lanes, by number; "" if the number is free
}

// machine is the part of control.Machine that the Sender uses.
type machine interface {
	Step(e control.Event, out []control.Command) []control.Command
	Wake() (time.Duration, bool)
	Room() bool
	Returns(suspect bool) bool
	Status() control.Status
}

// New returns a Sender, or an error that names an invalid option. It starts no goroutine.
func New[T any](o Options[T]) (*Sender[T], error) {
	// Without DeadLetter there is no store for dead letters. Then the state machine refuses no item
	// by itself. If a worker refuses one, Run ends.
	if o.DeadLetter == nil {
		o.Control.Poison.Deaths, o.Control.Poison.Refuse, o.Control.End = -1, false, control.End{}
	}
	if o.Control.Window == nil {
		o.Control.Window = window.Queue{}
	}
	o.Control.Defer = o.Waiting != nil
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
	if o.Abandon < 0 {
		return nil, fmt.Errorf("flow: Options.Abandon is %v; want a duration, or 0 for %v",
			o.Abandon, DefaultAbandon)
	}
	// no sum with a time overflows
	o.Abandon = min(cmp.Or(o.Abandon, DefaultAbandon), math.MaxInt64/2)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	s := &Sender[T]{o: o, events: newEventQueue[T](), machine: m}
	s.putLanes(o.Lanes)
	return s, nil
}

func checkLanes[T any](lanes []Lane[T]) error {
	seen := make(map[string]bool, len(lanes))
	for i, l := range lanes {
		switch {
		case l.Name == "":
			return fmt.Errorf("flow: lane %d has no name; each lane needs a unique name", i)
		case seen[l.Name]:
			return fmt.Errorf("flow: two lanes are named %q; each lane needs a unique name", l.Name)
		case l.Worker == nil:
			return fmt.Errorf("flow: lane %q has no worker", l.Name)
		case l.Limits.InFlight < 0:
			return fmt.Errorf("flow: lane %q: Limits.InFlight is %d; want a number above 0, or 0 "+
				"for none", l.Name, l.Limits.InFlight)
		}
		seen[l.Name] = true
	}
	return nil
}

// Run pulls items from p until io.EOF and returns nil when all have settled. When ctx is done, Run
// ends the contexts of the attempts in flight, waits until their Deliver calls have returned and
// returns context.Cause(ctx). It also stops if p, DeadLetter or Waiting fails, if an item has an
// invalid cost or size, and if every lane is misconfigured (see Options.AwaitRepair). Without
// Options.DeadLetter it stops when an item is refused. The error wraps the reason. Run may be
// called once.
func (s *Sender[T]) Run(ctx context.Context, p Producer[T]) error {
	if s.started.Swap(true) {
		return errors.New("flow: Run was called before; make a new Sender")
	}
	return newLoop(s).run(ctx, p)
}

// SetLanes replaces the list of lanes. A lane with the name of a current lane keeps the Worker and
// the measurements of that lane, and gets the new Limits. A new name adds a lane. A lane whose
// name is not in the list gets no further attempts. If an Ordered lane is removed and comes back in
// a later list, it gets attempts only after its running attempts have returned.
//
// SetLanes returns before the change takes effect, and has no effect after Run. An error means that
// l is invalid and nothing was changed.
func (s *Sender[T]) SetLanes(l []Lane[T]) error {
	if err := checkLanes(l); err != nil {
		return err
	}
	s.putLanes(l)
	return nil
}

func (s *Sender[T]) putLanes(l []Lane[T]) {
	lanes := append([]Lane[T]{}, l...) // not nil, even if l is
	s.events.putAndWake(func(m *pendingEvents[T]) { m.lanes = lanes })
}

// Withdraw makes the loop call Options.Withdrawn for every unsettled item that the Sender holds. It
// returns before the loop does so.
func (s *Sender[T]) Withdraw() {
	s.events.putAndWake(func(m *pendingEvents[T]) { m.withdraw = true })
}

// Saved reports that n bytes of settled items have been saved in the checkpoint, which makes room
// in Config.Replay.
func (s *Sender[T]) Saved(n int64) {
	s.events.putAndWake(func(m *pendingEvents[T]) { m.saved += n })
}

// Ping checks that the event loop is alive. It returns a channel that is closed when the loop has
// handled all earlier events, or when Run has returned. Before Run starts, the channel stays open.
// A channel that stays open for seconds during Run means that a callback of Options does not
// return. Workers that hang do not delay it, except workers of a lane with Inline. Pings that the
// loop has not handled yet share one channel.
func (s *Sender[T]) Ping() <-chan struct{} { return s.events.putPing() }

// Status returns a snapshot of the sender, and the names of the lanes, indexed by LaneStatus.Lane.
// Callbacks of Options may call it.
func (s *Sender[T]) Status() (control.Status, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.machine.Status()
	status.Now = time.Since(s.events.start)
	return status, slices.Clone(s.names)
}
