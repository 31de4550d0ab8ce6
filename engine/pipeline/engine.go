// Package pipeline assembles sources, processors and sinks into routes and runs them: source -> processors -> workers, with
// ledger, checkpoint and dead letters. It is the API for programs that embed penstock.
//
// It owns what its routes hold (batches, goroutines, state) and decides nothing about flow: that is flow/control. It never
// reads a record's content.
package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/vfs"
)

// Options of an Engine.
type Options struct {
	Components []penstock.Component // what a config may name; connector/all has the built-in ones
	Once       bool                 // end when everything that is there now is settled
	Stall      time.Duration        // with Once: give up after so long without a settle while data waits; 0 means 5 minutes
	Log        *slog.Logger         // nil means slog.Default()
	FS         vfs.FS               // nil means the real one
}

// Engine runs the pipelines of one config. Its methods are safe for concurrent use.
type Engine struct{}

// Load reads the config at path and assembles it. It starts nothing, makes no file and opens no port; a wrong config is a
// *config.Error that shows the place.
func Load(path string, o Options) (*Engine, error) { return nil, nil }

// New assembles a config that has been read.
func New(f *config.File, o Options) (*Engine, error) { return nil, nil }

// Run runs every route until the data ends (Once), Drain has finished, or ctx is done, which abandons what is in flight (its
// checkpoint stays where it was). It locks the state directory. nil: all routes ended as they should. It may be called once.
func (e *Engine) Run(ctx context.Context) error { return nil }

// Drain makes every route accept nothing more and finish what is in flight, each within its `drain:` bound; Run then returns.
func (e *Engine) Drain() {}

// Snapshot is a consistent picture of each route: ReadRecords = Delivered + Dead + Dropped + InFlight + Waiting in every one.
func (e *Engine) Snapshot() Snapshot { return Snapshot{} }

// Snapshot is a picture of an engine.
type Snapshot struct {
	Elapsed time.Duration // since Run began
	Routes  []RouteSnapshot
}

// RouteSnapshot is a picture of one route; all counts are source records of this run.
type RouteSnapshot struct {
	Pipeline, Route                                             string
	ReadRecords, ReadBytes                                      int64
	Delivered, DeliveredBytes, Dead, Dropped, InFlight, Waiting int64
	Attempts, Redelivered                                       int64  // batches
	ReplayBytes                                                 int64  // what a kill right now would repeat at most
	ReplayBound                                                 int64  // and at any moment
	Health                                                      string // "running", "draining", "finished", "stopped"
	Err                                                         error  // why it stopped
	Workers                                                     []WorkerSnapshot
}

// WorkerSnapshot is a picture of one worker.
type WorkerSnapshot struct {
	Name                string
	State, Reason, Gate string
	Window              float64
	InFlight            int
	RoundTrip           time.Duration
	Delivered, Failed   uint64
}
