package supervise

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"
)

// Supervisor keeps named children running. Its methods may be called by any number of goroutines.
//
// What it never does: run two incarnations of one child. Go cannot stop a goroutine, so a child that does not return
// when its context ends blocks its own restart and is reported; the supervisor then gives up, and what it returns, or
// the status of the tree, names the child.
type Supervisor struct {
	name   string
	wakeUp chan struct{} // holds one: there is something in the inbox, or the machine has changed
	done   chan struct{} // closed when Serve has returned

	mu    sync.Mutex // guards what follows; nothing is called while it is held
	m     *machine
	inbox []homecoming
	lives map[*child]*life           // the incarnations that have not returned
	gone  map[*child][]chan struct{} // who waits for a removal
	begun time.Time
	needs func(time.Duration) // of the supervisor above; nil: there is none, or Serve has not begun
}

// homecoming is an incarnation that has returned.
type homecoming struct {
	child *child
	err   error
}

// life is what the runtime keeps of an incarnation.
type life struct {
	cancel  context.CancelCauseFunc
	service Service // nil until New has returned
	within  *within
}

// above is what a supervisor finds in its context about the one that runs it.
type above struct {
	path string
	tell func(Event)
	// needs is called with how long a supervisor beneath may take to stop, again when that grows.
	needs  func(time.Duration)
	within *within // where what runs beneath shows itself
}

type aboveKey struct{}

// New checks the recipes and starts nothing: Serve does. name is the first part of the path in events and errors.
func New(name string, spec Spec, children ...Child) (*Supervisor, error) {
	if name == "" || hasSlash(name) {
		return nil, fmt.Errorf("supervisor %q: want a name without a slash", name)
	}
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("supervisor %q: %w", name, err)
	}
	s := &Supervisor{
		name: name, wakeUp: make(chan struct{}, 1), done: make(chan struct{}), m: newMachine(name, spec),
		lives: map[*child]*life{}, gone: map[*child][]chan struct{}{},
	}
	for _, c := range children {
		if err := s.m.add(0, c); err != nil {
			return nil, fmt.Errorf("supervisor %q: %w", name, err)
		}
	}
	return s, nil
}

// Serve starts the children in order and keeps them running until ctx ends, a significant child is done, or it has to
// give up. It then stops them in reverse order and returns the cause of ctx's end, the significant child's error, or an
// *EscalatedError. It may be called once.
//
// The outermost supervisor returns although a child has not, joined with a *StuckError. One within another does not:
// its parent must not make a second one of it.
func (s *Supervisor) Serve(ctx context.Context) error {
	up, nested := supervised(ctx)
	s.mu.Lock()
	if !s.begun.IsZero() {
		s.mu.Unlock()
		return fmt.Errorf("supervisor %q: Serve was called before: make a new one", s.name)
	}
	s.begun = time.Now()
	if nested {
		s.m.path = up.path + "/" + s.name
		if s.m.spec.OnEvent == nil {
			s.m.spec.OnEvent = up.tell
		}
		s.needs = up.needs
	}
	if ctx.Err() == nil {
		s.m.begin(0)
	}
	tell := s.m.spec.OnEvent
	if tell == nil {
		tell = func(Event) {}
	}
	k := keeper{s, context.WithoutCancel(ctx), tell}
	s.mu.Unlock()
	s.announce()
	defer close(s.done)
	if nested {
		up.within.add(s)
		defer up.within.remove(s)
	}
	return k.loop(ctx, nested)
}

// keeper is what the goroutine of Serve needs.
type keeper struct {
	*Supervisor
	// base is what the children's contexts are made of. It does not end with ctx: they are stopped one after the other.
	base context.Context
	tell func(Event)
}

func (k keeper) loop(ctx context.Context, nested bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	for {
		k.mu.Lock()
		now := time.Since(k.begun)
		if ctx.Err() != nil {
			stop = nil
			k.m.stop(now, context.Cause(ctx), context.Cause(ctx))
		}
		for _, e := range k.inbox {
			delete(k.lives, e.child)
			k.m.ended(now, e.child, e.err)
		}
		clear(k.inbox)
		k.inbox = k.inbox[:0]
		k.m.tick(now)
		commands := k.m.take()
		at, due := k.m.wake()
		ended, left := k.m.phase == over, k.m.alive
		k.mu.Unlock()
		k.perform(now, commands)
		if ended && (left == 0 || !nested) {
			return k.result()
		}
		timer.Stop()
		if due {
			timer.Reset(at - time.Since(k.begun))
		}
		select {
		case <-stop:
		case <-k.wakeUp:
		case <-timer.C:
		}
	}
}

// perform carries out the machine's commands, with no lock held.
func (k keeper) perform(now time.Duration, commands []command) {
	for _, c := range commands {
		switch c.kind {
		case commandStart:
			k.start(c.child)
		case commandCancel:
			k.cancel(c.child, c.cause)
		case commandGone:
			k.release(c.child)
		case commandTell:
			c.event.Time = k.begun.Add(now)
			k.tell(c.event)
		}
	}
}

