package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// sourceHost implements stream.SourceHost for one instance of a source. It has three states:
//
//	assembled --start--> running --stop--> stopped
//
// In the state "assembled", Go only stores its goroutine, and start starts it later. In the state
// "stopped", Go refuses to start goroutines. The state directory can be opened in the state
// "running" only. A sourceHost is safe for concurrent use.
type sourceHost struct {
	*host
	pipe  *pipe
	watch *supervise.Group // reports a failed goroutine to the routes; set by start

	mu       sync.Mutex // guards the fields below
	phase    hostPhase
	group    *supervise.Group // set by start
	deferred []func()         // start the goroutines that were requested before start
	dir      vfs.Dir          // nil until opened
}

type hostPhase uint8

const (
	hostAssembled hostPhase = iota
	hostRunning
	hostStopped
)

// pipelineShutdown is the maximum time for stopping a pipeline: first its routes, then the
// goroutines of its source. It includes sourceShutdown for these goroutines.
const (
	sourceShutdown   = 10 * time.Second
	pipelineShutdown = routeShutdown + sourceShutdown + time.Second
)

var (
	errTooEarly = errors.New("state directory of source: the pipeline does not run yet: " +
		"call State in Open or in a goroutine, not in New")
	errTooLate = errors.New("state directory of source: the source has stopped")
)

func newSourceHost(p *pipe) *sourceHost {
	return &sourceHost{host: newHost(p.log.With("source", p.cfg.Source.Component.Name), p.fs, p.counter), pipe: p}
}

// Go implements stream.Host.
func (h *sourceHost) Go(name string, run func(context.Context) error) {
	h.mu.Lock()
	phase := h.phase
	if phase == hostAssembled {
		h.deferred = append(h.deferred, func() { h.group.Go(name, run) })
	}
	h.mu.Unlock()
	switch phase {
	case hostAssembled:
	case hostRunning:
		h.group.Go(name, run)
	case hostStopped:
		h.log.Error("goroutine not started: its source has stopped", "goroutine", name)
	}
}

// State implements stream.SourceHost.
func (h *sourceHost) State() (vfs.Dir, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.phase {
	case hostAssembled:
		return nil, errTooEarly
	case hostStopped:
		return nil, errTooLate
	case hostRunning:
	}
	if h.dir == nil {
		dir, err := h.pipe.state.makeDir(SourceDir(h.pipe.name))
		if err != nil {
			return nil, err
		}
		h.dir = dir
	}
	return h.dir, nil
}

// Routes implements stream.SourceHost.
func (h *sourceHost) Routes() []string {
	slots := h.pipe.routes()
	keys := make([]string, len(slots))
	for i, s := range slots {
		keys[i] = s.key
	}
	return keys
}

// Progress implements stream.SourceHost.
func (h *sourceHost) Progress(route string) (stream.OpenOptions, error) {
	switch {
	case h.pipe.state == nil:
		return stream.OpenOptions{}, errors.New("the pipeline does not run yet")
	case h.pipe.sharing.on: // to open this progress would make the route's own saves fail
		return stream.OpenOptions{}, errors.New("the progress of a shared pipeline is in its bucket")
	}
	store, err := h.pipe.positions(route, h.pipe.state)
	if err != nil {
		return stream.OpenOptions{}, err
	}
	saved := storedProgress(store, route, h.pipe.state.boot)
	return stream.OpenOptions{Route: route, Resume: saved.mark, Known: ofSource(saved.marks())}, nil
}

// start starts the goroutines that the source has requested. They do not end with ctx, but when
// stop is called. If one of them fails, the others end, and its error is passed to the function
// failed.
func (h *sourceHost) start(ctx context.Context, failed context.CancelCauseFunc) {
	group := supervise.NewGroup(context.WithoutCancel(ctx))
	h.watch = supervise.NewGroup(context.Background())
	h.watch.Go("source failure", func(ctx context.Context) error {
		select {
		case <-group.Context().Done():
			failed(context.Cause(group.Context()))
		case <-ctx.Done():
		}
		return nil
	})
	h.mu.Lock()
	h.phase, h.group = hostRunning, group
	deferred := h.deferred
	h.deferred = nil
	h.mu.Unlock()
	for _, start := range deferred {
		start()
	}
}

// stop stops the goroutines, waits for them and closes the state directory. It returns the first
// error of a goroutine. It must be called after all routes have stopped. If the host was not
// running, stop only sets its state.
func (h *sourceHost) stop() error {
	h.mu.Lock()
	was := h.phase
	h.phase = hostStopped
	h.mu.Unlock()
	if was != hostRunning {
		return nil
	}
	h.group.Stop(nil)
	err := h.group.Wait()
	h.watch.Stop(nil)
	_ = h.watch.Wait() // its goroutine returns no error
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir != nil {
		if err := h.dir.Close(); err != nil {
			h.log.Warn("state directory of source not closed", "error", err)
		}
	}
	return err
}
