package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Supervisor keeps named children running. Its methods are safe for concurrent use. Make one with
// [New]: the methods of a zero Supervisor panic, except String.
//
// A child never has two incarnations at the same time. If a child does not return in time after its
// context has ended, it is reported as stuck. If a stuck child was to be restarted, the supervisor
// gives up, because a goroutine cannot be stopped from outside.
type Supervisor struct {
	name   string
	wakeUp chan struct{} // holds one: the inbox or the machine has changed

	// mu guards the fields below. Of the options, only the policies and Rand are called while it is
	// held, so they must not call the Supervisor.
	mu       sync.Mutex
	m        *machine // the pointer does not change
	inbox    []exit
	lives    map[*child]*liveChild      // the incarnations that have not returned
	removals map[*child][]chan struct{} // closed when the child is gone
	serving  bool
	serves   uint64        // calls of Serve
	begun    time.Time     // start of the last Serve
	done     chan struct{} // closed when the last Serve has returned
	// needs tells the supervisor above this one how long this one takes to stop (see above.needs).
	// It is from the context of the last Serve. It is nil if there is no supervisor above.
	needs func(time.Duration)
}

// exit is an incarnation that has returned.
type exit struct {
	child *child
	err   error
	told  chan struct{} // closed when OnEvent has got the event Ended; nil if nothing waits
}

// liveChild is the runtime state of one incarnation.
type liveChild struct {
	cancel  context.CancelCauseFunc
	service Service // nil until New has returned
	within  *within
}

// above describes the nearest supervisor above. The supervisor stores it in the contexts of its
// children.
type above struct {
	path string
	tell func(context.Context, Event)
	// A supervisor inside the child calls needs with the time that it takes to stop, and again
	// when that time grows. If Child.Shutdown is zero, the child then gets at least that time.
	needs      func(time.Duration)
	passPanics bool
	within     *within // of the incarnation or goroutine that has this context
}

type aboveKey struct{}

// New checks spec and the children and starts nothing. The name is a part of the paths in events
// and errors. It must not be empty or contain a slash.
func New(name string, spec Spec, children ...Child) (*Supervisor, error) {
	if name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("supervisor %q: want a name without a slash", name)
	}
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("supervisor %q: %w", name, err)
	}
	s := &Supervisor{
		name: name, wakeUp: make(chan struct{}, 1), done: make(chan struct{}),
		m:     newMachine(name, spec),
		lives: map[*child]*liveChild{}, removals: map[*child][]chan struct{}{},
	}
	for _, c := range children {
		if err := s.m.add(0, c); err != nil {
			return nil, fmt.Errorf("supervisor %q: %w", name, err)
		}
	}
	return s, nil
}

// refuseZero panics if s is a zero Supervisor.
func (s *Supervisor) refuseZero() {
	if s.m == nil {
		panic("supervise: zero Supervisor; make one with supervise.New")
	}
}

// String returns the name, so that a Child with only Service: s has this name.
func (s *Supervisor) String() string { return s.name }

// Serve starts the children in order and keeps them running until one of three events. Then it
// stops the children in reverse order and returns:
//
//	event                          result
//	ctx ends                       the cause of its end
//	a Significant child is done    its error, or nil if it returned nil or ErrStop
//	the supervisor gives up        an *EscalatedError
//
// After it has returned, Serve may be called again. A supervisor that is a child of another one
// needs that. Each call starts the children as new ones: those of New, and those of Add before the
// first Serve, even if they are Temporary and have ended. Children that were added later start only
// if they are still in the supervisor. Removed children do not start. Calls of Serve must not
// overlap. A call fails if a stuck child of an earlier call has still not returned. If OnEvent
// panics, Serve ends the contexts of the children and panics, too.
//
// The outermost supervisor returns even if a child is stuck, with a *StuckError joined to the
// result. A supervisor inside another one waits for its stuck children. If the inner supervisor
// returned, the outer one could restart it, and the stuck children would get a second incarnation.
func (s *Supervisor) Serve(ctx context.Context) error {
	up, nested := supervised(ctx)
	k, late, err := s.open(ctx, up, nested)
	if err != nil {
		return err
	}
	defer k.close()
	k.perform(0, late)
	s.announce()
	if nested {
		up.within.add(s)
		defer up.within.remove(s)
	}
	return k.loop(nested)
}

// open prepares a call of Serve. It also returns the commands that the state machine has produced
// since the last call, and that are still to be carried out.
func (s *Supervisor) open(ctx context.Context, up above,
	nested bool) (*serveRun, []command, error) {
	s.refuseZero()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		return nil, nil, fmt.Errorf("supervisor %q: Serve: another call has not returned", s.name)
	}
	s.handleExitsLocked(s.nowLocked())
	if left := s.m.stuck(); len(left) > 0 {
		return nil, nil, fmt.Errorf("supervisor %q: Serve: child %q of an earlier call has not "+
			"returned",
			s.name, left[0].Name)
	}
	late := s.m.take()
	if s.m.phase == over {
		s.m.reset()
		s.done = make(chan struct{})
	}
	s.serving, s.begun = true, time.Now()
	s.serves++
	s.m.path, s.needs = s.name, nil
	k := &serveRun{
		Supervisor: s, ctx: ctx, base: context.WithoutCancel(ctx), done: s.done,
		tell: up.hook(s.m.spec.OnEvent), passPanics: s.m.spec.PassPanics || up.passPanics,
	}
	if nested {
		s.m.path, s.needs = up.path+"/"+s.name, up.needs
	}
	if ctx.Err() == nil {
		s.m.begin(0)
	}
	return k, late, nil
}

