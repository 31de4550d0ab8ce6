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

// Session is the talk with one incarnation of a child.
type Session interface {
	comparable
	// Serve reads what the child says until it ends or says what it may not; then it kills it.
	Serve(ctx context.Context) error
	// End is called after Serve has returned and the process and its group are gone: whoever waits for
	// an answer is told err.
	End(err error)
	// Did says whether the child has done anything since its start, and whether it has anything in
	// hand now. It is called before End.
	Did() (worked, busy bool)
}

// Fleet keeps children running, each in a slot of its own, until its context ends. One that ends is
// started again: at once if it has worked since its start, or if it died of what it had in hand, up
// to maxKilled times in a row: that may be the fault of what it was given, and those who give it
// find out. Else after a wait that grows from FirstWait to LastWait.
type Fleet[S Session] struct {
	o     FleetOptions[S]
	slots []*Slot[S]
	tree  *supervise.Supervisor
}

// FleetOptions say what runs in a fleet. All are required.
type FleetOptions[S Session] struct {
	Name  string   // of the supervisor
	Names []string // of the slots
	Spec  func(slot string) Spec
	Talk  func(p *Process) S // makes the session with a child that has just started
}

// The waits between starts of a child that does nothing but end.
const (
	FirstWait = 100 * time.Millisecond
	LastWait  = 30 * time.Second
)

// maxKilled is how many deaths with work in hand are forgiven in a row.
const maxKilled = 16

// waits is the policy of one slot: the wait depends on what its last children did, which the
// supervisor does not know.
type waits[S Session] struct {
	backoff.Policy
	slot *Slot[S]
}

// Next implements backoff.Policy.
func (w waits[S]) Next(s backoff.State, src rand.Source) (wait time.Duration, next backoff.State, ok bool) {
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

// Slot is the place of one child. Its methods may be called by any goroutine.
type Slot[S Session] struct {
	name string

	mu      sync.Mutex // guards what follows
	session S          // zero: there is none
	changed chan struct{}
	last    error     // how the last one ended
	next    time.Time // of the next start; zero: not known yet
	ends    int       // in a row that are not forgiven
	killed  int       // in a row that died of what they had in hand
}

// DownError says that there is no child in a slot at the moment.
type DownError struct {
	Slot string
	Next time.Duration // until the next start, at least
	Ends int           // how many have ended in a row without having worked
	Err  error         // how the last one ended; nil: the first has not started yet
}

// Error says since when and until when.
func (e *DownError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: its child has not started yet", e.Slot)
	}
	return fmt.Sprintf("%s: its child has ended and starts again in %v: %v", e.Slot, e.Next.Round(time.Millisecond), e.Err)
}

// Unwrap returns how the last one ended.
func (e *DownError) Unwrap() error { return e.Err }

// Soon is what DownError.Next says at least, also where the next start is due or not known yet.
const Soon = 10 * time.Millisecond

// NewFleet starts nothing.
func NewFleet[S Session](o FleetOptions[S]) (*Fleet[S], error) {
	f := &Fleet[S]{o: o}
	var children []supervise.Child
	for _, name := range o.Names {
		s := &Slot[S]{name: name, changed: make(chan struct{})}
		f.slots = append(f.slots, s)
		spec := o.Spec(name)
		children = append(children, supervise.Child{
			Name:     name,
			Backoff:  waits[S]{backoff.Exponential(FirstWait, 2, LastWait).Equal(), s},
			Run:      func(ctx context.Context) error { return s.run(ctx, spec, o.Talk) },
			Shutdown: spec.grace() + 5*time.Second, // beyond that even SIGKILL has not ended it
		})
	}
	var err error
	f.tree, err = supervise.New(o.Name, supervise.Spec{OnEvent: f.event}, children...)
	return f, err
}

// Slots returns the slots in the order of their names.
func (f *Fleet[S]) Slots() []*Slot[S] { return f.slots }

// Serve runs the children until ctx ends, and returns when they are gone. It may be called once.
func (f *Fleet[S]) Serve(ctx context.Context) error { return f.tree.Serve(ctx) }

// event notes when a child will be back.
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

// run is one incarnation.
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

// count notes what the last child did before it ended.
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

// Session returns the talk with the child that runs; a *DownError: there is none.
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

// Await returns the talk with the child that runs, when there is one; a program that cannot be
// started is a *DownError at once. ctx bounds the wait.
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
