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
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
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
}

// pipe is a source with its routes.
type pipe struct {
	name     string
	cfg      config.Pipeline
	log      *slog.Logger
	host     *host
	source   penstock.Source
	finisher penstock.Finisher // nil: the source has nothing to finish
	routes   []*route
	opening  *barrier

	mu        sync.Mutex // guards what follows; Finish is called without it
	finishing map[string]*finishing
	order     []string // the keys of finishing, oldest first
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
func (e *Engine) Run(ctx context.Context) (err error) {
	now := time.Now()
	if !e.started.CompareAndSwap(nil, &now) {
		return errors.New("pipeline: Run was called twice")
	}
	state, err := e.o.FS.MakeDir(e.cfg.State, 0o700)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", e.cfg.State, err)
	}
	defer func() { err = joined(err, state.Close()) }()
	lock, err := state.Lock(lockName, fmt.Sprintf("penstock, process %d", os.Getpid()))
	if err != nil {
		return fmt.Errorf("state directory %s: %w; stop the other penstock, or give this one a `state:` of its own", e.cfg.State, err)
	}
	defer func() { err = joined(err, lock.Close()) }()
	served := e.cfg.Admin
	if e.o.Admin != nil {
		served = *e.o.Admin
	}
	stopAdmin, err := e.serveAdmin(ctx, served)
	if err != nil {
		return err
	}
	defer func() { err = joined(err, stopAdmin()) }()
	store, report, err := checkpoint.Open(state, checkpoint.Options{Warn: func(err error) { e.o.Log.Warn("checkpoint", "error", err) }})
	if err != nil {
		return fmt.Errorf("state directory %s: %w", e.cfg.State, err)
	}
	defer func() { err = joined(err, store.Close()) }()
	level := slog.LevelInfo
	if report.Damage != "" {
		level = slog.LevelWarn
	}
	e.o.Log.Log(ctx, level, report.String())
	return e.runPipes(ctx, store)
}

// lockName is the file in the state directory that keeps a second process out.
const lockName = "penstock.lock"

func (e *Engine) runPipes(ctx context.Context, store *checkpoint.Store) error {
	var errs []error
	for _, p := range e.pipes {
		for _, r := range p.routes {
			r.remembers = filepath.Join(e.cfg.State, "sources", p.name+"."+r.cfg.Name)
			if err := r.prepare(store, e.o.FS, e.o.Boot); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.key, err))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	group := supervise.NewGroup(ctx)
	results := make([]error, len(e.pipes))
	for i, p := range e.pipes {
		group.Go(p.name, func(ctx context.Context) error {
			results[i] = p.run(ctx)
			return nil // a dead pipeline stops nobody
		})
	}
	err := group.Wait()
	return joined(append(results, err)...)
}

// run runs the routes side by side; a route that stops stops nobody else, and a source's goroutine that fails
// stops them all.
func (p *pipe) run(ctx context.Context) error {
	own := supervise.NewGroup(ctx)
	p.host.group.Store(own)
	p.opening = newBarrier(len(p.routes))
	routes := supervise.NewGroup(own.Context())
	results := make([]error, len(p.routes))
	for i, r := range p.routes {
		routes.Go(r.key, func(ctx context.Context) error {
			if err := r.run(ctx); err != nil {
				results[i] = fmt.Errorf("%s: %w", r.key, err)
			}
			return nil
		})
	}
	err := routes.Wait()
	own.Stop(nil)
	return joined(append(results, err, own.Wait())...)
}

// Drain makes every route accept nothing more and finish what is in flight, each within its `drain:` bound;
// Run then returns.
func (e *Engine) Drain() {
	for _, p := range e.pipes {
		for _, r := range p.routes {
			r.drain()
		}
	}
}