// serveRun is the state of one call of Serve.
type serveRun struct {
	*Supervisor
	ctx context.Context
	// base is the parent of the children's contexts. It does not end when ctx ends, because the
	// children are stopped one by one.
	base       context.Context
	done       chan struct{}
	tell       func(context.Context, Event)
	passPanics bool
}

func (k *serveRun) close() {
	k.mu.Lock()
	if k.m.phase != over { // OnEvent or a policy has panicked
		k.abortLocked()
	}
	k.serving = false
	k.mu.Unlock()
	close(k.done)
}

// abortLocked ends the contexts of all children. Serve can be called again when they have returned.
// The caller holds mu.
func (k *serveRun) abortLocked() {
	k.m.phase = over
	k.m.take() // commands that are not carried out
	for _, c := range k.m.stuck() {
		if l := k.lives[c]; l != nil {
			l.cancel(ErrStopped)
			continue
		}
		c.alive, c.state = false, Idle // its start was not carried out
		k.m.alive--
		if c.afterEnd == thenRemove {
			k.m.unlink(c) // the next Serve carries out the resulting command
		}
	}
}

func (k *serveRun) loop(nested bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := k.ctx.Done()
	for {
		if k.ctx.Err() != nil {
			stop = nil
		}
		s := k.step()
		k.perform(s.now, s.commands)
		for _, t := range s.told {
			close(t)
		}
		if s.over && (s.left == 0 || !nested) {
			return k.result()
		}
		timer.Stop()
		if s.wakeAt < never {
			timer.Reset(s.wakeAt - time.Since(k.begun))
		}
		select {
		case <-stop:
		case <-k.wakeUp:
		case <-timer.C:
		}
	}
}

// machineStep is the result of one step of the state machine.
type machineStep struct {
	now      time.Duration
	commands []command
	told     []chan struct{} // closed when the commands have been carried out
	wakeAt   time.Duration   // time of the next step, or never
	over     bool            // all children have returned or are stuck
	left     int             // children that have not returned
}

// step passes the time, the end of the context and the exits of children to the state machine.
func (k *serveRun) step() machineStep {
	k.mu.Lock()
	defer k.mu.Unlock() // also if a policy panics
	s := machineStep{now: time.Since(k.begun)}
	if k.ctx.Err() != nil {
		k.m.stop(s.now, context.Cause(k.ctx), context.Cause(k.ctx))
	}
	s.told = k.handleExitsLocked(s.now)
	k.m.tick(s.now)
	s.commands = k.m.take()
	s.wakeAt = k.m.wake()
	s.over, s.left = k.m.phase == over, k.m.alive
	return s
}

// handleExitsLocked tells the state machine which children have returned (the field inbox). Their
// events are passed to OnEvent later. The caller then closes the channels in the result, for which
// exited waits. The caller holds mu.
func (s *Supervisor) handleExitsLocked(now time.Duration) (told []chan struct{}) {
	for len(s.inbox) > 0 {
		e := s.inbox[0]
		s.inbox = s.inbox[1:]
		delete(s.lives, e.child)
		s.m.ended(now, e.child, e.err)
		if e.told != nil {
			told = append(told, e.told)
		}
	}
	return told
}

// perform carries out the state machine's commands, with no lock held.
func (k *serveRun) perform(now time.Duration, commands []command) {
	for _, c := range commands {
		switch c.kind {
		case commandStart:
			k.start(c.child)
		case commandCancel:
			k.cancel(c.child, c.cause)
		case commandRemoved:
			k.release(c.child)
		case commandReport:
			c.event.Time = k.begun.Add(now)
			k.tell(k.ctx, c.event)
		}
	}
}

func (k *serveRun) start(c *child) {
	l := &liveChild{within: new(within)}
	ctx, cancel := context.WithCancelCause(context.WithValue(k.base, aboveKey{}, above{
		path: k.m.path, tell: k.tell, needs: func(d time.Duration) { k.allow(c, d) },
		passPanics: k.passPanics, within: l.within,
	}))
	l.cancel = cancel
	k.mu.Lock()
	k.lives[c] = l
	k.mu.Unlock()
	go guard(c.Name, k.passPanics, func() error {
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
		k.exited(c, err)
	})
}

