// Package pipeline assembles sources, processors and sinks into routes and runs them: source ->
// processors -> workers, with ledger, checkpoint and dead letters. Package engine is its API.
//
// It owns what its routes hold (batches, goroutines, state) and decides nothing about flow: that is
// flow/control. It never reads a record's content.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/manifest"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// Options of an Engine.
type Options struct {
	Once     bool           // end when everything that is there now is settled
	Stall    time.Duration  // with Once: give up after so long without a settle while data waits; 0 means 5 minutes
	Log      *slog.Logger   // nil means slog.Default()
	FS       vfs.FS         // nil means the real one
	Manifest *manifest.Book // takes what is read and settled of each partition; nil: nobody asks
	Boot     string         // names this run of the operating system, for tests; "" asks the system

	Load func() (*config.Config, error) // loads the configuration for Reload; nil refuses it
}

// Engine runs the pipelines of one config. Its methods are safe for concurrent use.
type Engine struct {
	cfg     *config.Config // as given to New; Apply changes neither its State nor its Admin
	o       Options
	state   *state // set by Run before the pipelines start
	started atomic.Pointer[time.Time]
	tree    atomic.Pointer[supervise.Supervisor]
	apply   sync.Mutex // held over an Apply
	stuck   error      // why an Apply stopped halfway; guarded by apply
	reload  sync.Mutex // held over a Reload

	mu       sync.Mutex // guards what follows; a pipe's mu is never taken while it is held
	pipes    []*pipe    // replaced, never changed
	pool     *supervise.Supervisor
	end      context.CancelCauseFunc // ends the pool; nil unless it runs
	ended    map[*pipe]bool          // pipes that have ended and are not restarted
	held     bool                    // Apply is changing pipes: the engine does not end
	draining bool
	reloaded *status.Reload // replaced, never changed
}

