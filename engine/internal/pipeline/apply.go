package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/supervise"
)

// Apply changes the pipelines of a running engine to those of the config c, which must be valid.
// See engine.Engine.Apply.
//
// Apply stops the removed routes and pipelines before it starts the new ones, because an old and a
// new one may write the same file or read the same directory.
//
// A slot stands for a route in its pipeline, also across restarts of the route. If a route is
// changed, its old slot stays in the list of slots until the new slot replaces it. Otherwise the
// source could finish a file (for example rename it) that the new route has not delivered yet.
func (e *Engine) Apply(ctx context.Context, c *config.Config) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	if e.stuck != nil {
		return fmt.Errorf("an earlier change is incomplete: %w", e.stuck)
	}
	if c.State != e.cfg.State {
		return fmt.Errorf("the state directory is %s and would be %s: restart to change it", e.cfg.State, c.State)
	}
	if !c.Cluster.Equal(&e.cfg.Cluster) {
		return errors.New("the cluster in state.nats differs: restart to change it")
	}
	if !c.Admin.Equal(&e.cfg.Admin) {
		return errors.New("the admin address or its settings differ: restart to change them")
	}
	if c.Telemetry != e.cfg.Telemetry {
		return errors.New("the settings of telemetry differ: restart to change them")
	}
	if err := e.hold(); err != nil {
		return err
	}
	defer e.release()
	d := &difference{}
	defer d.release()
	if err := d.plan(e, c); err != nil {
		return err
	}
	if err := d.stop(ctx, e); err != nil {
		e.stuck = err // the other removed routes have already stopped
		return err
	}
	if store, err := e.state.store(); err == nil { // otherwise the start of a route returns err
		e.reportUnknownState(store, c, true)
	}
	return d.start(e)
}

// hold keeps the engine from ending when all its pipelines have ended, until release is called. It
// returns an error if the engine is not running, is draining, or runs with Options.Once.
func (e *Engine) hold() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.o.Once:
		return errors.New("a finite run keeps its configuration")
	case e.end == nil:
		return errors.New("the engine is not running")
	case e.draining:
		return errors.New("the engine is draining")
	}
	e.held = true
	return nil
}

func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = false
	e.endIfDone()
}

// hasEnded reports whether p has ended and is not restarted.
func (e *Engine) hasEnded(p *pipe) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return p.over
}

// hold keeps the pipeline from ending when all its routes have ended, until release is called. It
// returns false if the pipeline is already ending.
func (p *pipe) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.held = true
	return true
}

func (p *pipe) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	p.endIfDone()
}

// difference is the plan of one Apply. It lists the pipelines to stop, to start and to change, so
// that the engine then runs exactly the pipelines of the new config.
type difference struct {
	pipes          []*pipe // all pipelines of the config, in its order
	removed, added []*pipe
	changed        []*changedPipe
}

// changedPipe is a pipeline that has not ended and gets a new list of routes. Its method hold was
// called, which keeps it from ending when all its routes have ended.
type changedPipe struct {
	*pipe
	to             []*slot // all routes of the config, in its order
	removed, added []*slot
}

func (d *difference) release() {
	for _, p := range d.changed {
		p.pipe.release()
	}
}

// plan compares the config with the running pipelines. It assembles the pipelines and routes that
// are new, but starts and stops nothing.
func (d *difference) plan(e *Engine, c *config.Config) error {
	running := e.pipelines()
	for _, pc := range c.Pipelines {
		i := slices.IndexFunc(running, func(p *pipe) bool { return p.name == pc.Name })
		var old *pipe
		if i >= 0 {
			old = running[i]
		}
		p, err := d.pipeline(e, old, pc)
		if err != nil {
			return fmt.Errorf("pipeline %q: %w", pc.Name, err)
		}
		d.pipes = append(d.pipes, p)
	}
	for _, p := range running {
		if !slices.Contains(d.pipes, p) {
			d.removed = append(d.removed, p)
		}
	}
	return nil
}

// pipeline returns the pipeline for the config c. old is the engine's present pipeline with the
// same name, or nil. pipeline returns a new pipeline in three cases: old is nil, its source has
// changed, or its routes have changed and it has already ended. In all other cases, pipeline plans
// the changes to the routes of old, and returns old.
func (d *difference) pipeline(e *Engine, old *pipe, c config.Pipeline) (*pipe, error) {
	if old != nil && old.cfg.Source.Equal(c.Source) {
		same, err := d.routes(e, old, c.Routes)
		if same || err != nil {
			return old, err
		}
	}
	p, err := newPipe(c, e.o)
	if err != nil {
		return nil, err
	}
	p.state, p.sharing.bucket = e.state, e.bucket
	d.added = append(d.added, p)
	return p, nil
}

// routes plans the changes to the routes of a pipeline. It returns false if routes have changed but
// the pipeline has ended or is ending. The caller then replaces the whole pipeline.
func (d *difference) routes(e *Engine, p *pipe, routes []config.Route) (bool, error) {
	running := p.routes()
	change := &changedPipe{pipe: p}
	for _, rc := range routes {
		if i := slices.IndexFunc(running, func(s *slot) bool { return s.cfg.Equal(&rc) }); i >= 0 {
			change.to = append(change.to, running[i])
			continue
		}
		s := newSlot(p, rc, e.o)
		if err := s.renew(); err != nil {
			return false, fmt.Errorf("route %q: %w", rc.Name, err)
		}
		change.to, change.added = append(change.to, s), append(change.added, s)
	}
	if slices.Equal(change.to, running) {
		return true, nil
	}
	for _, s := range running {
		if !slices.Contains(change.to, s) {
			change.removed = append(change.removed, s)
		}
	}
	if e.hasEnded(p) || !p.hold() {
		return false, nil
	}
	d.changed = append(d.changed, change)
	return true, nil
}

