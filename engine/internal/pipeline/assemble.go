package pipeline

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/faultlog"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/engine/internal/telemetry"
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
	if o.clustered {
		if err := p.checkSharing(); err != nil {
			return nil, err
		}
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

// renew creates a new source and a new host for the pipeline. The host gives the source the
// services of the engine, such as the log and the file system.
func (p *pipe) renew() error {
	h := newSourceHost(p)
	made, err := Construct[stream.Source](p.cfg.Source, h)
	if err != nil {
		return err
	}
	p.host, p.source = h, made
	p.finisher, _ = p.source.(stream.Finisher)
	if p.finisher != nil && !p.finisher.Finishes() {
		p.finisher = nil
	}
	p.observed.Store(&made)
	return nil
}

// Construct creates the source, sink or processor that u names, and checks that it implements the
// interface T.
func Construct[T any](u config.Use, h stream.Host) (T, error) {
	v, err := u.Component.New(u.Options, h)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %s: %w", u.Component.Role, u.Component.Name, err)
	}
	c, ok := v.(T)
	if !ok {
		return c, fmt.Errorf("%s %s: constructor returned %T, want %s", u.Component.Role,
			u.Component.Name, v, u.Component.Role)
	}
	return c, nil
}

// newRoute builds a route from the config in s, with a new sink. A route runs once: for each
// restart, s builds another one.
func newRoute(s *slot) (*route, error) {
	c, o := s.cfg, s.o
	co := &core{
		key: s.key, source: s.pipe.cfg.Source.Component.Name, cfg: c, once: o.Once, failures: s.failures,
		host:  newHost(s.log, o.FS, s.counter),
		guard: deadletter.Guard{Share: c.Guard.Share, Records: int64(c.Guard.Records), Off: c.Guard.Off},
	}
	co.observed = &observers{
		tap: o.taps.Route(s.key), latency: o.latency.WithLabelValues(s.pipe.name, c.Name),
		roundTrips: o.roundTrips.WithLabelValues(s.pipe.name, c.Name),
	}
	if o.Manifest != nil {
		co.observed.manifest = o.Manifest.Route(s.pipe.name, c.Name)
	}
	r := &route{core: co, pipe: s.pipe, slot: s, health: healthRunning, drained: make(chan struct{})}
	bound, err := r.makeSink()
	if err != nil {
		return nil, err
	}
	syncer, _ := r.sink.(stream.AppendSink)
	ledgered, _ := r.sink.(stream.TransactionalSink)
	if co.assigned, err = newAssignments(r, ledgered, bound); err != nil {
		return nil, err
	}
	if err := r.checkShared(); err != nil {
		return nil, err
	}
	if err := r.makeParking(); err != nil {
		return nil, err
	}
	r.letters = &letterWriter{core: co, ledgered: ledgered, refusers: make(map[*stream.Batch]refuser)}
	if d, ok := r.sink.(stream.DeadLetterSink); ok && ledgered != nil && d.StoresDeadLetters() {
		r.letters.sink = d
	}
	r.processors = &processors{core: co, letters: r.letters, encoder: encoderOf(r.sink, len(c.Processors))}
	r.saver = &saver{core: co, syncer: syncer, ledgered: ledgered, slot: s, urgent: make(chan struct{}, 1)}
	r.reader = &reader{core: co, letters: r.letters, announce: r.saver.announce, drained: r.drained}
	r.reader.left.Store(-1)
	r.sender = &sender{core: co, letters: r.letters, next: r.reader.next, unsaved: r.saver.wake}
	if o.telemetry != nil && o.traces > 0 {
		r.sender.tracer = func(started time.Time) *telemetry.Tracer {
			return o.telemetry.NewTracer(s.key, started, o.traces, rand.Uint64())
		}
	}
	r.waits = &waits{
		core: co, letters: r.letters, saver: r.saver, reader: r.reader, sender: r.sender,
		boot: o.Boot, changed: make(chan struct{}, 1),
	}
	r.reader.waits, r.sender.waits, r.saver.waits = r.waits, r.waits, r.waits
	r.sender.broken = r.sourceFailed
	r.saver.idle, r.saver.saved = r.reader.idle, r.sender.saved
	for _, use := range c.Processors { // this reports invalid options before anything starts
		if _, err := Construct[stream.Processor](use, r.host); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// makeParking sets r.parking if the sink parks records (stream.ParkingSink): it keeps them in a
// store of this node and delivers them later. makeParking returns an error if a broker also assigns
// the partitions of the source: a partition may continue at another node, which has no access to
// the parked records.
func (r *route) makeParking() error {
	r.parking, _ = r.sink.(stream.ParkingSink)
	if r.parking != nil && r.assigned != nil {
		return fmt.Errorf("sink %s parks deliveries on this node, and partitions of source %s "+
			"may continue at another one; use a source whose partitions stay",
			r.cfg.Sink.Component.Name, r.source)
	}
	return nil
}

// makeSink creates the sink. Usually the source stores the positions of partitions that a broker
// assigns. If the sink stores them instead (stream.SourceBoundSink), bound is true.
func (r *route) makeSink() (bound bool, err error) {
	if r.sink, err = Construct[stream.Sink](r.cfg.Sink, r.host); err != nil {
		return false, err
	}
	sink, ok := r.sink.(stream.SourceBoundSink)
	if !ok || r.core.source == replaySource {
		return false, nil
	}
	to, err := sink.BindSource(r.pipe.source, r.key)
	if err != nil {
		return false, fmt.Errorf("sink %s: %w", r.cfg.Sink.Component.Name, err)
	}
	if to == nil {
		return false, nil
	}
	r.sink = to
	return true, nil
}

// encoderOf returns the sink as an Encoder. It returns nil in two cases: the sink never encodes
// batches, or it encodes only batches that processors have changed and there are no processors.
func encoderOf(sink stream.Sink, processors int) stream.Encoder {
	e, ok := sink.(stream.Encoder)
	if !ok {
		return nil
	}
	if by := e.Encodes(); by == stream.EncodeNone || by == stream.EncodeChanged && processors == 0 {
		return nil
	}
	return e
}

func newHost(log *slog.Logger, fs vfs.FS, counter *metrics.Set) *host {
	return &host{log: log, fs: fs, counter: counter, faults: new(faultlog.Log)}
}

// prepare opens the store of the route's progress, and the file of its dead letters.
func (r *route) prepare(state *state, fs vfs.FS) error {
	if err := state.present(fs); err != nil {
		return err
	}
	store, err := r.pipe.positions(r.key, state)
	if err != nil {
		return err
	}
	k := r.saver
	k.layers = newLayeredStore(store, r.key, k.syncer != nil, state.boot)
	if r.pipe.sharing.on {
		k.layers.pause = bucketPause
	}
	if err := k.layers.forgetOtherBoots(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if k.writesSoon() {
		k.soon = make(chan struct{}, 1)
	}
	r.mu.Lock() // a status request may be reading the route
	r.books = newBooks(k.markOf)
	r.books.noFinisher = r.pipe.finisher == nil
	if r.assigned != nil {
		r.assigned.keepBooks(r.books)
	}
	r.started = time.Now()
	r.mu.Unlock()
	share := int64(r.cfg.Batch.Bytes)
	if r.processors.encoder != nil {
		share *= 2
	}
	r.reader.budget = newBudget(int64(r.cfg.Memory), share)
	r.reader.pool = &stream.Pool{Keep: r.reader.budget.arenas(), Freed: r.reader.budget.freed}
	r.processors.budget = r.reader.budget
	if r.processors.needed() {
		r.reader.line = newLine()
		r.processors.line = r.reader.line
	}
	r.letters.store, err = deadletter.Open(fs, r.cfg.DeadLetters.Dir, deadletter.Options{
		Pipeline: r.pipe.name, Route: r.cfg.Name, MaxBytes: int64(r.cfg.DeadLetters.Max),
	})
	if err == nil && r.letters.store.SetAside() != "" {
		r.host.log.Warn("the end of the dead letters could not be read and was moved to another file", "file",
			r.letters.store.SetAside())
	}
	return err
}
