// Package connectortest is the suite that every source and every sink passes, ours and an outsider's.
//
// [Sink] and [Source] run a connector through what the engine may do to it: arenas poisoned after the last Release,
// several Delivers at once, contexts that end, processes that end between two calls and begin again from the place that
// they reported last. A connector's test gives a case that says how to make it and how to see what it did; the suite
// owns the batches, the goroutines and the [Host].
//
// The package is for tests only. It never looks inside a connector.
package connectortest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// patience bounds every wait of the suite: what takes longer has hung.
const patience = 20 * time.Second

// errProcessEnded is the cause with which a Host's goroutines are told to stop.
var errProcessEnded = errors.New("connectortest: the process ends")

// Host is a penstock.Host for tests. It is safe for concurrent use.
type Host struct {
	files vfs.FS
	log   *slog.Logger
	group *supervise.Group

	mu     sync.Mutex // guards what follows
	counts map[string]int64
	taken  bool // Stop was called: its caller has the error
}

// NewHost returns a host over the real file system, whose log goes to the test's. When the test ends, the host's
// goroutines are stopped and waited for; an error of one of them that the test has not taken by Stop fails the test.
func NewHost(t testing.TB) *Host { return NewHostOn(t, vfs.OS()) }

// NewHostOn is NewHost over the file system given.
func NewHostOn(t testing.TB, files vfs.FS) *Host {
	t.Helper()
	h := &Host{files: files, counts: make(map[string]int64), group: supervise.NewGroup(context.WithoutCancel(t.Context()))}
	h.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() {
		h.mu.Lock()
		taken := h.taken
		h.mu.Unlock()
		if err := h.Stop(); err != nil && !taken {
			t.Errorf("a goroutine of the connector ended with %v", err)
		}
	})
	return h
}

// Log implements penstock.Host.
func (h *Host) Log() *slog.Logger { return h.log }

// FS implements penstock.Host.
func (h *Host) FS() vfs.FS { return h.files }

// Go implements penstock.Host.
func (h *Host) Go(name string, run func(context.Context) error) { h.group.Go(name, run) }

// Count implements penstock.Host.
func (h *Host) Count(name string, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[name] += n
}

// Counted returns what was counted under name.
func (h *Host) Counted(name string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[name]
}

// Failed is done once a goroutine of the connector has failed or Stop was called.
func (h *Host) Failed() <-chan struct{} { return h.group.Context().Done() }

// Stop ends the context of the connector's goroutines, as the end of a route or of the process does, and waits for
// them. It returns the first error of one of them, and may be called again.
func (h *Host) Stop() error {
	h.mu.Lock()
	h.taken = true
	h.mu.Unlock()
	h.group.Stop(errProcessEnded)
	ended := make(chan error, 1)
	go func() { ended <- h.group.Wait() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errors.New("goroutines still run long after their context has ended")
	}
}
