// Package engine runs penstock's pipelines inside a Go program: from sources, through processors,
// to sinks, with batches, flow control, redelivery, dead letters and a checkpoint from which a
// crash resumes.
//
//	cfg, err := engine.Load("penstock.yaml", all.Components()...)
//	...
//	e, err := engine.New(cfg, engine.Options{})
//	...
//	err = e.Run(ctx)
//
// [Load] and [Parse] read a [Config] and refuse a wrong one before anything starts. They take the
// components that the config may name: those of engine/connector/all, a few of them, or a program's
// own (package stream describes how to write one). The engine imports no connector, so a program
// contains only those it lists.
//
// The engine installs no signal handler, changes no global state and logs only to [Options.Log].
// Package engine/cli is the command line on top of it.
package engine

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/manifest"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Config is the configuration of an engine; package config documents its fields. Load and Parse
// return it, and a program may change it, or build it from the start with [config.DefaultRoute],
// before it calls New.
type Config = config.Config

// Status is a picture of an engine; package status documents its fields.
type Status = status.Status

// Load reads the config file at path, which may name the given components. ${NAME} stands for an
// environment variable, and relative paths are resolved against the directory of the file. It opens
// the config and the files that ${file:...} names, and creates nothing. An error is a
// [*config.Error] with the place in the file and a hint, or [config.Errors] if several independent
// things are wrong.
func Load(path string, components ...stream.Component) (Config, error) {
	return value(config.Load(path, config.LoadOptions{Components: components}))
}

// Parse is Load for a config in memory. Errors name the file "config", and relative paths are
// resolved against the working directory.
func Parse(text []byte, components ...stream.Component) (Config, error) {
	return value(config.Parse("config", text, config.LoadOptions{Components: components}))
}

func value(c *config.Config, err error) (Config, error) {
	if err != nil {
		return Config{}, err
	}
	return *c, nil
}

// Options are the surroundings of an Engine. The zero value is right for a service.
type Options struct {
	// Once ends the run when all data that is there now is settled. A route that fails is then not
	// restarted.
	Once bool

	// Stall ends a run with Once after this long without a settled record while data waits. Zero
	// means the default, 5 minutes.
	Stall time.Duration

	// Log receives the engine's log. Nil means slog.Default().
	Log *slog.Logger

	// FS holds the state and the files of connectors. Nil means the operating system's; tests use
	// vfs/vfstest.
	FS vfs.FS

	// Load loads the configuration again for Reload. Nil refuses every reload.
	Load func() (Config, error)

	// Dashboard serves the pages of the admin address, such as web.Handler(). It needs no token, so
	// it must contain no data. Nil means a plain list of addresses.
	Dashboard http.Handler

	// LogLevel is the level of Log, which can then be changed at the admin address. Nil means that
	// it cannot be changed.
	LogLevel *slog.LevelVar

	// Manifest records what is read and settled of each partition, with hashes. Nil means none. A
	// book belongs to one engine.
	Manifest *manifest.Book
}

// Engine runs the pipelines of a config. Its methods are safe for concurrent use.
type Engine struct{ e *pipeline.Engine }

// New checks c and assembles its pipelines. It starts nothing, creates no file and opens no port.
// The engine keeps the slices and options of c: they must not be changed afterwards. An error in c
// is a [*config.Error] or [config.Errors]; any other error is that of a component's constructor.
func New(c Config, o Options) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e, err := pipeline.New(&c, pipeline.Options{
		Once: o.Once, Stall: o.Stall, Log: o.Log, FS: o.FS, Manifest: o.Manifest,
		Load:      loader(o.Load),
		Dashboard: o.Dashboard, LogLevel: o.LogLevel,
	})
	if err != nil {
		return nil, err
	}
	return &Engine{e}, nil
}

// Run delivers until Drain has finished, ctx is done, or, with Options.Once, the data ends. It
// returns nil if every route ended as it should, and otherwise the joined errors of those that did
// not. A done ctx abandons in-flight batches: the next run delivers them again. Run locks the state
// directory while it runs, and may be called once.
//
// Failures are handled inside: a failed route restarts from its checkpoint with backoff, as do a
// failed source and the admin address, and no failure stops another pipeline. A route that would
// only turn its data into dead letters stays stopped until the end of the run.
func (e *Engine) Run(ctx context.Context) error { return e.e.Run(ctx) }

// Drain stops reading and lets in-flight batches finish, each route within its Drain bound; Run
// then returns. It does not wait. Drain has no effect on an engine that has ended.
func (e *Engine) Drain() { e.e.Drain() }

// Apply changes the pipelines of a running engine to those of c and returns when the change is
// made. Routes whose configuration is unchanged keep running; so does the source of a pipeline of
// which only routes differ. Other routes and pipelines are drained and stopped, and then the new
// ones start, from the checkpoints of those of the same name. A pipeline that had ended as a whole
// starts again if any of it differs.
//
// Each drain takes as long as the Drain bound of the route, or until ctx is done: then in-flight
// batches are abandoned and delivered again. Meanwhile nothing else stops. Constructors are not
// compared: components of the same role and name with equal options count as equal.
//
// An error in c changes nothing and is returned as New returns it. The state directory and the
// admin address cannot be changed. Apply returns an error if the engine is not running, is
// draining, or runs with Options.Once. After an error because a route or pipeline did not stop, the
// others that were to stop have stopped, nothing new has started, and further calls fail: restart
// the program.
func (e *Engine) Apply(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return e.e.Apply(ctx, &c)
}

// Reload calls Options.Load and applies its result as Apply does. An error of either leaves the
// running configuration as it is, is logged, and is shown by Status. `POST /api/v1/reload` at the
// admin address calls Reload. Concurrent calls run one after another.
func (e *Engine) Reload(ctx context.Context) error { return e.e.Reload(ctx) }

// Ping returns nil when the event loop of each running route has handled its events, and an error
// that names the others when ctx is done. Loops answer in well under a second, whatever sources and
// workers do: an error after several seconds means that a component or the engine hangs. Use it for
// watchdogs; Status tells whether data is delivered.
func (e *Engine) Ping(ctx context.Context) error { return e.e.Ping(ctx) }

func loader(load func() (Config, error)) func() (*config.Config, error) {
	if load == nil {
		return nil
	}
	return func() (*config.Config, error) {
		c, err := load()
		return &c, err
	}
}

// Status returns a picture of the engine, before, during and after a run. The counts of a route are
// consistent: ReadRecords is the sum of Delivered, Dead, Dropped, InFlight, Waiting and Parked. It
// takes no longer with more data; call it a few times a second at most.
func (e *Engine) Status() Status { return e.e.Status() }
