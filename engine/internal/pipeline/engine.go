// Package pipeline runs the pipelines of a config. A pipeline is a source with one or more routes.
// Each route passes batches of records from the source through processors to the workers of a sink.
// Package engine is the public API of this package.
//
// Some terms:
//
//   - A record is settled when it has been delivered, dead-lettered or dropped.
//   - The mark of a partition (stream.Mark) is a route's progress in it. The checkpoint stores
//     marks.
//   - The books of a route count the records and keep the progress of each partition. The books
//     have one account for each partition.
//   - A slot is the fixed place of a route in its pipeline. It creates a new route for each start.
//   - A ledger is a sink's own record of the progress, which the sink stores in its database
//     together with the data.
//
// Package flow/control decides when and to which worker a batch is sent.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/cluster"
	"github.com/penstock-io/penstock/engine/internal/live"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/tap"
	"github.com/penstock-io/penstock/engine/internal/telemetry"
	"github.com/penstock-io/penstock/engine/manifest"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// Options of an Engine.
type Options struct {
	Once bool // end when all data present is delivered, dead-lettered or dropped
	// Stall ends a run with Once if data waits but none is settled for this long. Zero means 5
	// minutes.
	Stall    time.Duration
	Log      *slog.Logger     // nil means slog.Default()
	FS       vfs.FS           // nil means the file system of the operating system
	Manifest *manifest.Totals // counts of records by partition; nil if disabled
	// Boot replaces the boot id of the operating system in tests. "" means the real boot id.
	Boot string

	Load func() (*config.Config, error) // loads the configuration for Reload; nil disables Reload

	Dashboard http.Handler   // the pages at the admin address; nil serves a list of the addresses
	LogLevel  *slog.LevelVar // level of Log, changeable at the admin address; nil makes it fixed

	taps      *tap.Registry // set by New
	clustered bool          // set by New: the config has a cluster
	// connect connects to a cluster. New sets it unless a test has set it.
	connect    func(context.Context, *config.Cluster, *slog.Logger) (*cluster.Bucket, error)
	latency    *prometheus.HistogramVec // set by New
	roundTrips *prometheus.HistogramVec // set by New

	telemetry *telemetry.Exporter // set by New; nil if telemetry is disabled
	traces    float64             // set by New: share of the batches that get a span
}

// Engine runs the pipelines of one config. Its methods are safe for concurrent use.
type Engine struct {
	cfg     *config.Config // as given to New; Apply does not change it
	o       Options
	state   *state   // set by Run before the pipelines start
	tail    live.Log // the end of the log
	started atomic.Pointer[time.Time]
	tree    atomic.Pointer[supervise.Supervisor]
	apply   sync.Mutex // held during an Apply or a replay
	stuck   error      // error with which an Apply or a replay stopped halfway; guarded by apply
	reload  sync.Mutex // held during a Reload

	mu        sync.Mutex // guards the fields below; released before a pipe's mu is locked
	pipes     []*pipe    // copy on write
	pool      *supervise.Supervisor
	end       context.CancelCauseFunc // ends the pool; nil unless the pool runs
	held      bool                    // set by hold, which keeps the engine from ending
	draining  bool
	reloaded  *status.Reload  // copy on write
	replaying *pipe           // the running replay; nil if there is none
	replayed  *status.Replay  // the last start or end of a replay; copy on write
	bucket    *cluster.Bucket // nil if there is no cluster, or Run has not connected
}

