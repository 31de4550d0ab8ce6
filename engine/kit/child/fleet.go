package child

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// Session is the exchange of messages with one child, from its start to its end. The user of a
// [Fleet] implements it.
type Session interface {
	comparable
	// Serve reads the child's output until the child ends. If the child breaks the protocol, Serve
	// kills it.
	Serve(ctx context.Context) error
	// End is called after Serve has returned, and after the process and its group have died. It
	// passes err to all callers that wait for a response of the child.
	End(err error)
	// Did reports two facts about the child that has ended. worked means that the child has
	// completed some work since its start. busy means that it had work in progress at its end. Did
	// is called before End.
	Did() (worked, busy bool)
}

// Fleet keeps children running until its context ends, each in a slot of its own. A child that ends
// is restarted after a wait. The wait grows from FirstWait to LastWait while children end soon
// after their start and without having completed any work. There is no wait in two cases:
//
//   - The child has completed work since its start.
//   - The child ended with work in progress, and since the last completed work no child of this
//     slot has ended without work in progress. A single bad record may have killed the child, and
//     the caller isolates such a record. After maxKilled such ends since the last completed work,
//     there is a wait again.
type Fleet[S Session] struct {
	slots []*Slot[S]
	tree  *supervise.Supervisor
}

// FleetOptions configure a fleet. All fields are required.
type FleetOptions[S Session] struct {
	Name       string   // of the supervisor
	Names      []string // of the slots
	Spec       func(slot string) Spec
	NewSession func(p *Process) S // creates the session with a child that has just started
}

// The wait before the restart of a child that ended without completing any work grows from
// FirstWait to LastWait. Jitter shortens each wait by up to half.
const (
	FirstWait = 100 * time.Millisecond
	LastWait  = 30 * time.Second
)

// maxKilled limits the immediate restarts after deaths with work in progress, counted since the
// last completed work. Later restarts wait.
const maxKilled = 16

// waits is the restart policy of one slot: it determines the wait before the next start. The usual
// backoff of package supervise cannot be used, because the wait depends on whether the last
// children completed any work, which this backoff does not know.
type waits[S Session] struct {
	backoff.Policy
	slot *Slot[S]
}

// Next implements backoff.Policy.
func (w waits[S]) Next(s backoff.State, src rand.Source) (wait time.Duration, next backoff.State,
	ok bool) {
	w.slot.mu.Lock()
	ends := w.slot.ends
	w.slot.mu.Unlock()
	if ends == 0 {
		return 0, backoff.State{}, true
	}
	if ends == 1 {
		s = backoff.State{}
	}
	return w.Policy.Next(s, src)
}

// Slot holds one child. Its methods may be called concurrently.
type Slot[S Session] struct {
	name string

	mu      sync.Mutex // guards the fields below
	session S          // zero if no child is running
	changed chan struct{}
	last    error     // how the last child ended
	next    time.Time // of the next start; zero if it is not known yet
	ends    int       // ends that delay the restart, since the last completed work
	killed  int       // deaths with work in progress, since then; at most maxKilled
}

// DownError means that a slot has no running child.
type DownError struct {
	Slot string
	Next time.Duration // time until the next start, at least Soon
	Ends int           // ends that delay the restart, since the last completed work
	Err  error         // how the last child ended or failed to start; nil before the first start
}

// Error returns the last error and the time until the next start.
func (e *DownError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: its child has not started yet", e.Slot)
	}
	return fmt.Sprintf("%s: its child has ended and restarts in %v: %v", e.Slot,
		e.Next.Round(time.Millisecond), e.Err)
}

// Unwrap returns the error with which the last child ended.
func (e *DownError) Unwrap() error { return e.Err }

// Soon is the minimum of DownError.Next, the time until the next start of a child. Next is also
// Soon if this time is unknown or has passed.
const Soon = 10 * time.Millisecond

// NewFleet creates a fleet; Serve starts the children.
func NewFleet[S Session](o FleetOptions[S]) (*Fleet[S], error) {
	f := new(Fleet[S])
	var children []supervise.Child
	for _, name := range o.Names {
		s := &Slot[S]{name: name, changed: make(chan struct{})}
		f.slots = append(f.slots, s)
		spec := o.Spec(name)
		children = append(children, supervise.Child{
			Name:     name,
			Backoff:  waits[S]{backoff.Exponential(FirstWait, 2, LastWait).Equal(), s},
			Run:      func(ctx context.Context) error { return s.run(ctx, spec, o.NewSession) },
			Shutdown: spec.grace() + 5*time.Second, // time for SIGKILL to take effect
		})
	}
	var err error
	f.tree, err = supervise.New(o.Name, supervise.Spec{OnEvent: f.event}, children...)
	return f, err
}

// Slots returns the slots in the order of FleetOptions.Names.
func (f *Fleet[S]) Slots() []*Slot[S] { return f.slots }

// Serve runs the children until ctx ends, and returns when all of them are dead. It must be called
// only once.
func (f *Fleet[S]) Serve(ctx context.Context) error { return f.tree.Serve(ctx) }

// event stores in the slot the time of its child's next start, which the supervisor reports in e.
func (f *Fleet[S]) event(_ context.Context, e supervise.Event) {
	if e.Kind != supervise.Ended || !e.Restart {
		return
	}
	for _, s := range f.slots {
		if s.name == e.Child {
			s.mu.Lock()
			s.next = e.Time.Add(e.Delay)
			s.mu.Unlock()
		}
	}
}

// run runs one child from its start to its end. It returns the error that describes the end.
func (s *Slot[S]) run(ctx context.Context, spec Spec, talk func(*Process) S) error {
	var none, session S
	err := Run(ctx, spec, func(ctx context.Context, p *Process) error {
		session = talk(p)
		s.set(session, nil)
		return session.Serve(ctx)
	})
	if err == nil {
		err = fmt.Errorf("%s %w", spec.name(), ErrEnded)
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	var worked, busy bool
	if session != none {
		worked, busy = session.Did()
	}
	s.count(worked, busy)
	s.set(none, err)
	if session != none {
		session.End(err)
	}
	return err
}

func (s *Slot[S]) set(session S, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session, s.next = session, time.Time{}
	if err != nil {
		s.last = err
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// count updates the counters ends and killed after a child has ended. killed counts the first
// maxKilled deaths with work in progress. ends counts all other ends without completed work. The
// next start waits if ends is not 0. worked and busy are the results of [Session.Did].
func (s *Slot[S]) count(worked, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case worked:
		s.ends, s.killed = 0, 0
	case busy && s.killed < maxKilled:
		s.killed++
	default:
		s.ends++
	}
}

// Session returns the session with the running child, or a *DownError if there is none.
func (s *Slot[S]) Session() (S, error) {
	session, _, err := s.look()
	return session, err
}

func (s *Slot[S]) look() (S, <-chan struct{}, error) {
	var none S
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != none {
		return s.session, s.changed, nil
	}
	wait := Soon
	if !s.next.IsZero() {
		wait = max(wait, time.Until(s.next))
	}
	return none, s.changed, &DownError{Slot: s.name, Next: wait, Ends: s.ends, Err: s.last}
}

// Await waits until the slot has a running child, and returns its session. If the last start failed
// with a [StartError], Await returns a *DownError at once. If ctx ends first, it returns an error.
func (s *Slot[S]) Await(ctx context.Context) (S, error) {
	for {
		session, changed, err := s.look()
		if err == nil {
			return session, nil
		}
		if _, never := errors.AsType[*StartError](err); never {
			return session, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return session, errors.Join(context.Cause(ctx), err)
		}
	}
}
