package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/supervise"
)

// pipe is a source with its routes. A route that fails is started again by itself; when a goroutine of the source fails, the
// source is made afresh and all routes start again.
type pipe struct {
	name     string
	cfg      config.Pipeline
	once     bool
	log      *slog.Logger
	host     *host
	state    *state
	source   penstock.Source   // changed only while no route runs
	finisher penstock.Finisher // nil: the source has nothing to finish
	slots    []*slot
	opening  *barrier
	starts   int
	tree     atomic.Pointer[supervise.Supervisor]

	mu        sync.Mutex // guards what follows; Finish is called without it
	finishing map[string]*finishing
	order     []string // the keys of finishing, oldest first
	err       error    // why the last run of it ended
	waits     bool     // for its restart
}

// The causes with which the contexts of an engine's parts end.
var errAllEnded = errors.New("pipeline: every route has ended")

// atOnce, as a supervisor's Shutdown, has its children stop side by side.
const atOnce = time.Nanosecond

// run runs the routes side by side until all have ended.
func (p *pipe) run(ctx context.Context) error {
	p.mu.Lock()
	p.waits = false
	p.mu.Unlock()
	if p.starts++; p.starts > 1 {
		if err := p.renew(); err != nil {
			return err
		}
	}
	own := supervise.NewGroup(ctx)
	p.host.group.Store(own)
	p.opening = newBarrier(len(p.slots))
	ctx, end := context.WithCancelCause(own.Context())
	defer end(nil)
	ended := make(map[string]bool)
	children := make([]supervise.Child, len(p.slots))
	for i, s := range p.slots {
		s.mu.Lock()
		s.arrived = false
		s.mu.Unlock()
		children[i] = s.child()
	}
	tree, err := supervise.New(p.name, supervise.Spec{Shutdown: atOnce, OnEvent: func(e supervise.Event) {
		if e.Kind != supervise.Ended || !strings.HasSuffix(e.Supervisor, pipelinesName+"/"+p.name) {
			return // of somebody within a route
		}
		for _, s := range p.slots {
			if s.cfg.Name == e.Child {
				s.ended(e)
			}
		}
		if ended[e.Child] = !e.Restart; allOf(ended, len(p.slots)) {
			end(errAllEnded)
		}
	}}, children...)
	if err != nil {
		return err
	}
	p.tree.Store(tree)
	err = tree.Serve(ctx)
	own.Stop(nil)
	if errors.Is(err, errAllEnded) {
		err = nil
	}
	return joined(own.Wait(), err)
}

// allOf says whether n names are set.
func allOf(set map[string]bool, n int) bool {
	count := 0
	for _, is := range set {
		if is {
			count++
		}
	}
	return count == n
}

// wake starts a route that waits for its restart.
func (p *pipe) wake(route string) {
	if tree := p.tree.Load(); tree != nil {
		_ = tree.Restart(route) // it stops anyway, or has ended
	}
}

// ended notes how a run of the pipeline ended.
func (p *pipe) ended(e supervise.Event) {
	p.mu.Lock()
	p.err, p.waits = e.Err, e.Restart
	p.mu.Unlock()
	if e.Restart {
		p.log.Error("pipeline failed; its source and its routes start again", "again_in", e.Delay, "error", e.Err)
	}
}

func (p *pipe) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits
}

// result is why the pipeline ended; nil: because its routes had.
func (p *pipe) result() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}
