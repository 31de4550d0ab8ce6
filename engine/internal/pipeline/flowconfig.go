package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
func windowOf(f config.Flow, lanes []stream.Lane) (window.Algorithm, error) {
	name := f.Window
	if name == "" || name == "auto" {
		name = "queue"
		if allOrdered(lanes) && lanes[0].Limits.InFlight > 0 {
			name, f.Size = "fixed", lanes[0].Limits.InFlight
		}
	}
	threshold, err := durationOrAuto(f.Threshold)
	if err != nil {
		return nil, fmt.Errorf("flow.threshold: %w", err)
	}
	e := window.Find(name)
	if e == nil || e.Experiment {
		return nil, fmt.Errorf("flow.window: %q is not one of %s",
			f.Window, strings.Join(window.Names(), ", "))
	}
	w := e.With(window.Options{
		Size: f.Size, Initial: f.Initial, Max: f.Max, Threshold: threshold, PerAck: f.Step == "per_ack",
	})
	return w, w.Validate()
}

func dispatchOf(f config.Flow) (dispatch.Policy, error) {
	name := cmp.Or(f.Dispatch, "least_completion")
	if names := dispatch.Names(); !slices.Contains(names, name) {
		return nil, fmt.Errorf("flow.dispatch: %q is not one of %s",
			f.Dispatch, strings.Join(names, ", "))
	}
	return dispatch.Find(name, dispatch.Options{Band: f.TieBand}), nil
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

func durationOrAuto(s string) (time.Duration, error) {
	if s == "" || s == "auto" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not above zero", s)
	}
	return d, err
}

// controlConfig converts the sections flow:, retry: and checkpoint: of a route to the config of
// package flow/control.
func controlConfig(c config.Route, lanes []stream.Lane) (control.Config, error) {
	w, err := windowOf(c.Flow, lanes)
	if err != nil {
		return control.Config{}, err
	}
	d, err := dispatchOf(c.Flow)
	if err != nil {
		return control.Config{}, err
	}
	timeout, err := durationOrAuto(c.Flow.Timeout)
	if err != nil {
		return control.Config{}, fmt.Errorf("flow.timeout: %w", err)
	}
	retry, err := c.Retry.RetryPolicy()
	if err != nil {
		return control.Config{}, fmt.Errorf("retry.backoff: %w", err)
	}
	return control.Config{
		Seed: uint64(time.Now().UnixNano()), Window: w, Dispatch: d, Timeout: timeout, Retry: retry,
		Replay: int64(c.Checkpoint.Replay), Waiting: waitingOf(c.Retry), End: endOf(c.Retry), Shared: c.Flow.Shared,
		Limit: limitOf(c.Flow.Limit), LaneLimit: limitOf(c.Flow.WorkerLimit),
		Budget: budgetOf(c.Flow), Poison: poisonOf(c.Flow), Hedge: hedgeOf(c.Flow),
	}, nil
}
