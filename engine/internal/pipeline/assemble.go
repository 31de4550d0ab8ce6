package pipeline

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

func newPipe(c config.Pipeline, o Options) (*pipe, error) {
	log := o.Log.With("pipeline", c.Name)
	p := &pipe{name: c.Name, cfg: c, once: o.Once, log: log, finishing: make(map[string]*finishing)}
	p.fs, p.counter = o.FS, new(metrics.Set)
	if err := p.renew(); err != nil {
		return nil, err
	}
	for _, rc := range c.Routes {
		s := newSlot(p, rc, o)
		if err := s.renew(); err != nil {
			return nil, fmt.Errorf("route %q: %w", rc.Name, err)
		}
		p.slots = append(p.slots, s)
	}
	return p, nil
}

// renew creates the source, with a host of its own.
func (p *pipe) renew() error {
	h := newSourceHost(p)
	made, err := made[stream.Source](p.cfg.Source, h)
	if err != nil {
		return err
	}
	p.host, p.source = h, made
	p.finisher, _ = p.source.(stream.Finisher)
	if holder, ok := p.source.(stream.Holder); ok {
		p.holder.Store(&holder)
	}
	return nil
}

// made makes the component of u and checks that it is what its role asks for.
func made[T any](u config.Use, h stream.Host) (T, error) {
	v, err := u.Component.New(u.Options, h)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %s: %w", u.Component.Role, u.Component.Name, err)
	}
	c, ok := v.(T)
	if !ok {
		return c, fmt.Errorf("%s %s: the component made a %T, which is no %s", u.Component.Role, u.Component.Name, v, u.Component.Role)
	}
	return c, nil
}

// newRoute makes the route of a slot, with a sink and processors of its own.
func newRoute(s *slot) (*route, error) {
	c, o := s.cfg, s.o
	r := &route{
		key: s.key, pipe: s.pipe, slot: s, cfg: c, once: o.Once, stall: o.Stall, health: healthRunning, failures: s.failures,
		refusers: make(map[*stream.Batch]refuser), drained: make(chan struct{}), quarter: make(chan struct{}, 1),
	}
	r.guard = deadletter.Guard{Share: c.Guard.Share, Records: int64(c.Guard.Records), Off: c.Guard.Off}
	if o.Manifest != nil {
		r.manifest = o.Manifest.Route(s.pipe.name, c.Name)
	}
	r.host = newHost(s.log, o.FS, s.counter)
	var err error
	if r.sink, err = made[stream.Sink](c.Sink, r.host); err != nil {
		return nil, err
	}
	r.encoder, _ = r.sink.(stream.Encoder)
	if v, ok := r.sink.(stream.Verbatim); ok && v.Verbatim() && len(r.cfg.Processors) == 0 {
		r.encoder = nil
	}
	r.syncer, _ = r.sink.(stream.Syncer)
	r.ledgered, _ = r.sink.(stream.Ledgered)
	for _, use := range c.Processors {
		r.processors = append(r.processors, func(h stream.Host) (stream.Processor, error) { return made[stream.Processor](use, h) })
	}
	for _, make := range r.processors { // a wrong option is said before anything starts
		if _, err := make(r.host); err != nil {
			return nil, err
		}
	}
	_, err = controlConfig(c, nil)
	return r, err
}

func newHost(log *slog.Logger, fs vfs.FS, counter *metrics.Set) *host {
	return &host{log: log, fs: fs, counter: counter, faults: new(faultLog)}
}

// prepare gives the route its state: checkpoint, dead letters, memory.
func (r *route) prepare(state *state, fs vfs.FS, boot string) error {
	store, err := state.store()
	if err != nil {
		return err
	}
	r.memory = newMemory(store, r.key, r.syncer != nil, boot)
	if err := r.memory.forgetOtherBoots(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if r.writesSoon() {
		r.some = make(chan struct{}, 1)
	}
	r.mu.Lock() // a snapshot may be taken meanwhile
	r.books = newBooks(r.markOf)
	r.books.ends = r.pipe.finisher == nil
	r.started = time.Now()
	r.mu.Unlock()
	share := int64(r.cfg.Batch.Bytes)
	if r.encoder != nil {
		share *= 2
	}
	r.budget = newBudget(int64(r.cfg.Memory), share)
	r.pool = &stream.Pool{Keep: r.budget.arenas(), Freed: r.budget.freed}
	if len(r.processors) > 0 || r.encoder != nil {
		r.jobs = make(chan *job, r.workers())
		r.work, r.again = make(chan *job, r.workers()), make(chan *job, r.jobsAtOnce())
	}
	dir, err := fs.MakeDir(r.cfg.DeadLetters.Dir, 0o700)
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	r.letters, err = deadletter.Open(dir, deadletter.Options{
		Pipeline: r.pipe.name, Route: r.cfg.Name, MaxBytes: int64(r.cfg.DeadLetters.Max),
	})
	if err == nil && r.letters.SetAside() != "" {
		r.host.log.Warn("the end of the dead letters could not be read and was moved aside", "file", r.letters.SetAside())
	}
	return err
}