// exited passes the end of c to the goroutine of Serve. If a panic in c is about to crash the
// process, exited waits until OnEvent has got the event.
func (k *serveRun) exited(c *child, err error) {
	e := exit{child: c, err: err}
	if _, panicked := err.(*PanicError); panicked && k.passPanics {
		e.told = make(chan struct{})
	}
	k.mu.Lock()
	k.inbox = append(k.inbox, e)
	k.mu.Unlock()
	k.wake()
	if e.told != nil {
		select {
		case <-e.told:
		case <-k.done:
		}
	}
}

// guard calls run, and then passes the error of run to the function ended. A panic or
// runtime.Goexit in run becomes a *PanicError. With passPanics, the panic continues after ended
// has returned.
func guard(name string, passPanics bool, run func() error, ended func(error)) {
	var err error
	returned := false
	defer func() {
		var value any
		if !returned {
			value = recover() // nil after runtime.Goexit
			err = &PanicError{Name: name, Value: value, Stack: debug.Stack()}
		}
		ended(err)
		if passPanics && value != nil {
			panic(value)
		}
	}()
	err = run()
	returned = true
}

// announce reports to the supervisor above the maximum time that this one takes to stop.
func (s *Supervisor) announce() {
	s.mu.Lock()
	needs, bound := s.needs, s.m.bound()
	s.mu.Unlock()
	if needs != nil {
		needs(bound)
	}
}

// allow sets the default Shutdown of c to needs, the time that a supervisor within c takes to stop,
// unless an earlier call has set a longer time.
func (s *Supervisor) allow(c *child, needs time.Duration) {
	s.mu.Lock()
	c.patience = max(c.patience, needs) // of several supervisors within c, the slowest counts
	s.mu.Unlock()
	s.announce()
}

func (k *serveRun) cancel(c *child, cause error) {
	k.mu.Lock()
	l := k.lives[c]
	k.mu.Unlock()
	if l != nil { // nil if it has returned meanwhile
		l.cancel(cause)
	}
}

// release wakes the callers of Remove that wait until c has left the supervisor.
func (s *Supervisor) release(c *child) {
	s.mu.Lock()
	waiting := s.removals[c]
	delete(s.removals, c)
	s.mu.Unlock()
	for _, w := range waiting {
		close(w)
	}
}

func (s *Supervisor) wake() {
	select {
	case s.wakeUp <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// result returns the result of Serve. If children are stuck, a *StuckError that lists them is
// joined to it.
func (s *Supervisor) result() error {
	if paths := s.stuck(); len(paths) > 0 {
		return errors.Join(s.m.result, &StuckError{s.m.path, paths})
	}
	return s.m.result
}

// stuck returns the paths of the children that have not returned. For a child that runs
// supervisors with stuck children, it returns the paths of those children instead.
func (s *Supervisor) stuck() (paths []string) {
	s.mu.Lock()
	names, lives := []string{}, []liveChild{}
	for _, c := range s.m.stuck() {
		if l := s.lives[c]; l != nil {
			names, lives = append(names, c.Name), append(lives, *l)
		}
	}
	s.mu.Unlock()
	for i, name := range names {
		below := []string{}
		for _, p := range lives[i].within.list() {
			if sub, ok := p.(*Supervisor); ok {
				below = append(below, sub.stuck()...)
			}
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

// nowLocked returns the state machine's time. The caller holds mu.
func (s *Supervisor) nowLocked() time.Duration {
	if s.begun.IsZero() {
		return 0
	}
	return time.Since(s.begun)
}

// Add adds a child behind the others. If the supervisor is running, the child starts at once. While
// several children are being restarted together, the new child starts with them. Once Serve has
// begun to stop the children, the error wraps ErrStopped.
func (s *Supervisor) Add(c Child) error {
	s.refuseZero()
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

// Remove stops a child and waits until the child has returned and left the supervisor, or until
// Serve has returned. If ctx ends first, Remove returns the cause, and the child still leaves the
// supervisor later.
func (s *Supervisor) Remove(ctx context.Context, name string) error {
	s.refuseZero()
	gone := make(chan struct{})
	s.mu.Lock()
	c := s.m.names[name]
	err := s.m.remove(s.nowLocked(), name)
	if c == nil || s.m.names[name] != c {
		close(gone)
	} else {
		s.removals[c] = append(s.removals[c], gone)
	}
	done := s.done
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("supervisor %q: remove: %w", s.name, err)
	}
	s.wake()
	select {
	case <-gone:
		return nil
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("supervisor %q: remove child %q: %w", s.name, name, context.Cause(ctx))
	}
}

// Restart stops a running child and starts it again. A child that waits or is done is only started.
// The start skips Backoff and does not count for Intensity. If the Strategy is already restarting
// the child together with others, the child starts with them. Restart does not wait for the start.
// If Serve is not running or is stopping the children, the error wraps ErrStopped.
func (s *Supervisor) Restart(name string) error {
	s.refuseZero()
	s.mu.Lock()
	err := s.m.restart(s.nowLocked(), name)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("supervisor %q: restart: %w", s.name, err)
	}
	s.wake()
	return nil
}
