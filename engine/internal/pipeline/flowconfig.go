package pipeline

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/stream"
)

// windowOf returns the algorithm that sets the window of each worker: the limit on its batches in
// flight.
//
// The config value "auto" means the algorithm "queue", with one exception. It means a fixed window
// if all lanes are ordered and the first one has an in-flight limit of its own, which is then the
// size of the window. An example is the lane of sink file. It writes all its in-flight batches with
// one fsync. Its round trip therefore grows with the window although no queue has formed, and
// "queue" would shrink the window for no reason.
func windowOf(f config.Flow, lanes []stream.Lane) window.Algorithm {
	name := f.Window
	if name == "auto" {
		name = "queue"
		if allOrdered(lanes) && lanes[0].Limits.InFlight > 0 {
			name, f.Size = "fixed", lanes[0].Limits.InFlight
		}
	}
	return window.Find(name).With(window.Options{
		Size: f.Size, Initial: f.Initial, Max: f.Max, Threshold: durationOrAuto(f.Threshold),
		PerAck: f.Step == "per_ack",
	})
}

// durationOrAuto returns the duration s, which is valid, or 0 if s is "auto".
func durationOrAuto(s string) time.Duration {
	d, _ := time.ParseDuration(s) // auto is no duration
	return d
}

// hedgeShare is the share of sent batches that may be sent a second time (hedged) to another
// worker.
const hedgeShare = 0.02

func limitOf(l config.Limit) control.Limit {
	return control.Limit{Rate: float64(l.Rate), Bytes: float64(l.Bytes), Concurrency: l.Concurrency}
}

// controlConfig converts the sections flow:, retry: and checkpoint: of a route to the config of
// package flow/control. The sections are valid (see config.Config.Validate).
func controlConfig(c config.Route, lanes []stream.Lane) (control.Config, error) {
	retry, err := c.Retry.RetryPolicy()
	if err != nil {
		return control.Config{}, fmt.Errorf("retry.backoff: %w", err)
	}
	f := c.Flow
	out := control.Config{
		Seed: uint64(time.Now().UnixNano()), Window: windowOf(f, lanes),
		Dispatch: dispatch.Find(f.Dispatch, dispatch.Options{Band: f.TieBand}),
		Timeout:  durationOrAuto(f.Timeout), Retry: retry,
		Replay: int64(c.Checkpoint.Replay), Shared: f.Shared,
		Waiting: control.Waiting{
			Cost: float64(c.Retry.Waiting.Records), Bytes: int64(c.Retry.Waiting.Bytes),
		},
		Limit: limitOf(f.Limit), LaneLimit: limitOf(f.WorkerLimit),
		Budget: control.Budget{Share: f.Redeliver, PerSecond: f.RedeliverRate},
		Poison: control.Poison{Deaths: f.Poison, Refuse: f.Poisoned == "dead_letter"},
	}
	if f.Redeliver == 0 { // no limit
		out.Budget = control.Budget{Share: -1}
	}
	if f.Poison == 0 { // no batch counts as poison, and flow.poisoned has no effect
		out.Poison = control.Poison{Deaths: -1, Failures: -1}
	}
	if c.Retry.Exhausted == "dead_letter" { // otherwise the other two options have no effect
		out.End = control.End{Attempts: c.Retry.Attempts, Elapsed: c.Retry.MaxElapsed}
	}
	if f.Hedge {
		out.Hedge.Share = hedgeShare
	}
	return out, nil
}
