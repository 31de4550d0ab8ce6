package pipeline

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// windowOf returns the window of a route's workers. auto is linear; but ordered lanes with a limit of their
// own (a file) get that limit at once: they group what is in flight into one fsync, so a round trip that
// grows with the window says nothing about them.
func windowOf(f config.Flow, lanes []penstock.Lane) (window.Algorithm, error) {
	switch f.Window {
	case "", "auto", "linear":
		if f.Window != "linear" && allOrdered(lanes) && lanes[0].Limits.InFlight > 0 {
			return window.Fixed{Size: lanes[0].Limits.InFlight}, nil
		}
		threshold, err := durationOrAuto(f.Threshold)
		if err != nil {
			return nil, fmt.Errorf("flow.threshold: %w", err)
		}
		w := window.Linear{Initial: f.Initial, Max: f.Max, Threshold: threshold}
		if f.Step == "per_ack" {
			w.Step = window.PerAck
		}
		return w, w.Validate()
	case "fixed":
		w := window.Fixed{Size: f.Size}
		return w, w.Validate()
	default:
		return nil, fmt.Errorf("flow.window: %q is none of linear, fixed", f.Window)
	}
}

func dispatchOf(f config.Flow) (dispatch.Policy, error) {
	switch f.Dispatch {
	case "", "least_completion":
		return dispatch.LeastCompletion{}, nil
	case "round_robin":
		return dispatch.RoundRobin{}, nil
	case "hash":
		return dispatch.Hash{}, nil
	default:
		return nil, fmt.Errorf("flow.dispatch: %q is none of least_completion, round_robin, hash", f.Dispatch)
	}
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

func retryPolicy(r config.Retry) backoff.Policy {
	if r.Backoff == "fixed" {
		return backoff.Fixed(r.Base)
	}
	p := backoff.Exponential(r.Base, 2, r.Max)
	if r.Jitter == "none" {
		return p
	}
	return p.Full()
}