func (k keeper) start(c *child) {
	l := &life{within: new(within)}
	ctx, cancel := context.WithCancelCause(context.WithValue(k.base, aboveKey{}, above{
		path: k.m.path, tell: k.tell, needs: func(d time.Duration) { k.allow(c, d) }, within: l.within,
	}))
	l.cancel = cancel
	k.mu.Lock()
	k.lives[c] = l
	k.mu.Unlock()
	go guard(c.Name, func() error {
		service, err := c.New()
		if err != nil {
			return fmt.Errorf("make an incarnation: %w", err)
		}
		k.mu.Lock()
		l.service = service
		k.mu.Unlock()
		return service.Serve(ctx)
	}, func(err error) {
		cancel(nil)
		k.mu.Lock()
		k.inbox = append(k.inbox, homecoming{c, err})
		k.mu.Unlock()
		k.wake()
	})
}

// guard calls run and then, whatever became of it, ended: with its error, or with the panic or runtime.Goexit in it.
func guard(name string, run func() error, ended func(error)) {
	var err error
	returned := false
	defer func() {
		if !returned { // without a value to recover it was runtime.Goexit
			err = &PanicError{Name: name, Value: recover(), Stack: debug.Stack()}
		}
		ended(err)
	}()
	err = run()
	returned = true
}

// announce tells the supervisor above how long this one may take to stop.
func (s *Supervisor) announce() {
	s.mu.Lock()
	needs, bound := s.needs, s.m.bound()
	s.mu.Unlock()
	if needs != nil {
		needs(bound)
	}
}

// allow gives c, a supervisor, the time that it needs to stop.
func (s *Supervisor) allow(c *child, needs time.Duration) {
	s.mu.Lock()
	c.patience = max(c.patience, needs) // of several supervisors within it the slowest counts
	s.mu.Unlock()
	s.announce()
}

func (k keeper) cancel(c *child, cause error) {
	k.mu.Lock()
	l := k.lives[c]
	k.mu.Unlock()
	if l != nil { // else it has returned meanwhile
		l.cancel(cause)
	}
}

// release tells those who wait for it that c is gone.
func (s *Supervisor) release(c *child) {
	s.mu.Lock()
	waiting := s.gone[c]
	delete(s.gone, c)
	s.mu.Unlock()
	for _, w := range waiting {
		close(w)
	}
}

func (s *Supervisor) wake() {
	select {
	case s.wakeUp <- struct{}{}:
	default: // it will look anyway
	}
}

// result is what Serve returns. Children that still run are named; of a supervisor among them, its own.
func (s *Supervisor) result() error {
	if paths := s.stuck(); len(paths) > 0 {
		return errors.Join(s.m.result, &StuckError{s.m.path, paths})
	}
	return s.m.result
}

func (s *Supervisor) stuck() (paths []string) {
	s.mu.Lock()
	names, services := []string{}, []Service{}
	for _, c := range s.m.stuck() {
		if l := s.lives[c]; l != nil {
			names, services = append(names, c.Name), append(services, l.service)
		}
	}
	s.mu.Unlock()
	for i, name := range names {
		below := []string{}
		if sub, ok := services[i].(*Supervisor); ok {
			below = sub.stuck()
		}
		if len(below) == 0 {
			paths = append(paths, name)
		}
		for _, b := range below {
			paths = append(paths, name+"/"+b)
		}
	}
	return paths
}

// nowLocked is the machine's time; the caller holds mu.
func (s *Supervisor) nowLocked() time.Duration {
	if s.begun.IsZero() {
		return 0
	}
	return time.Since(s.begun)
}

// Add takes one more child in, behind the others. While the supervisor runs the child starts at once.
func (s *Supervisor) Add(c Child) error {
	s.mu.Lock()
	err := s.m.add(s.nowLocked(), c)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("supervisor %q: add: %w", s.name, err)
	}
	s.announce()
	s.wake()
	return nil
}

// Remove stops a child, waits until it has returned, and forgets it. When ctx ends first its cause is returned; the
// child is still forgotten as soon as it returns.
func (s *Supervisor) Remove(ctx context.Context, name string) error {
	gone := make(chan struct{})
	s.mu.Lock()
	c := s.m.names[name]
	err := s.m.remove(s.nowLocked(), name)
	if c == nil || s.m.names[name] != c {
		close(gone)
	} else {
		s.gone[c] = append(s.gone[c], gone)
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("supervisor %q: remove: %w", s.name, err)
	}
	s.wake()
	select {
	case <-gone:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("supervisor %q: remove child %q: %w", s.name, name, context.Cause(ctx))
	}
}

// Restart stops a child and starts it again, or starts one that waits or is done: now, without counting as a crash. It
// does not wait for that.
func (s *Supervisor) Restart(name string) error {
	s.mu.Lock()
	err := s.m.restart(s.nowLocked(), name)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("supervisor %q: restart: %w", s.name, err)
	}
	s.wake()
	return nil
}

// Children returns the status of each child, in order, as it was when the loop began.
func (s *Supervisor) Children() iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for _, c := range s.Status().Children {
			if !yield(c) {
				return
			}
		}
	}
}
