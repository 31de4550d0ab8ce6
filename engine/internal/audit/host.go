package audit

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/faultlog"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// host is the stream.SourceHost of the source and the sink. A component may request a goroutine
// before start is called. The goroutine then begins when start is called.
type host struct {
	log   *slog.Logger
	fs    vfs.FS
	route string

	mu       sync.Mutex // guards the fields below
	group    *supervise.Group
	deferred []func()

	faults faultlog.Log
}

// Log implements stream.Host.
func (h *host) Log() *slog.Logger { return h.log }

// FS implements stream.Host.
func (h *host) FS() vfs.FS { return h.fs }

// Count implements stream.Host. It does nothing, because an audit shows no counters.
func (h *host) Count(string, int64) {}

// Fault implements stream.Host.
func (h *host) Fault(err error) { h.faults.Add(err) }

// Go implements stream.Host.
func (h *host) Go(name string, run func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.group == nil {
		h.deferred = append(h.deferred, func() { h.group.Go(name, run) })
		return
	}
	h.group.Go(name, run)
}

// State implements stream.SourceHost. An audit has no state.
func (h *host) State() (vfs.Dir, error) {
	return nil, errors.New("an audit has no state directory")
}

// Routes implements stream.SourceHost.
func (h *host) Routes() []string { return []string{h.route} }

// Progress implements stream.SourceHost. An audit begins without progress.
func (h *host) Progress(route string) (stream.OpenOptions, error) {
	return stream.OpenOptions{Route: route}, nil
}

// start starts the requested goroutines and returns their context. It also returns a function that
// ends them. This function returns their errors, and the faults that components have reported.
func (h *host) start(ctx context.Context) (context.Context, func() error) {
	group := supervise.NewGroup(ctx)
	h.mu.Lock()
	h.group = group
	deferred := h.deferred
	h.mu.Unlock()
	for _, begin := range deferred {
		begin()
	}
	return group.Context(), func() error {
		group.Stop(nil)
		err := group.Wait()
		return errors.Join(h.faults.Err(), err)
	}
}
