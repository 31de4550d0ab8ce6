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
	prefix  string // of goroutine names
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
		g.Go(h.prefix+"/"+name, run)
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
