package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/telemetry"
	"github.com/penstock-io/penstock/flow/control"
)

// newExporter returns the exporter for the config's telemetry, or nil if it is disabled.
func newExporter(e *Engine) *telemetry.Exporter {
	t := &e.cfg.Telemetry
	if !t.On() {
		return nil
	}
	registry := admin.Registry(e.Status, e.o.latency, e.o.roundTrips)
	out := telemetry.New(telemetry.Options{
		URL: t.OTLP, Token: t.Token, Interval: t.Interval, Version: Version(), Gather: registry,
		Log: e.o.Log.With("component", "telemetry"),
	})
	registry.MustRegister(out)
	return out
}

// collectorsOf returns the collectors of metrics that do not come from the status.
func collectorsOf(e *Engine) []prometheus.Collector {
	out := []prometheus.Collector{e.o.latency, e.o.roundTrips}
	if e.o.telemetry != nil {
		out = append(out, e.o.telemetry)
	}
	return out
}

// observe returns the function for flow.Options.Trace. It passes the sender's events, and the
// commands that they have caused, to the trace file of flow.trace and to the tracer of telemetry. It
// returns nil if both are disabled.
func (r *sender) observe(c control.Config) (func(*control.Event, []control.Command), error) {
	var all []func(e *control.Event, do []control.Command, laneName string)
	if r.cfg.Flow.Trace != "" {
		if err := r.openTrace(c); err != nil {
			return nil, err
		}
		all = append(all, r.trace.Event)
	}
	if r.tracer != nil {
		all = append(all, r.tracer(time.Now()).Event)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return func(e *control.Event, do []control.Command) {
		name := r.laneName(e)
		for _, event := range all {
			event(e, do, name)
		}
	}, nil
}

// laneName returns the name of the new lane if e is a LaneUp event, else "". A lane is the place of
// a worker in the sender.
func (r *sender) laneName(e *control.Event) string {
	if e.Kind != control.LaneUp {
		return ""
	}
	if _, names := r.sender.Status(); int(e.Lane) < len(names) {
		return names[e.Lane]
	}
	return ""
}