// stop drains all removed routes and pipelines concurrently, and waits until they have ended. If
// ctx ends first, the routes and pipelines that are still draining abandon their batches in flight.
// stop returns an error if one of them does not end within removeBound.
func (d *difference) stop(ctx context.Context, e *Engine) error {
	var ends []func() error
	for _, p := range d.removed {
		for _, s := range p.routes() {
			p.leave(s)
		}
		ends = append(ends, func() error { return e.remove(ctx, p) })
	}
	for _, p := range d.changed {
		for _, s := range p.removed {
			p.leave(s)
			ends = append(ends, func() error { return p.remove(ctx, s) })
		}
	}
	errs := make([]error, len(ends))
	group := supervise.NewGroup(context.WithoutCancel(ctx))
	for i, end := range ends {
		group.Go("stop", func(context.Context) error {
			errs[i] = end()
			return nil
		})
	}
	return errors.Join(append(errs, group.Wait())...)
}

// leave makes a route stop reading, deliver its in-flight batches, and end without a restart.
func (p *pipe) leave(s *slot) {
	p.mu.Lock()
	s.leaving = true
	p.mu.Unlock()
	s.drain()
	p.mu.Lock()
	idle := p.tree == nil || s.over // s.over is set if the route ended before the drain
	p.mu.Unlock()
	if idle {
		s.halted()
	}
}

// removeBound is the maximum time in which a route or pipeline must stop. The time begins when its
// drain has ended, or when the drain is interrupted because the context of Apply has ended.
const removeBound = pipelineShutdown + 10*time.Second

// remove waits until the route has drained or ctx has ended. Then it removes the route from the
// supervisor, which stops it if it still runs.
func (p *pipe) remove(ctx context.Context, s *slot) error {
	s.awaitDrained(ctx)
	p.mu.Lock()
	tree := p.tree
	p.mu.Unlock()
	if tree != nil {
		if err := removeChild(ctx, tree, s.cfg.Name); err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
	}
	s.discard()
	return nil
}

// remove waits until the routes of a pipeline have drained or ctx has ended. Then it removes the
// pipeline from the supervisor, which stops it if it still runs.
func (e *Engine) remove(ctx context.Context, p *pipe) error {
	for _, s := range p.routes() {
		s.awaitDrained(ctx)
	}
	e.mu.Lock()
	pool := e.pool
	e.mu.Unlock()
	if err := removeChild(ctx, pool, p.name); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	for _, s := range p.routes() {
		s.discard()
	}
	if p.sharing.on {
		p.sharing.bucket.Forget(p.name)
	}
	return nil
}

// removeChild stops the child with the given name. It returns an error if the child has not stopped
// within removeBound, and nil if the child was never started.
func removeChild(ctx context.Context, tree *supervise.Supervisor, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeBound)
	defer cancel()
	if err := tree.Remove(ctx, name); err != nil && ctx.Err() != nil {
		const stuck = "it has not stopped within %v, so the new configuration is not in effect: restart"
		return fmt.Errorf(stuck, removeBound)
	}
	return nil
}

// awaitDrained waits until the route has ended or ctx is done.
func (s *slot) awaitDrained(ctx context.Context) {
	select {
	case <-s.left:
	case <-ctx.Done():
	}
}

// discard closes a route that was prepared but never started, so that its dead-letter file does not
// stay open. It does nothing in all other cases.
func (s *slot) discard() {
	s.mu.Lock()
	r, started := s.route, s.starts > 0
	s.mu.Unlock()
	if started || r.saver.layers == nil {
		return
	}
	if err := r.close(); err != nil {
		s.log.Warn("route not closed", "error", err)
	}
}

// start installs the new routes and pipelines, and starts them.
func (d *difference) start(e *Engine) error {
	var errs []error
	for _, p := range d.changed {
		errs = append(errs, p.replace())
	}
	e.mu.Lock()
	e.pipes = d.pipes
	for _, p := range d.added {
		errs = append(errs, e.pool.Add(p.child()))
	}
	draining := e.draining
	e.mu.Unlock()
	if draining { // drain was requested after Apply began
		e.Drain()
	}
	changed := 0
	for _, p := range d.changed {
		changed += max(len(p.removed), len(p.added))
	}
	e.o.Log.Info("configuration applied",
		"pipelines_stopped", len(d.removed), "pipelines_started", len(d.added), "routes_changed", changed)
	return errors.Join(errs...)
}

// replace installs the new set of routes. The added routes start immediately or, if the pipeline is
// not running, with the next run of the pipeline.
func (p *changedPipe) replace() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots = p.to
	for _, s := range p.removed {
		p.forget(s)
	}
	var errs []error
	for _, s := range p.added {
		if p.tree != nil {
			s.arrived.Store(true) // routes that are added later do not use the barrier
			errs = append(errs, p.tree.Add(s.child()))
		}
	}
	return errors.Join(errs...)
}

// forget removes route s from p.finishing. Each entry there is a partition, such as a file, with
// the routes that have settled all its data. If s was the only route of an entry, the entry is
// removed. The caller holds p.mu.
func (p *pipe) forget(s *slot) {
	p.order = slices.DeleteFunc(p.order, func(id string) bool {
		f := p.finishing[id]
		delete(f.done, s)
		if len(f.done) > 0 {
			return false
		}
		delete(p.finishing, id)
		return true
	})
}
