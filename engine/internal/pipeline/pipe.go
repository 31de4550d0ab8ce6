package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// pipe is a pipeline: a source with its routes. If a route fails, only this route restarts. If a
// goroutine of the source fails, the source is recreated and all routes restart.
type pipe struct {
	name     string
	cfg      config.Pipeline
	once     bool
	log      *slog.Logger
	fs       vfs.FS
	counter  *metrics.Set // counters of the source; kept when the source is recreated
	state    *state
	host     *sourceHost                   // host of source; changed with it
	source   stream.Source                 // changed only while no route runs
	finisher stream.Finisher               // nil if the source finishes no partitions
	observed atomic.Pointer[stream.Source] // source, for the status
	starts   int
	sharing  sharing
	over     bool // it has ended and will not restart; guarded by the engine's mu

	mu        sync.Mutex // guards the fields below; not held while Finish is called
	slots     []*slot    // copy on write
	opening   *barrier
	tree      *supervise.Supervisor   // supervisor of the routes; nil if none is running
	end       context.CancelCauseFunc // ends tree
	held      bool                    // the routes are being changed, so the run must not end
	closing   bool                    // all routes have ended, and the run is ending
	finishing map[string]*finishing
	order     []string // keys of finishing, oldest first
	err       error    // error of the last run
	waits     bool     // the pipeline waits for a restart
}

// errAllEnded ends the context of a pipeline's routes after all of them have ended, and the context
// of the pipelines after all of those have ended.
var errAllEnded = errors.New("pipeline: every route has ended")

// atOnce is the value of supervise.Spec.Shutdown with which a supervisor stops all its children at
// the same time. Usually, a supervisor stops one child after the other. When the time Shutdown has
// passed, it stops all remaining children together. As atOnce is so short, these are practically
// all.
const atOnce = time.Nanosecond

// run runs the routes concurrently until all have ended. It starts the source's goroutines before
// the first route, and stops them after the last one. If one of the source's goroutines fails, run
// stops the routes.
func (p *pipe) run(ctx context.Context) error {
	p.mu.Lock()
	p.waits = false
	p.mu.Unlock()
	p.starts++
	wanted := p.starts == 1 || !p.draining() // if all routes are draining, they end without running
	if p.starts > 1 && wanted {
		if err := p.renew(); err != nil {
			return err
		}
	}
	routes, end := context.WithCancelCause(ctx)
	defer end(nil)
	tree, err := p.begin(end)
	if err != nil {
		return err
	}
	if wanted {
		p.host.start(ctx, end)
	}
	err = tree.Serve(routes)
	p.halted()
	if errors.Is(err, errAllEnded) {
		err = nil
	}
	err = joined(p.host.stop(), err)
	if !p.once {
		return err
	}
	if err = joined(err, p.host.faults.Err()); err == nil {
		return nil
	}
	return supervise.Final(err)
}

// draining reports whether all routes are draining, and neither Apply nor a replay is changing the
// routes.
func (p *pipe) draining() bool {
	p.mu.Lock()
	slots, held := p.slots, p.held
	p.mu.Unlock()
	return !held && !slices.ContainsFunc(slots, func(s *slot) bool { return !s.isDraining() })
}

// begin creates the supervisor of the routes. It omits routes that are being removed.
func (p *pipe) begin(end context.CancelCauseFunc) (*supervise.Supervisor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var children []supervise.Child
	for _, s := range p.slots {
		s.over = false
		if !s.leaving {
			s.arrived.Store(false)
			children = append(children, s.child())
		}
	}
	tree, err := supervise.New(p.name, supervise.Spec{Shutdown: atOnce, OnEvent: p.routeEvent}, children...)
	if err != nil {
		return nil, err
	}
	p.opening, p.tree, p.end = newBarrier(len(children)), tree, end
	return tree, nil
}

// halted notes that no route of the pipeline is running any more.
func (p *pipe) halted() {
	p.mu.Lock()
	p.tree = nil
	slots := p.slots
	p.mu.Unlock()
	for _, s := range slots {
		s.halted()
	}
}

// routeEvent notes that a run of a route has ended.
func (p *pipe) routeEvent(_ context.Context, e supervise.Event) {
	if e.Kind != supervise.Ended || !strings.HasSuffix(e.Supervisor, pipelinesName+"/"+p.name) {
		return // the event is of a supervisor within a route
	}
	slots := p.routes()
	i := slices.IndexFunc(slots, func(s *slot) bool { return s.cfg.Name == e.Child })
	if i < 0 {
		return
	}
	p.mu.Lock()
	slots[i].over = !e.Restart // set before s.ended is called: see leave
	p.mu.Unlock()
	slots[i].ended(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endIfDone()
}

// endIfDone ends the run if every route has ended and none will restart. It does not end the run
// while Apply or a replay is changing the routes. The caller holds p.mu.
func (p *pipe) endIfDone() {
	if p.held || p.tree == nil || slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.over }) {
		return
	}
	p.closing = true
	p.end(errAllEnded)
}

// routes returns the current routes.
func (p *pipe) routes() []*slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots
}

// barrier returns the barrier of the current run.
func (p *pipe) barrier() *barrier {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opening
}

// child returns the specification with which the supervisor runs the pipeline. In a finite run the
// pipeline does not restart.
func (p *pipe) child() supervise.Child {
	run := p.run
	if p.sharing.on {
		run = p.runShared
	}
	return supervise.Child{
		Name: p.name, Run: run, Restart: supervise.Transient, Backoff: waitsOf(p.once),
		Shutdown: pipelineShutdown,
	}
}

// wake immediately starts a route that waits for its restart.
func (p *pipe) wake(route string) {
	p.mu.Lock()
	tree := p.tree
	p.mu.Unlock()
	if tree != nil {
		_ = tree.Restart(route) // an error means that the route is stopping or has ended
	}
}

// ended notes how a run of the pipeline ended.
func (p *pipe) ended(e supervise.Event) {
	p.mu.Lock()
	p.err, p.waits = e.Err, e.Restart
	p.mu.Unlock()
	if e.Restart {
		p.log.Error("pipeline failed; its source and its routes start again", "again_in", e.Delay, "error", e.Err)
	}
}

func (p *pipe) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits
}

// result returns the error with which the pipeline itself failed. It returns nil if the pipeline
// ended only because all its routes had ended.
func (p *pipe) result() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}
