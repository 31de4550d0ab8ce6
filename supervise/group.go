// Package supervise owns what keeps running: every goroutine has a name, an owner, a stop and a bound.
//
// It is the one place, beside flow's lanes and retry's hedge, where the keyword go stands. A [Group] is the
// small form: named goroutines that start together, stop together and are waited for. A [Supervisor] is the large one:
// children that are made afresh when they die, with waits between, in trees. A [Resender] keeps what a child has not
// acked, so that who waits for an answer gets it however often the child dies meanwhile.
//
// Decisions (who starts when, in which order, how often is too often, what is sent again) are in pure files, where time
// is a parameter; the rest only waits and starts. The package logs nothing: see [Spec.OnEvent] and [Supervisor.Status].
package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrStopped is the cause with which a Group's context ends when Stop was called without one.
var ErrStopped = errors.New("supervise: stopped")

// A PanicError is a panic (or runtime.Goexit) caught in a goroutine.
type PanicError struct {
	Name  string // of the goroutine
	Value any    // what was panicked with; nil: runtime.Goexit
	Stack []byte
}

// Error gives name, value and stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("%s: runtime.Goexit was called\n%s", e.Name, e.Stack)
	}
	return fmt.Sprintf("%s: panic: %v\n%s", e.Name, e.Value, e.Stack)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Group is a set of named goroutines with one context: the first that returns an error or panics ends it for
// all. A Group is safe for concurrent use and must not be copied. Within a child of a [Supervisor] its goroutines stand in
// the supervisor's tree while they run.
type Group struct {
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	up     above // its within is nil where there is no supervisor above

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	err     error      // the first
	running []*member
}

// member is one goroutine of a group.
type member struct {
	name   string
	since  time.Time
	within within
}

// NewGroup returns an empty group whose context is derived from ctx.
func NewGroup(ctx context.Context) *Group { return NewNamedGroup(ctx, "") }

// NewNamedGroup is NewGroup for a group that shows in the tree as one thing of that name, with its goroutines beneath.
// Without a name they stand directly beneath what has made the group.
func NewNamedGroup(ctx context.Context, name string) *Group {
	up, _ := supervised(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{name: name, ctx: ctx, cancel: cancel, up: up}
}

// Context ends when a goroutine of the group has failed, Stop was called, or the parent ended.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts run under name; several may share one. Its error, wrapped with the name, ends the group, unless it
// is only the group's own end that comes back: its cause, or what Err of its context says. The caller must be
// one of the group's goroutines or know that Wait has not been reached.
func (g *Group) Go(name string, run func(ctx context.Context) error) {
	m := &member{name: name, since: time.Now()}
	g.mu.Lock()
	first := len(g.running) == 0
	g.running = append(g.running, m)
	if first && g.up.within != nil {
		g.up.within.add(g)
	}
	g.mu.Unlock()
	g.wg.Add(1)
	go g.run(m, run)
}

func (g *Group) run(m *member, run func(ctx context.Context) error) {
	panicked := true
	guard(m.name, func() (err error) {
		err = run(g.contextOf(m))
		panicked = false
		return err
	}, func(err error) {
		if err != nil && !panicked {
			err = fmt.Errorf("%s: %w", m.name, err)
		}
		g.ended(m, err)
		g.wg.Done()
	})
}

// contextOf is the group's context, in which what runs within m finds m.
func (g *Group) contextOf(m *member) context.Context {
	if g.up.within == nil {
		return g.ctx
	}
	up := g.up
	up.within = &m.within
	return context.WithValue(g.ctx, aboveKey{}, up)
}

func (g *Group) ended(m *member, err error) {
	g.mu.Lock()
	g.running = slices.DeleteFunc(g.running, func(r *member) bool { return r == m })
	if len(g.running) == 0 && g.up.within != nil {
		g.up.within.remove(g)
	}
	if err != nil && g.err == nil && !g.isOwnEnd(err) {
		g.err = err
	}
	first := g.err
	g.mu.Unlock()
	if first != nil {
		g.cancel(first)
	}
}

// isOwnEnd says whether err only repeats that the group's context has ended. A panic never does.
func (g *Group) isOwnEnd(err error) bool {
	if _, panicked := err.(*PanicError); panicked {
		return false
	}
	end := g.ctx.Err()
	return end != nil && (errors.Is(err, context.Cause(g.ctx)) || errors.Is(err, end))
}

// Stop ends the group's context with cause, nil meaning ErrStopped. It does not wait.
func (g *Group) Stop(cause error) {
	if cause == nil {
		cause = ErrStopped
	}
	g.cancel(cause)
}

// Wait returns when all goroutines have ended, with the first failure. Goroutines started meanwhile are waited for too.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(ErrStopped)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Running names the goroutines that have not ended, in the order in which they started.
func (g *Group) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for _, m := range g.running {
		names = append(names, m.name)
	}
	return names
}

// Status is the group with the goroutines that have not ended, as a part of a tree.
func (g *Group) Status() Status {
	status := Status{Name: g.name, State: Running, Restart: Temporary, Starts: 1}
	if g.ctx.Err() != nil {
		status.State = Halting
	}
	g.mu.Lock()
	members := slices.Clone(g.running)
	g.mu.Unlock()
	for _, m := range members {
		node := Status{Name: m.name, State: status.State, Restart: Temporary, Starts: 1, Since: m.since}
		node.adopt(&m.within, nil)
		status.Children = append(status.Children, node)
	}
	if len(members) > 0 {
		status.Since = members[0].since
	}
	return status
}
