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

// windowOf returns the window of a route's workers. auto is queue; but ordered lanes with a limit
// of their own (a file) get that limit at once: they group what is in flight into one fsync, so a
// round trip that grows with the window says nothing about them.
func windowOf(f config.Flow, lanes []stream.Lane) (window.Algorithm, error) {
	var w window.Algorithm
	switch f.Window {
	case "", "auto":
		if allOrdered(lanes) && lanes[0].Limits.InFlight > 0 {
			w = window.Fixed{Size: lanes[0].Limits.InFlight}
			break
		}
		w = window.Queue{Initial: f.Initial, Max: f.Max}
	case "queue":
		w = window.Queue{Initial: f.Initial, Max: f.Max}
	case "aimd":
		w = window.AIMD{Initial: f.Initial, Max: f.Max}
	case "credit":
		w = window.Credit{Max: f.Max}
	case "fixed":
		w = window.Fixed{Size: f.Size}
	case "linear":
		threshold, err := durationOrAuto(f.Threshold)
		if err != nil {
			return nil, fmt.Errorf("flow.threshold: %w", err)
		}
		l := window.Linear{Initial: f.Initial, Max: f.Max, Threshold: threshold}
		if f.Step == "per_ack" {
			l.Step = window.PerAck
		}
		w = l
	default:
		return nil, fmt.Errorf("flow.window: %q is none of linear, aimd, queue, credit, fixed", f.Window)
	}
	return w, w.Validate()
}

func dispatchOf(f config.Flow) (dispatch.Policy, error) {
	if f.Dispatch == "" {
		return dispatch.LeastCompletion{Band: f.TieBand}, nil
	}
	for _, p := range []dispatch.Policy{dispatch.LeastCompletion{Band: f.TieBand}, dispatch.RoundRobin{}, dispatch.Hash{}} {
		if p.Name() == f.Dispatch {
			return p, nil
		}
	}
	return nil, fmt.Errorf("flow.dispatch: %q is none of least_completion, round_robin, hash", f.Dispatch)
}

// budgetOf bounds what is sent again in vain.
func budgetOf(f config.Flow) control.Budget {
	if f.Redeliver == 0 {
		return control.Budget{Share: -1}
	}
	return control.Budget{Share: f.Redeliver, PerSecond: f.RedeliverRate}
}

// poisonOf says when a batch is to blame.
func poisonOf(f config.Flow) control.Poison {
	if f.Poison == 0 {
		return control.Poison{Deaths: -1, Failures: -1}
	}
	return control.Poison{Deaths: f.Poison, Refuse: f.Poisoned == "dead_letter"}
}

// endOf is when a batch that keeps failing is given up.
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

// hedgeShare is how many batches, of those sent, may go out a second time while the first is under
// way.
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

// controlConfig turns a route's flow:, retry: and checkpoint: into the machine's config.
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
