// Package pipeline assembles sources, processors and sinks into routes and runs them: source -> processors ->
// workers, with ledger, checkpoint and dead letters. It is the API for programs that embed penstock.
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
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/engine/internal/manifest"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// Options of an Engine.
type Options struct {
	Components []penstock.Component // what a config may name; connector/all has the built-in ones
	Once       bool                 // end when everything that is there now is settled
	Stall      time.Duration        // with Once: give up after so long without a settle while data waits; 0 means 5 minutes
	Log        *slog.Logger         // nil means slog.Default()
	FS         vfs.FS               // nil means the real one
	Admin      *config.Admin        // in place of the config's `admin:`; nil: as there
	Manifest   *manifest.Book       // takes what is read and settled of each partition; nil: nobody asks
	Boot       string               // names this run of the operating system, for tests; "" asks the system
}

// Engine runs the pipelines of one config. Its methods are safe for concurrent use.
type Engine struct {
	cfg     *config.File
	o       Options
	pipes   []*pipe
	started atomic.Pointer[time.Time]
	tree    atomic.Pointer[supervise.Supervisor]
	pool    atomic.Pointer[supervise.Supervisor] // of the pipelines
}

// Load reads the config at path and assembles it. It starts nothing, makes no file and opens no port; a wrong
// config is a *config.Error that shows the place.
func Load(path string, o Options) (*Engine, error) {
	f, err := config.Load(path, config.LoadOptions{Components: o.Components, Env: os.LookupEnv})
	if err != nil {
		return nil, err
	}
	return New(f, o)
}

// New assembles a config that has been read.
func New(f *config.File, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Boot == "" {
		o.Boot = bootID()
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	e := &Engine{cfg: f, o: o}
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

// Run runs every route until the data ends (Once), Drain has finished, or ctx is done, which abandons what is
// in flight (its checkpoint stays where it was). It locks the state directory. nil: all routes ended as they
// should. It may be called once.
//
// What fails starts again, with growing waits: a route from its checkpoint, a pipeline with a new source, the admin pages.
// With Once nothing does; and a route that the guard has stopped stays stopped.
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
	state := &state{dir: dir, name: e.cfg.State, log: e.o.Log}
	if _, err := state.store(); err != nil {
		return err
	}
	defer func() { err = joined(err, state.close()) }()
	if err := e.prepare(state); err != nil {
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
func (e *Engine) prepare(state *state) error {
	var errs []error
	for _, p := range e.pipes {
		p.state = state
		for _, s := range p.slots {
			if err := s.route.prepare(state, e.o.FS, e.o.Boot); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.key, err))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	for _, p := range e.pipes {
		for _, s := range p.slots {
			errs = append(errs, s.route.close())
		}
	}
	return errors.Join(errs...)
}

// The names of the engine's supervisors.
const (
	engineName    = "penstock"
	pipelinesName = "pipelines"
)

// supervise runs the admin pages and, beside them, the pipelines; when those have ended the pages end, too.
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
	results := make([]error, 0, len(e.pipes)*2+1)
	for _, p := range e.pipes {
		for _, s := range p.slots {
			results = append(results, s.result())
		}
		results = append(results, p.result())
	}
	return joined(append(results, ended)...)
}

// runPipes runs the pipelines side by side; a dead one stops nobody.
func (e *Engine) runPipes(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	children := make([]supervise.Child, len(e.pipes))
	for i, p := range e.pipes {
		children[i] = supervise.Child{Name: p.name, Run: p.run, Restart: supervise.Transient, Backoff: waitsOf(e.o.Once)}
	}
	ended := make(map[string]bool)
	pool, err := supervise.New(pipelinesName, supervise.Spec{Shutdown: atOnce, OnEvent: func(event supervise.Event) {
		if event.Kind != supervise.Ended || !strings.HasSuffix(event.Supervisor, engineName+"/"+pipelinesName) {
			return
		}
		for _, p := range e.pipes {
			if p.name == event.Child {
				p.ended(event)
			}
		}
		if ended[event.Child] = !event.Restart; allOf(ended, len(e.pipes)) {
			end(errAllEnded)
		}
	}}, children...)
	if err != nil {
		return err
	}
	e.pool.Store(pool)
	err = pool.Serve(ctx)
	if errors.Is(err, errAllEnded) {
		return nil
	}
	return err
}

// Drain makes every route accept nothing more and finish what is in flight, each within its `drain:` bound;
// Run then returns.
func (e *Engine) Drain() {
	for _, p := range e.pipes {
		for _, s := range p.slots {
			s.drain()
		}
		if pool := e.pool.Load(); pool != nil && p.waiting() {
			_ = pool.Restart(p.name) // its routes see that they are not to run
		}
	}
}