// New assembles the pipelines of a config.
func New(f *config.Config, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.FS == nil {
		o.FS = osfs.New()
	}
	if o.Boot == "" {
		o.Boot = Boot()
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	e := &Engine{cfg: f}
	o.Log = slog.New(maskingHandler{e.tail.Handler(o.Log.Handler())})
	o.taps, o.latency = new(tap.Registry), metrics.NewLatency()
	o.roundTrips = metrics.NewRoundTrips()
	if o.clustered = f.Cluster.On(); o.connect == nil {
		o.connect = cluster.Connect
	}
	e.o = o
	e.o.telemetry, e.o.traces = newExporter(e), f.Telemetry.Traces
	o = e.o
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

// Run runs every route until the data ends (with Options.Once), Drain has finished, or ctx is done.
// It returns nil if all routes ended normally. It may be called once. Run locks the state
// directory.
//
// When ctx ends, Run abandons in-flight batches. They do not count as settled, so the next run
// delivers them again.
//
// If a part of the engine fails, Run restarts it after a wait that grows with each failure. A route
// restarts from its checkpoint, and a pipeline restarts with a new source. The admin pages restart
// as well. There are three exceptions:
//
//   - With Options.Once, routes and pipelines do not restart.
//   - A route that the guard has stopped restarts only after its input has changed.
//   - A route does not restart if an operator must decide first, for example about lost progress.
func (e *Engine) Run(ctx context.Context) (err error) {
	now := time.Now()
	if !e.started.CompareAndSwap(nil, &now) {
		return errors.New("pipeline: Run was called twice")
	}
	dir, err := e.o.FS.MakeDir(e.cfg.State, 0o700)
	if err != nil {
		return e.withRemedy(err)
	}
	defer func() { err = joined(err, dir.Close()) }()
	lock, err := dir.Lock(LockName, fmt.Sprintf("penstock, process %d", os.Getpid()))
	if err != nil {
		return e.withRemedy(err)
	}
	defer func() { err = joined(err, lock.Close()) }()
	pages, err := e.openAdmin()
	if err != nil {
		return err
	}
	defer func() { err = joined(err, pages.close()) }()
	e.state = &state{dir: dir, name: e.cfg.State, boot: e.o.Boot, log: e.o.Log}
	store, err := e.state.store()
	if err != nil {
		return err
	}
	defer func() { err = joined(err, e.state.close()) }()
	e.reportUnknownState(store, e.cfg, false)
	if err := openBucket(ctx, e, dir); err != nil {
		return err
	}
	defer e.bucket.Close()
	if err := e.prepare(); err != nil {
		return err
	}
	return e.supervise(ctx, pages)
}

// withRemedy adds advice to an error about the state directory.
func (e *Engine) withRemedy(err error) error {
	remedy := ""
	switch {
	case errors.Is(err, vfs.ErrLocked) && slices.ContainsFunc(e.pipelines(), (*pipe).isReplay):
		remedy = "; stop the other penstock, or replay the letters in its dashboard"
	case errors.Is(err, vfs.ErrLocked):
		remedy = "; stop the other penstock, or give this one a `state:` of its own"
	case errors.Is(err, fs.ErrPermission):
		remedy = "; let this user write there, or name another folder in `state:`"
	case errors.Is(err, syscall.EROFS):
		remedy = "; mount its file system for writing, or name another folder in `state:`"
	case errors.Is(err, syscall.ENOSPC):
		remedy = "; make room on its disk, or name another folder in `state:`"
	}
	return fmt.Errorf("state directory %s: %w%s", e.cfg.State, err, remedy)
}

// LockName is the name of a file in the state directory. A running process locks this file, so that
// no second process uses the directory.
const LockName = "penstock.lock"

// prepare opens the checkpoint and the dead letters of every route. It omits the routes of shared
// pipelines, which open them when this process becomes their owner. If one route fails, prepare
// closes all routes that it has opened.
func (e *Engine) prepare() error {
	var errs []error
	for _, p := range e.pipelines() {
		p.state, p.sharing.bucket = e.state, e.bucket
		if p.sharing.on {
			continue // its routes get their state when this process owns it
		}
		for _, s := range p.routes() {
			if err := s.route.prepare(e.state, e.o.FS); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.key, err))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	for s := range e.slots() {
		if !s.pipe.sharing.on {
			errs = append(errs, s.route.close())
		}
	}
	return errors.Join(errs...)
}

// pipelines returns the current pipelines.
func (e *Engine) pipelines() []*pipe {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pipes
}

// slots returns the routes of the current pipelines.
func (e *Engine) slots() iter.Seq[*slot] {
	return func(yield func(*slot) bool) {
		for _, p := range e.pipelines() {
			for _, s := range p.routes() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// The names of the engine's supervisors.
const (
	engineName    = "penstock"
	pipelinesName = "pipelines"
)

// supervise runs the pipelines, the admin pages and the export of traces. When all pipelines have
// ended, it stops the pages and the export.
func (e *Engine) supervise(ctx context.Context, pages *pages) error {
	var children []supervise.Child
	if e.o.telemetry != nil {
		children = append(children, supervise.Child{Name: "telemetry", Run: e.o.telemetry.Run})
	}
	if pages != nil {
		children = append(children, pages.child())
	}
	children = append(children, supervise.Child{
		Name: pipelinesName, Run: e.runPipes, Restart: supervise.Transient, Backoff: waitsOf(true),
		Significant: true,
	})
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

// runPipes runs the pipelines concurrently. If one fails, the others continue.
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

// pipeEvent notes how a run of a pipeline ended.
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
	pipes[i].over = !event.Restart
	e.endIfDone()
}

// endIfDone ends the pool of pipelines if every pipeline has ended, unless hold keeps the engine
// from ending. The caller holds e.mu.
func (e *Engine) endIfDone() {
	if e.held || e.end == nil || slices.ContainsFunc(e.pipes, func(p *pipe) bool { return !p.over }) {
		return
	}
	end := e.end
	e.end = nil // from now on Apply returns an error
	end(errAllEnded)
}

// Drain makes every route stop reading and finish its in-flight batches, for at most the time
// `drain:` of the route. Run then returns.
func (e *Engine) Drain() {
	e.mu.Lock()
	e.draining = true
	pool, pipes, replay := e.pool, e.pipes, e.replaying
	e.mu.Unlock()
	if replay != nil {
		replay.slots[0].drain()
	}
	for _, p := range pipes {
		for _, s := range p.routes() {
			s.drain()
		}
		if pool != nil && (p.waiting() || p.isStandby()) {
			_ = pool.Restart(p.name) // ends a wait for a restart; no route will run again
		}
	}
}
