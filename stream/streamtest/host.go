// Package streamtest helps to test sources, processors and sinks. It has these parts:
//
//   - a [Host] that logs to the test, and a [Quiet] host for synctest bubbles
//   - batches made from text ([Lines], [Text]) or value by value ([Rows])
//   - an in-memory [Broker] and an in-memory database ([Store])
//
// The package does not import the engine, so that a connector's tests do not need the engine. The
// conformance suite of connectors is engine/connector/connectortest. The package runs under
// testing/synctest if a host is created and stopped in the bubble.
package streamtest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// patience is the maximum time that Stop waits for the goroutines to return.
const patience = 20 * time.Second

// errProcessEnded is the cause with which a Host's goroutines are stopped.
var errProcessEnded = errors.New("streamtest: the process ends")

// Host is a [stream.SourceHost] for tests of any component. Its method Go starts the goroutine at
// once. Unlike the engine, a Host permits a sink to call Go before Open, and a processor before
// Process. It is safe for concurrent use.
type Host struct {
	files vfs.FS
	log   *slog.Logger
	group *supervise.Group
	state func() (vfs.Dir, error)

	tally
	routes

	mu    sync.Mutex // guards the fields below
	taken bool       // Stop was called and has returned the error
	dir   vfs.Dir    // nil until State opens it
}

// NewHost returns a host over [vfs.OS] that logs to the test. At the end of the test, the host's
// goroutines are stopped and waited for. An error of a goroutine then fails the test, unless the
// test has called Stop, which returns the error.
func NewHost(t testing.TB) *Host { return NewHostOn(t, vfs.OS()) }

// NewHostOn is like NewHost, but with the given file system.
func NewHostOn(t testing.TB, files vfs.FS) *Host {
	t.Helper()
	h := &Host{
		files: files, group: supervise.NewGroup(context.WithoutCancel(t.Context())),
	}
	temp := sync.OnceValue(t.TempDir)
	h.state = func() (vfs.Dir, error) { return vfs.OS().MakeDir(temp(), 0o700) }
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

var (
	_ stream.SourceHost = (*Host)(nil)
	_ stream.SourceHost = (*Quiet)(nil)
)

// Log implements stream.Host.
func (h *Host) Log() *slog.Logger { return h.log }

// FS implements stream.Host.
func (h *Host) FS() vfs.FS { return h.files }

// Go implements stream.Host.
func (h *Host) Go(name string, run func(context.Context) error) { h.group.Go(name, run) }

// State implements stream.SourceHost. Without UseState, the directory is a temporary one of
// [vfs.OS].
func (h *Host) State() (vfs.Dir, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == nil {
		dir, err := h.state()
		if err != nil {
			return nil, err
		}
		h.dir = dir
	}
	return h.dir, nil
}

// UseState makes State open the directory at path in the host's file system. So a later host with
// the same path has the state of this one, as after a restart of the process. UseState must be
// called before State.
func (h *Host) UseState(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = func() (vfs.Dir, error) { return h.files.MakeDir(path, 0o700) }
}

// Fault implements stream.Host.
func (h *Host) Fault(err error) {
	h.log.Error("fault", "error", err)
	h.addFault(err)
}

// Failed returns a channel that is closed when a goroutine of the connector has failed or Stop was
// called.
func (h *Host) Failed() <-chan struct{} { return h.group.Context().Done() }

// Stop ends the context of the connector's goroutines, waits for them, and closes the state
// directory. The engine ends the context in the same way when a route or the process ends. Stop
// returns the first error of a goroutine. If goroutines still run after 20 s, it returns an error
// and leaves the state directory open. Stop may be called again.
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
		return errors.Join(err, h.closeState())
	case <-timer.C:
		return errors.New("goroutines still run long after their context has ended")
	}
}

// closeState closes the state directory; State opens it again.
func (h *Host) closeState() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == nil {
		return nil
	}
	err := h.dir.Close()
	h.dir = nil
	return err
}