// New assembles a config that has been read.
func New(f *config.Config, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = slog.New(maskingHandler{o.Log.Handler()})
	if o.FS == nil {
		o.FS = osfs.New()
	}
	if o.Boot == "" {
		o.Boot = bootID()
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	e := &Engine{cfg: f, o: o, ended: make(map[*pipe]bool)}
	for _, c := range f.Pipelines {
		p, err := newPipe(c, o)
		if err != nil {
			return nil, fmt.Errorf("pipeline %q: %w", c.Name, err)
		}
		e.pipes = append(e.pipes, p)
	}
	return e, nil
}

const defaultStall = 5 * time.Minute

// Run runs every route until the data ends (Once), Drain has finished, or ctx is done, which
// abandons what is in flight (its checkpoint stays where it was). It locks the state directory.
// nil: all routes ended as they should. It may be called once.
//
// What fails starts again, with growing waits: a route from its checkpoint, a pipeline with a new
// source, the admin pages. With Once nothing does; and a route that the guard has stopped stays
// stopped.
func (e *Engine) Run(ctx context.Context) (err error) {
	now := time.Now()
	if !e.started.CompareAndSwap(nil, &now) {
		return errors.New("pipeline: Run was called twice")
	}
	dir, err := e.o.FS.MakeDir(e.cfg.State, 0o700)
	if err != nil {
		return e.noState(err)
	}
	defer func() { err = joined(err, dir.Close()) }()
	lock, err := dir.Lock(LockName, fmt.Sprintf("penstock, process %d", os.Getpid()))
	if err != nil {
		return e.noState(err)
	}
	defer func() { err = joined(err, lock.Close()) }()
	pages, err := e.openAdmin()
	if err != nil {
		return err
	}
	defer func() { err = joined(err, pages.close()) }()
	e.state = &state{dir: dir, name: e.cfg.State, log: e.o.Log}
	store, err := e.state.store()
	if err != nil {
		return err
	}
	defer func() { err = joined(err, e.state.close()) }()
	e.reportStrays(store)
	if err := e.prepare(); err != nil {
		return err
	}
	return e.supervise(ctx, pages)
}

// noState says why the state directory cannot be used, and what to do.
func (e *Engine) noState(err error) error {
	remedy := ""
	switch {
	case errors.Is(err, vfs.ErrLocked):
		remedy = "; stop the other penstock, or give this one a `state:` of its own"
	case errors.Is(err, fs.ErrPermission):
		remedy = "; let this user write there, or name another folder in `state:`"
	case errors.Is(err, syscall.ENOSPC):
		remedy = "; make room on its disk, or name another folder in `state:`"
	}
	return fmt.Errorf("state directory %s: %w%s", e.cfg.State, err, remedy)
}

// LockName is the file in the state directory that keeps a second process out.
const LockName = "penstock.lock"

// prepare gives every route its state. After an error none has one.
func (e *Engine) prepare() error {
	var errs []error
	for _, p := range e.pipelines() {
		p.state = e.state
		for _, s := range p.routes() {
			if err := s.route.prepare(e.state, e.o.FS, e.o.Boot); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.key, err))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	for _, p := range e.pipelines() {
		for _, s := range p.routes() {
			errs = append(errs, s.route.close())
		}
	}
	return errors.Join(errs...)
}

// pipelines returns the pipelines of this moment.
func (e *Engine) pipelines() []*pipe {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pipes
}

// The names of the engine's supervisors.
const (
	engineName    = "penstock"
	pipelinesName = "pipelines"
)

// supervise runs the admin pages and, beside them, the pipelines; when those have ended the pages
// end, too.
func (e *Engine) supervise(ctx context.Context, pages *pages) error {
	children := []supervise.Child{{
		Name: pipelinesName, Run: e.runPipes, Restart: supervise.Transient, Backoff: waitsOf(true), Significant: true,
	}}
	if pages != nil {
		children = append([]supervise.Child{pages.child()}, children...)
	}
	tree, err := supervise.New(engineName, supervise.Spec{}, children...)
	if err != nil {
		return err
	}
	e.tree.Store(tree)
	ended := tree.Serve(ctx)
	var results []error
	for _, p := range e.pipelines() {
		for _, s := range p.routes() {
			results = append(results, s.result())
		}
		results = append(results, p.result())
	}
	return joined(append(results, ended)...)
}

// runPipes runs the pipelines side by side; one that fails stops no other.
func (e *Engine) runPipes(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	e.mu.Lock()
	children := make([]supervise.Child, len(e.pipes))
	for i, p := range e.pipes {
		children[i] = p.child()
	}
	pool, err := supervise.New(pipelinesName, supervise.Spec{Shutdown: atOnce, OnEvent: e.pipeEvent}, children...)
	if err == nil {
		e.pool, e.end = pool, end
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	err = pool.Serve(ctx)
	e.mu.Lock()
	e.end = nil
	e.mu.Unlock()
	if errors.Is(err, errAllEnded) {
		return nil
	}
	return err
}

// pipeEvent records how a run of a pipeline ended.
func (e *Engine) pipeEvent(_ context.Context, event supervise.Event) {
	if event.Kind != supervise.Ended || !strings.HasSuffix(event.Supervisor, engineName+"/"+pipelinesName) {
		return
	}
	pipes := e.pipelines()
	i := slices.IndexFunc(pipes, func(p *pipe) bool { return p.name == event.Child })
	if i < 0 {
		return
	}
	pipes[i].ended(event)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended[pipes[i]] = !event.Restart
	e.endIfDone()
}

// endIfDone ends the pool when every pipeline has ended, unless Apply is changing them. The caller
// holds e.mu.
func (e *Engine) endIfDone() {
	if e.held || e.end == nil || slices.ContainsFunc(e.pipes, func(p *pipe) bool { return !e.ended[p] }) {
		return
	}
	end := e.end
	e.end = nil // it is too late for Apply
	end(errAllEnded)
}

// Drain makes every route accept nothing more and finish what is in flight, each within its
// `drain:` bound; Run then returns.
func (e *Engine) Drain() {
	e.mu.Lock()
	e.draining = true
	pool, pipes := e.pool, e.pipes
	e.mu.Unlock()
	for _, p := range pipes {
		for _, s := range p.routes() {
			s.drain()
		}
		if pool != nil && p.waiting() {
			_ = pool.Restart(p.name) // its routes see that they are not to run
		}
	}
}
