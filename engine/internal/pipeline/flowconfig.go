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

// budgetOf returns the limit on redeliveries: a share of the deliveries, plus a number per second.
// If flow.redeliver is 0, there is no limit.
func budgetOf(f config.Flow) control.Budget {
	if f.Redeliver == 0 {
		return control.Budget{Share: -1}
	}
	return control.Budget{Share: f.Redeliver, PerSecond: f.RedeliverRate}
}

// poisonOf converts two options. flow.poison is the number of workers that a batch must kill to
// count as poison. If it is 0, no batch does, and flow.poisoned has no effect. Otherwise
// flow.poisoned states whether to dead-letter a batch that fails at workers that deliver other
// batches.
func poisonOf(f config.Flow) control.Poison {
	if f.Poison == 0 {
		return control.Poison{Deaths: -1, Failures: -1}
	}
	return control.Poison{Deaths: f.Poison, Refuse: f.Poisoned == "dead_letter"}
}

// endOf returns the maximum number of attempts and the maximum time for retries of a failing batch.
// A batch that reaches one of them is dead-lettered. There are no limits unless `exhausted:
// dead_letter` is set.
func endOf(r config.Retry) control.End {
	if r.Exhausted != "dead_letter" {
		return control.End{}
	}
	return control.End{Attempts: r.Attempts, Elapsed: r.MaxElapsed}
}

func waitingOf(r config.Retry) control.Waiting {
	return control.Waiting{Cost: float64(r.Waiting.Records), Bytes: int64(r.Waiting.Bytes)}
}

func limitOf(l config.Limit) control.Limit {
	return control.Limit{Rate: float64(l.Rate), Bytes: float64(l.Bytes), Concurrency: l.Concurrency}
}

// hedgeShare is the share of sent batches that may be sent a second time (hedged) to another
// worker.
const hedgeShare = 0.02

func hedgeOf(f config.Flow) control.Hedge {
	if !f.Hedge {
		return control.Hedge{}
	}
	return control.Hedge{Share: hedgeShare}
}

// durationOrAuto returns the duration s, which is valid, or 0 if s is "auto".
func durationOrAuto(s string) time.Duration {
	d, _ := time.ParseDuration(s) // auto is no duration
	return d
}

// controlConfig converts the sections flow:, retry: and checkpoint: of a route to the config of
// package flow/control. The sections are valid (see config.Config.Validate).
func controlConfig(c config.Route, lanes []stream.Lane) (control.Config, error) {
	retry, err := c.Retry.RetryPolicy()
	if err != nil {
		return control.Config{}, fmt.Errorf("retry.backoff: %w", err)
	}
	return control.Config{
		Seed: uint64(time.Now().UnixNano()), Window: windowOf(c.Flow, lanes),
		Dispatch: dispatch.Find(c.Flow.Dispatch, dispatch.Options{Band: c.Flow.TieBand}),
		Timeout:  durationOrAuto(c.Flow.Timeout), Retry: retry,
		Replay: int64(c.Checkpoint.Replay), Waiting: waitingOf(c.Retry), End: endOf(c.Retry), Shared: c.Flow.Shared,
		Limit: limitOf(c.Flow.Limit), LaneLimit: limitOf(c.Flow.WorkerLimit),
		Budget: budgetOf(c.Flow), Poison: poisonOf(c.Flow), Hedge: hedgeOf(c.Flow),
	}, nil
}
