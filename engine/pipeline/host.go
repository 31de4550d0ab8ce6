package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// host is what a component gets from the engine.
type host struct {
	log     *slog.Logger
	fs      vfs.FS
	counter *metrics.Set
	group   atomic.Pointer[supervise.Group]
}

// Log implements penstock.Host.
func (h *host) Log() *slog.Logger { return h.log }

// FS implements penstock.Host.
func (h *host) FS() vfs.FS { return h.fs }

// Count implements penstock.Host.
func (h *host) Count(name string, n int64) { h.counter.Add(name, n) }

// Go implements penstock.Host.
func (h *host) Go(name string, run func(context.Context) error) {
	if g := h.group.Load(); g != nil {
		g.Go(name, run)
		return
	}
	panic("penstock: BUG: Host.Go before the route runs: start goroutines in Open, not in New")
}

// stop ends the route with err.
func (h *host) stop(err error) {
	if g := h.group.Load(); g != nil {
		g.Stop(err)
	}
}

// scoped is the same host for one of several instances of a component: its goroutines end with that instance.
func (h *host) scoped(g *supervise.Group) *host {
	own := &host{log: h.log, fs: h.fs, counter: h.counter}
	own.group.Store(g)
	return own
}
