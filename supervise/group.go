// Package supervise owns what keeps running: every goroutine has a name, an owner, a stop and a bound.
//
// It is the one place, beside flow's lanes and retry's hedge, where the keyword go stands. A [Group] is the
// small form: named goroutines that start together, stop together and are waited for.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
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
// all. A Group is safe for concurrent use and must not be copied.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	err     error      // the first
	running []string
}

// NewGroup returns an empty group whose context is derived from ctx.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Context ends when a goroutine of the group has failed, Stop was called, or the parent ended.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts run under name. Its error, wrapped with the name, ends the group, unless it is only the cause of
// the group's own end.
func (g *Group) Go(name string, run func(ctx context.Context) error) {
	g.mu.Lock()
	g.running = append(g.running, name)
	g.mu.Unlock()
	g.wg.Add(1)
	go g.run(name, run)
}

func (g *Group) run(name string, run func(ctx context.Context) error) {
	err := error(&PanicError{Name: name}) // what remains if run never returns: Goexit
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Name: name, Value: v, Stack: debug.Stack()}
		} else if p, ok := err.(*PanicError); ok && p.Stack == nil && p.Value == nil {
			p.Stack = debug.Stack()
		}
		g.ended(name, err)
		g.wg.Done()
	}()
	err = run(g.ctx)
}

func (g *Group) ended(name string, err error) {
	g.mu.Lock()
	if i := slices.Index(g.running, name); i >= 0 {
		g.running = slices.Delete(g.running, i, i+1)
	}
	if err != nil && g.err == nil && (g.ctx.Err() == nil || !errors.Is(err, context.Cause(g.ctx))) {
		if _, panicked := err.(*PanicError); !panicked {
			err = fmt.Errorf("%s: %w", name, err)
		}
		g.err = err
	}
	first := g.err
	g.mu.Unlock()
	if first != nil {
		g.cancel(first)
	}
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
	return slices.Clone(g.running)
}
