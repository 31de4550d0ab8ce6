package pipeline

import (
	"runtime"
	"time"

	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow/control"
)

// openTrace begins the trace that flow.trace asks for; without one it returns nil. What it returns
// is flow.Options.Trace.
func (r *sender) openTrace(c control.Config) (func(*control.Event, []control.Command), error) {
	if r.cfg.Flow.Trace == "" {
		return nil, nil
	}
	t, err := trace.Create(r.host.fs, r.cfg.Flow.Trace, c, trace.Options{
		Max: int64(r.cfg.Flow.TraceMax), Log: r.host.log,
		About: trace.About{Route: r.key, Started: time.Now(), Program: Version(), Arch: runtime.GOARCH},
	})
	if err != nil {
		return nil, err
	}
	r.trace = t
	r.host.Go("trace", t.Run)
	return func(e *control.Event, do []control.Command) {
		name := ""
		if e.Kind == control.LaneUp {
			if _, names := r.sender.Status(); int(e.Lane) < len(names) {
				name = names[e.Lane]
			}
		}
		t.Event(e, do, name)
	}, nil
}

// closeTrace ends the trace. That it could not be written to its end is no fault of the route.
func (r *sender) closeTrace() {
	if r.trace == nil {
		return
	}
	if err := r.trace.Close(); err != nil {
		r.host.log.Warn("the trace of the flow may lack its end", "error", err)
	}
}
