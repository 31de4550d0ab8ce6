package child

import (
	"context"
	"errors"
	"fmt"
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
	// End is called after Serve has returned and the process and its group are gone: whoever waits for an answer is told err.
	End(err error)
	// Worked says whether the child has done anything since its start.
	Worked() bool
}

// Fleet keeps children running, each in a slot of its own, until its context ends. One that ends is started again: at once
// if it has worked since its start, else after a wait that grows from FirstWait to LastWait.
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

// Slot is the place of one child. Its methods may be called by any goroutine.
type Slot[S Session] struct {
	name string

	mu      sync.Mutex // guards what follows
	session S          // zero: there is none
	changed chan struct{}
	last    error     // how the last one ended
	next    time.Time // of the next start; zero: not known yet
	ends    int       // in a row without any work
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

// soon is what Next says while it is not known.
const soon = 10 * time.Millisecond

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
			Run:      func(ctx context.Context) error { return s.run(ctx, spec, o.Talk) },
			Shutdown: spec.grace() + 5*time.Second, // beyond that even SIGKILL has not ended it
		})
	}
	var err error
	f.tree, err = supervise.New(o.Name, supervise.Spec{
		Backoff: backoff.Exponential(FirstWait, 2, LastWait).Equal(),
		OnEvent: f.event,
	}, children...)
	return f, err
}

// Slots returns the slots in the order of their names.
func (f *Fleet[S]) Slots() []*Slot[S] { return f.slots }

// Serve runs the children until ctx ends, and returns when they are gone. It may be called once.
func (f *Fleet[S]) Serve(ctx context.Context) error { return f.tree.Serve(ctx) }

// event notes when a child will be back, and has one that has worked come back at once.
func (f *Fleet[S]) event(e supervise.Event) {
	if e.Kind != supervise.Ended || !e.Restart {
		return
	}
	for _, s := range f.slots {
		if s.name != e.Child {
			continue
		}
		if s.ended(e.Time.Add(e.Delay)) {
			_ = f.tree.Restart(e.Child) // it errs for children that are not there
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
		err = fmt.Errorf("%s ended by itself, with status 0", spec.name())
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	worked := session != none && session.Worked()
	s.mu.Lock()
	s.ends++
	if worked {
		s.ends = 0
	}
	s.mu.Unlock()
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

// ended notes when the next start is due, and says whether it is due at once.
func (s *Slot[S]) ended(next time.Time) (atOnce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == 0 {
		return true
	}
	s.next = next
	return false
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
	wait := soon
	if !s.next.IsZero() {
		wait = max(wait, time.Until(s.next))
	}
	return none, s.changed, &DownError{Slot: s.name, Next: wait, Ends: s.ends, Err: s.last}
}

// Await returns the talk with the child that runs, when there is one; a program that cannot be started is a *DownError at
// once. ctx bounds the wait.
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

// Tree is what runs: the supervisor with its children.
func (f *Fleet[S]) Tree() supervise.Status { return f.tree.Status() }
