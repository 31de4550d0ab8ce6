// Package engine runs penstock pipelines within a Go program. A pipeline reads data from a source,
// passes it through processors, and delivers it to sinks, with flow control, redelivery and dead
// letters. It saves its progress in a checkpoint, from which it resumes after a crash.
//
//	cfg, err := engine.Load("penstock.yaml", all.Components()...)
//	...
//	e, err := engine.New(cfg, engine.Options{})
//	...
//	err = e.Run(ctx)
//
// [Load] and [Parse] read a [Config] and report its errors before anything starts. Their last
// arguments are the components that the config may name: those of engine/connector/all, some of
// them, or a program's own components (see package stream). The engine itself imports no connector,
// so a program contains only the components that it lists.
//
// The engine installs no signal handler, changes no global state and logs only to [Options.Log].
// Package engine/cli is the command line that uses this package.
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

// Config is the configuration of an engine. See package config for its fields. Load and Parse
// return a Config, and a program may change it before it calls New. A Config can also be built in
// Go: begin each route with [config.DefaultRoute].
type Config = config.Config

// Status is the state of an engine at one moment. See package status for its fields.
type Status = status.Status

// Load reads the config at path, a file or a directory of files. The config may name the given
// components. In a file, ${NAME} stands for an environment variable, ${file:PATH} stands for the
// content of a file, and relative paths are relative to the directory of the file. Load also checks
// the options of the components. This check may read files, such as certificates. Load creates no
// files. If the config has one mistake, the error is a [*config.Error] with the position in the
// file. If it has several independent mistakes, the error is a [config.Errors].
func Load(path string, components ...stream.Component) (Config, error) {
	return value(config.Load(path, config.LoadOptions{Components: components}))
}

// Parse is like Load for a config in memory. Errors use "config" as the name of the file. Relative
// paths are relative to the working directory.
func Parse(text []byte, components ...stream.Component) (Config, error) {
	return value(config.Parse("config", text, config.LoadOptions{Components: components}))
}

func value(c *config.Config, err error) (Config, error) {
	if err != nil {
		return Config{}, err
	}
	return *c, nil
}

// Options of an Engine. The zero value is suitable for a service.
type Options struct {
	// Once ends the run when the data that existed at the start of the run is delivered,
	// dead-lettered or dropped. With Once, failed routes are not restarted.
	Once bool

	// Stall is used with Once. A route fails if it has data, but no record has been delivered,
	// dead-lettered or dropped for this time. Zero means 5 minutes.
	Stall time.Duration

	// Log receives the engine's log. Nil means slog.Default().
	Log *slog.Logger

	// FS is the file system of the state directory and of connectors. Nil means the file system of
	// the operating system. Tests use vfs/vfstest.
	FS vfs.FS

	// Load loads the configuration for Reload. Nil makes every Reload fail.
	Load func() (Config, error)

	// Dashboard serves pages at the admin address, for example web.Handler(). No token is needed
	// for them, so they must not contain data. Nil means a page that lists the other paths, such as
	// /metrics.
	Dashboard http.Handler

	// LogLevel is the level of Log. If it is set, the level can be changed at the admin address.
	LogLevel *slog.LevelVar

	// Manifest counts the data that is read and delivered from each partition, and computes a hash
	// of it. Nil means that nothing is recorded. Do not share Totals between engines.
	Manifest *manifest.Totals
}

// Engine runs the pipelines of a config. Its methods are safe for concurrent use.
type Engine struct{ e *pipeline.Engine }

// New checks c and creates its pipelines. It starts nothing, creates no file and opens no port. The
// engine keeps the slices and options of c, so the caller must not change them afterwards. If c has
// mistakes, the error is a [*config.Error] or [config.Errors]. Any other error comes from the
// constructor of a component, or states that components cannot be combined.
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

// Run delivers data until a drain has finished, ctx is done, or all routes have ended. A route ends
// when its source has no more data: with Options.Once, or if the source is, for example, stdin. Run
// returns nil if every route has ended normally, else the joined errors of the failed routes. If
// the engine cannot start, for example because another process has locked the state directory, Run
// returns this error. When ctx is done, Run abandons in-flight batches, and the next run delivers
// them again. Run locks the state directory while it runs. It may be called once.
//
// If a route fails, Run restarts it from its checkpoint after a backoff, unless a restart cannot
// help, for example because another process has taken over the sink's ledger. Run also restarts a
// failed source and the admin server after a backoff. With Options.Once, nothing is restarted. A
// failure never stops another pipeline. A route that the guard has stopped because of too many dead
// letters restarts only when its input changes. If the source cannot watch its input, the route
// stays stopped.
func (e *Engine) Run(ctx context.Context) error { return e.e.Run(ctx) }

// Drain makes every route stop reading and finish its in-flight batches, within the time limit of
// the route ([config.Route].Drain, 30 s by default). Run then returns. Drain itself does not wait.
// It has no effect on an engine that has ended.
func (e *Engine) Drain() { e.e.Drain() }

// Apply changes the pipelines of a running engine to those of c, and returns when this is done.
// Unchanged routes keep running. If only routes of a pipeline have changed, its source also keeps
// running. All other routes and pipelines are drained and stopped. Then the new ones start. A route
// resumes from the checkpoint of the route that had the same name. A pipeline of which all routes
// have ended starts again if any part of it has changed.
//
// The drain of a route ends at its time limit ([config.Route].Drain), or when ctx is done.
// In-flight batches are then abandoned, and delivered again later. Other routes keep running
// meanwhile. Two components count as equal if they have the same role, the same name and equal
// options. Their constructors are not compared.
//
// If c is invalid, Apply changes nothing and returns the same error as New. Apply also returns an
// error if the state directory, the cluster, or the settings of the admin address or of telemetry
// differ, or if the engine is not running, is draining, or runs with Options.Once.
//
// If a route or pipeline does not stop, Apply returns an error. The other changed parts have then
// stopped, nothing new has started, and later calls of Apply fail. Restart the program in this
// case.
func (e *Engine) Apply(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return e.e.Apply(ctx, &c)
}

// Reload calls Options.Load and applies the result like Apply. If the new configuration has an
// error, the engine continues with the present one. Errors are logged and shown by Status. A
// request `POST /api/v1/reload` to the admin address calls Reload. Concurrent calls run one after
// another.
func (e *Engine) Reload(ctx context.Context) error { return e.e.Reload(ctx) }

// Ping checks that the event loops of all running routes respond, and returns nil when all have
// responded. If ctx ends first, it returns an error that names the routes that have not. Event
// loops respond in well under a second, even if sources or workers are slow. So if Ping fails after
// several seconds, the engine or a component hangs.
//
// Use Ping for watchdogs. To learn whether data is delivered, use Status.
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

// Status returns the state of the engine. It can be called before, during and after a run. The
// counts of a route are consistent: ReadRecords is the sum of Delivered, Dead, Dropped, InFlight,
// Waiting and Parked. The cost of a call does not depend on the amount of data. Call Status at most
// a few times per second.
func (e *Engine) Status() Status { return e.e.Status() }
