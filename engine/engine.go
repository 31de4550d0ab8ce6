// Package engine runs penstock's pipelines inside a Go program: from sources, through processors,
// to sinks. It provides batches, flow control, redelivery, dead letters, and a checkpoint from
// which a run resumes after a crash.
//
//	cfg, err := engine.Load("penstock.yaml", all.Components()...)
//	...
//	e, err := engine.New(cfg, engine.Options{})
//	...
//	err = e.Run(ctx)
//
// [Load] and [Parse] read a [Config] and report its errors before anything starts. Their arguments
// are the components that the config may name: those of engine/connector/all, some of them, or a
// program's own components (see package stream). The engine imports no connector, so that a program
// contains only the listed ones.
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
// return it. A program may change the Config before it calls New. It may also build one in Go, with
// routes from [config.DefaultRoute].
type Config = config.Config

// Status is a snapshot of an engine's state; package status documents its fields.
type Status = status.Status

// Load reads the config file at path, which may name the given components. ${NAME} stands for an
// environment variable, and relative paths are resolved against the directory of the file. It opens
// the config and the files that ${file:...} names, and creates nothing. An error is a
// [*config.Error] with the position in the file and a hint, or [config.Errors] for several
// independent mistakes.
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

// Options configure the environment of an Engine. The zero value is suitable for a service.
type Options struct {
	// Once ends the run when all data that exists at the start is settled. A failed route is then
	// not restarted.
	Once bool

	// Stall ends a run with Once if no record settles for this long while data waits. Zero means
	// the default, 5 minutes.
	Stall time.Duration

	// Log receives the engine's log. Nil means slog.Default().
	Log *slog.Logger

	// FS holds the state and the files of connectors. Nil means the operating system's; tests use
	// vfs/vfstest.
	FS vfs.FS

	// Load loads the configuration for Reload. Nil makes every Reload fail.
	Load func() (Config, error)

	// Dashboard serves the pages of the admin address, such as web.Handler(). It needs no token, so
	// it must contain no data. Nil means a plain list of addresses.
	Dashboard http.Handler

	// LogLevel is the level of Log, which can then be changed at the admin address. Nil means that
	// it cannot be changed.
	LogLevel *slog.LevelVar

	// Manifest records the data read and settled in each partition, with hashes. Nil means that
	// nothing is recorded. Each engine needs Totals of its own.
	Manifest *manifest.Totals
}

// Engine runs the pipelines of a config. Its methods are safe for concurrent use.
type Engine struct{ e *pipeline.Engine }

// New checks c and assembles its pipelines. It starts nothing, creates no file and opens no port.
// The engine keeps the slices and options of c, which must not be changed afterwards. An error in c
// is a [*config.Error] or [config.Errors]. Any other error comes from a component's constructor.
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

// Run delivers data until a drain has finished, ctx is done, or, with Options.Once, the data ends.
// It returns nil if every route ended normally, otherwise the joined errors of the failed routes.
// When ctx is done, in-flight batches are abandoned, and the next run delivers them again. Run
// locks the state directory while it runs. It may be called once.
//
// Run handles failures: a failed route restarts from its checkpoint with backoff, as do a failed
// source and the admin server. No failure stops another pipeline. A route that the guard has
// stopped for too many dead letters stays stopped until the end of the run.
func (e *Engine) Run(ctx context.Context) error { return e.e.Run(ctx) }

// Drain stops reading and lets in-flight batches finish, each route within its Drain limit. Run
// then returns. Drain itself does not wait. Drain has no effect on an engine that has ended.
func (e *Engine) Drain() { e.e.Drain() }

// Apply changes the pipelines of a running engine to those of c and returns when the change is
// made. Unchanged routes keep running. So does the source of a pipeline if only its routes differ.
// Other routes and pipelines are drained and stopped. Then the new ones start, each from the
// checkpoint of the same name. A pipeline that had ended completely starts again if any part of it
// differs.
//
// A drain ends at the Drain limit of its route, or when ctx is done. In-flight batches are then
// abandoned, and delivered again later. Other routes keep running meanwhile. Constructors are not
// compared: components with the same role and name and equal options are considered equal.
//
// If c is invalid, Apply changes nothing and returns the same error as New. The state directory and
// the admin address cannot be changed. Apply returns an error if the engine is not running, is
// draining, or runs with Options.Once. If a route or pipeline does not stop, Apply returns an
// error. The other changed parts have then stopped, nothing new has started, and further calls
// fail: restart the program.
func (e *Engine) Apply(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return e.e.Apply(ctx, &c)
}

// Reload calls Options.Load and applies its result as Apply does. After an error the running
// configuration is unchanged. The error is logged and shown by Status. `POST /api/v1/reload` at the
// admin address calls Reload. Concurrent calls run one after another.
func (e *Engine) Reload(ctx context.Context) error { return e.e.Reload(ctx) }

// Ping returns nil when the event loop of each running route has processed its events. If ctx ends
// first, it returns an error that names the remaining routes. Event loops respond in well under a
// second, regardless of sources and workers. If Ping returns an error after several seconds, a
// component or the engine hangs. Use Ping for watchdogs; Status shows whether data is delivered.
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

// Status returns a snapshot of the engine's state, before, during or after a run. The counts of a
// route are consistent: ReadRecords is the sum of Delivered, Dead, Dropped, InFlight, Waiting and
// Parked. The cost of a call does not depend on the amount of data. Call Status at most a few times
// per second.
func (e *Engine) Status() Status { return e.e.Status() }
