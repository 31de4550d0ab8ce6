package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Group is a set of named goroutines with one context. The first error or panic in one of them ends
// the context. A Group is safe for concurrent use and must not be copied. Make one with [NewGroup]:
// unlike those of a zero errgroup.Group, the methods of a zero Group panic. If a child of a
// [Supervisor] makes the group, its goroutines appear in the supervisor's Status while they run.
type Group struct {
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	up     above // up.within is nil if the group runs under no supervisor

	mu      sync.Mutex    // guards the fields below; nothing is called while it is held
	err     error         // the first failure
	running []*member     // in order of start
	slots   chan struct{} // one element per goroutine; nil if there is no limit
}

// member is one goroutine of a group.
type member struct {
	name   string
	since  time.Time
	within within
}

// NewGroup returns an empty group whose context is derived from ctx.
func NewGroup(ctx context.Context) *Group { return NewNamedGroup(ctx, "") }

// NewNamedGroup is like NewGroup, but in Status the group is a node with that name, above its
// goroutines. Without a name, the goroutines appear directly below the child or the goroutine that
// made the group.
func NewNamedGroup(ctx context.Context, name string) *Group {
	up, _ := supervised(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{name: name, ctx: ctx, cancel: cancel, up: up}
}

// refuseZero panics if g is a zero Group.
func (g *Group) refuseZero() {
	if g.ctx == nil {
		panic("supervise: zero Group; make one with supervise.NewGroup")
	}
}

// Context returns the group's context. It ends when a goroutine of the group fails, Stop is called,
// Wait returns or the context given to NewGroup ends.
func (g *Group) Context() context.Context {
	g.refuseZero()
	return g.ctx
}

// SetLimit limits the group to n goroutines at a time: Go blocks until fewer than n are running. A
// negative n means no limit, which is the default. 0 makes Go block forever. Like SetLimit of
// golang.org/x/sync/errgroup, it panics if goroutines of the group are running.
func (g *Group) SetLimit(n int) {
	g.refuseZero()
	g.mu.Lock()
	defer g.mu.Unlock()
	if active := len(g.running); active > 0 {
		panic(fmt.Sprintf("supervise: SetLimit while %d goroutines of the group are running",
			active))
	}
	g.slots = nil
	if n >= 0 {
		g.slots = make(chan struct{}, n)
	}
}

// Go starts run in a goroutine. Several goroutines may have the same name. An error of run is a
// failure: it is wrapped with the name and ends the group's context. Wait returns the first
// failure. But if the context has already ended, and the error only repeats the reason, it is not a
// failure. Go must be called from one of the group's goroutines, or before Wait has returned.
func (g *Group) Go(name string, run func(ctx context.Context) error) {
	slots := g.limit()
	if slots != nil {
		slots <- struct{}{}
	}
	g.start(name, slots, run)
}

// TryGo is like Go, but does not block: if the limit is reached, it returns false and does not
// start run.
func (g *Group) TryGo(name string, run func(ctx context.Context) error) bool {
	slots := g.limit()
	if slots != nil {
		select {
		case slots <- struct{}{}:
		default:
			return false
		}
	}
	g.start(name, slots, run)
	return true
}

func (g *Group) limit() chan struct{} {
	g.refuseZero()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots
}

// start starts a goroutine, for which the caller has added an element to slots.
func (g *Group) start(name string, slots chan struct{}, run func(ctx context.Context) error) {
	m := &member{name: name, since: time.Now()}
	g.mu.Lock()
	first := len(g.running) == 0
	g.running = append(g.running, m)
	if first && g.up.within != nil {
		g.up.within.add(g)
	}
	g.mu.Unlock()
	g.wg.Add(1)
	go g.run(m, slots, run)
}

func (g *Group) run(m *member, slots chan struct{}, run func(ctx context.Context) error) {
	guard(m.name, g.up.passPanics, func() error { return run(g.contextOf(m)) }, func(err error) {
		if err != nil {
			err = named(m.name, err)
		}
		g.ended(m, err)
		if slots != nil {
			<-slots
		}
		g.wg.Done()
	})
}

// contextOf returns the group's context for the goroutine m. Groups and supervisors that start with
// this context appear below m in Status.
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

// isOwnEnd reports whether err only repeats that the group's context has ended. A *PanicError is
// never such a repetition.
func (g *Group) isOwnEnd(err error) bool {
	if _, panicked := err.(*PanicError); panicked {
		return false
	}
	end := g.ctx.Err()
	return end != nil && (errors.Is(err, context.Cause(g.ctx)) || errors.Is(err, end))
}

// Stop ends the group's context with cause. A nil cause means ErrStopped. Stop does not wait.
func (g *Group) Stop(cause error) {
	g.refuseZero()
	if cause == nil {
		cause = ErrStopped
	}
	g.cancel(cause)
}

// Wait waits until all goroutines have ended, including those started meanwhile, and returns the
// first failure. If the context given to NewGroup ends, the goroutines may end without finishing
// their work, and Wait may return nil. So check that context, too.
func (g *Group) Wait() error {
	g.refuseZero()
	g.wg.Wait()
	g.cancel(ErrStopped)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Status returns the group and its running goroutines as a part of a tree.
func (g *Group) Status() Status {
	g.refuseZero()
	status := Status{Name: g.name, State: Running, Restart: Temporary, Starts: 1}
	if g.ctx.Err() != nil {
		status.State = Halting
	}
	g.mu.Lock()
	members := slices.Clone(g.running)
	g.mu.Unlock()
	for _, m := range members {
		node := Status{Name: m.name, State: status.State, Restart: Temporary, Starts: 1,
			Since: m.since}
		node.adopt(&m.within, nil)
		status.Children = append(status.Children, node)
	}
	if len(members) > 0 {
		status.Since = members[0].since
	}
	return status
}
