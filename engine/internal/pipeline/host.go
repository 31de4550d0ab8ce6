package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/faultlog"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// host implements stream.Host for the processors and the sink of a route. It is also the base of a
// sourceHost.
type host struct {
	log     *slog.Logger
	fs      vfs.FS
	counter *metrics.Set
	faults  *faultlog.Log
	group   atomic.Pointer[supervise.Group]
	cause   atomic.Pointer[error] // first argument of stop; nil before
}

// Log implements stream.Host.
func (h *host) Log() *slog.Logger { return h.log }

// FS implements stream.Host.
func (h *host) FS() vfs.FS { return h.fs }

// Count implements stream.Host.
func (h *host) Count(name string, n int64) { h.counter.Add(name, n) }

// Fault implements stream.Host.
func (h *host) Fault(err error) {
	if h.faults.Add(err) {
		h.log.Error("a component reported a fault", "error", err)
	}
}

// Go implements stream.Host.
func (h *host) Go(name string, run func(context.Context) error) {
	if g := h.group.Load(); g != nil {
		g.Go(name, run)
		return
	}
	panic("penstock: BUG: Host.Go before the route runs: a sink or processor starts goroutines " +
		"in Open or Process, not in New")
}

// stop ends the route with err. The route then fails with err, even if all its goroutines return
// nil.
func (h *host) stop(err error) {
	h.cause.CompareAndSwap(nil, &err)
	if g := h.group.Load(); g != nil {
		g.Stop(err)
	}
}

// stopped returns the first error passed to stop, or nil.
func (h *host) stopped() error {
	if err := h.cause.Load(); err != nil {
		return *err
	}
	return nil
}

// retryForever returns options with which every error is retried until the context ends. Each failed
// attempt is logged with the given message.
func (h *host) retryForever(wait backoff.Policy, message string) retry.Options {
	return retry.Options{
		Policy: wait, MaxAttempts: -1, Classify: func(error) retry.Action { return retry.Retry },
		OnEvent: func(_ context.Context, e retry.Event) {
			if e.Kind == retry.AttemptFailed {
				h.log.Warn(message, "again_in", e.Wait, "error", e.Err)
			}
		},
	}
}

// scoped returns a copy of the host for the processors of one processing goroutine. If they start
// goroutines with this copy, those end with the processing goroutine.
func (h *host) scoped(g *supervise.Group) *host {
	own := &host{log: h.log, fs: h.fs, counter: h.counter, faults: h.faults}
	own.group.Store(g)
	return own
}
