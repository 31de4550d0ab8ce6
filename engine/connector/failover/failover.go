// Package failover implements the sink that delivers to the first available one of several sinks,
// its members. The members must have no state: no ledger, no file to append to, and no parked
// records (stored until their next attempt).
//
// The lanes of all members are the lanes of this sink. Limits.Standby of each lane is the number of
// its member, counted from 0. A member is down while the breakers of all its lanes are open, or
// while it has no lanes. The sender (package flow) sends to the first member that is not down. It
// sends probes to the members before this one, and returns to them when they work again.
package failover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role: stream.SinkRole, Name: "failover", Options: func() any { return new(Options) },
		New: func(o any, h stream.Host) (any, error) { return New(o.(*Options), h) },
	}
}

// Sink delivers to its members. It implements stream.Sink and stream.Encoder.
type Sink struct {
	host    stream.Host
	members []*member
	encodes stream.Encoding

	mu  sync.Mutex // guards the lanes and sinks of members, and set
	set func([]stream.Lane)
}

// member is one of the sinks.
type member struct {
	of    *Sink
	host  *memberHost
	use   stream.Member
	order int // Limits.Standby of its lanes
	sink  stream.Sink
	lanes []stream.Lane
}

// New returns a sink. It does not open members.
func New(o *Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{host: h, encodes: stream.EncodeNone}
	for i, use := range o.members {
		m := &member{of: s, use: use, order: i}
		m.host = &memberHost{Host: h, name: fmt.Sprintf("failover %d", i+1)}
		if err := m.create(); err != nil {
			return nil, err
		}
		if e, ok := m.sink.(stream.Encoder); ok && e.Encodes() != stream.EncodeNone {
			s.encodes = stream.EncodeAll
		}
		s.members = append(s.members, m)
	}
	return s, nil
}

// create creates the sink of a member. It returns an error if that sink has state.
func (m *member) create() error {
	made, err := m.use.Component.New(m.use.Options, m.host)
	if err != nil {
		return fmt.Errorf("failover[%d]: %s: %w", m.order, m.use.Component.Name, err)
	}
	sink, ok := made.(stream.Sink)
	if !ok {
		return fmt.Errorf("failover[%d]: %s: constructor returned %T, want a stream.Sink",
			m.order, m.use.Component.Name, made)
	}
	kind := ""
	switch made.(type) {
	case stream.TransactionalSink:
		kind = "keeps a ledger"
	case stream.AppendSink:
		kind = "appends to a file"
	case stream.ParkingSink:
		kind = "parks deliveries"
	}
	if kind != "" {
		return fmt.Errorf("failover[%d]: sink %s %s, so that positions of two sinks would "+
			"disagree; use sinks without state, such as http, elasticsearch, loki, kafka or nats",
			m.order, m.use.Component.Name, kind)
	}
	m.sink = sink
	return nil
}

var reopenBackoff = backoff.Exponential(time.Second, 2, 30*time.Second).Full()

// Open opens the members. If only some members cannot be opened, these are down, and a goroutine
// for each of them tries again with backoff. If no member can be opened, Open returns the errors.
func (s *Sink) Open(ctx context.Context, o stream.SinkOptions) error {
	s.mu.Lock()
	s.set = o.Lanes
	s.mu.Unlock()
	var errs []error
	var closed []*member
	for _, m := range s.members {
		if err := m.open(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.use.Component.Name, err))
			closed = append(closed, m)
		}
	}
	if len(closed) == len(s.members) {
		return errors.Join(errs...)
	}
	s.publish()
	for i, m := range closed {
		m.host.Log().Warn("cannot open a sink of the failover group; retrying",
			"error", errs[i])
		m.host.Go("open", func(ctx context.Context) error { return m.reopen(ctx, o) })
	}
	return nil
}

func (m *member) open(ctx context.Context, o stream.SinkOptions) error {
	o.Lanes = m.replace
	o.StateDir, o.ResumeToken = nil, "" // only for sinks that create refuses
	return m.sink.Open(ctx, o)
}

// reopen creates and opens the sink of a member, and repeats this until it succeeds or ctx is done.
func (m *member) reopen(ctx context.Context, o stream.SinkOptions) error {
	attempt := func(ctx context.Context) error {
		_ = m.sink.Close() // it has not opened, so it holds no data
		m.of.mu.Lock()
		err := m.create()
		m.of.mu.Unlock()
		if err != nil {
			return err
		}
		return m.open(ctx, o)
	}
	options := retry.Options{Policy: reopenBackoff, MaxAttempts: -1}
	options.Classify = func(error) retry.Action { return retry.Retry }
	if err := retry.Do(ctx, attempt, options); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// replace replaces the lanes of the member, and passes the new lanes of all members to the engine.
// From the second member on, the name of a lane has the number of the member: the engine keeps the
// worker of a name, so a name must not pass from one member to another.
func (m *member) replace(lanes []stream.Lane) {
	m.of.mu.Lock()
	m.lanes = slices.Clone(lanes)
	for i := range m.lanes {
		l := &m.lanes[i]
		l.Limits.Standby = m.order
		if m.order > 0 {
			l.Name = fmt.Sprintf("%s (failover %d)", l.Name, m.order+1)
		}
	}
	m.of.mu.Unlock()
	m.of.publish()
}

// publish passes the lanes of all members to the engine.
func (s *Sink) publish() {
	s.mu.Lock()
	defer s.mu.Unlock() // held until the end, so that lists are published in order
	var all []stream.Lane
	for _, m := range s.members {
		all = append(all, m.lanes...)
	}
	s.set(all)
}

// Close closes the sinks of all members.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.members {
		errs = append(errs, m.sink.Close())
	}
	return errors.Join(errs...)
}

// Encodes implements stream.Encoder. It returns EncodeAll if any member encodes batches: Encode
// then splits each batch into records, and the members encode them in Deliver.
func (s *Sink) Encodes() stream.Encoding { return s.encodes }

// Encode implements stream.Encoder. It only splits the batch into records. The member that delivers
// the batch encodes it, because each member has its own format.
func (s *Sink) Encode(_ []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	return nil, nil
}

// memberHost is the Host of a member. It adds the member's name to logs and to the names of
// goroutines.
type memberHost struct {
	stream.Host
	name string
}

// Log implements stream.Host. The logger adds the member's name.
func (h *memberHost) Log() *slog.Logger { return h.Host.Log().With("sink", h.name) }

// Go implements stream.Host. It adds the member's name to the name of the goroutine.
func (h *memberHost) Go(name string, run func(context.Context) error) {
	h.Host.Go(h.name+" "+name, run)
}
