package pipeline

import (
	"runtime"
	"time"

	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow/control"
)

// openTrace starts the trace file of flow.trace.
func (r *sender) openTrace(c control.Config) error {
	t, err := trace.Create(r.host.fs, r.cfg.Flow.Trace, c, trace.Options{
		Max: int64(r.cfg.Flow.TraceMax), Log: r.host.log,
		About: trace.About{Route: r.key, Started: time.Now(), Program: Version(), Arch: runtime.GOARCH},
	})
	if err != nil {
		return err
	}
	r.trace = t
	r.host.Go("trace", t.Run)
	return nil
}

// closeTrace ends the trace file. If that fails, the route does not fail.
func (r *sender) closeTrace() {
	if r.trace == nil {
		return
	}
	if err := r.trace.Close(); err != nil {
		r.host.log.Warn("the trace of the flow may lack its end", "error", err)
	}
}
