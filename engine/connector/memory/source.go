package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// SourceOptions are the options of a [Source].
type SourceOptions struct {
	// Name is the name of the source in a config. Empty means "memory". If an engine has several
	// sources of this kind, they need different names.
	Name string
	// MaxBytes bounds the bytes of the records in the source. Each record counts with its length
	// plus 9 bytes. At this limit, Push waits. Zero means 64 MiB.
	//
	// Records are freed when all routes have saved in their checkpoints that these records are
	// settled (delivered, dead-lettered or dropped). This happens about once per `checkpoint.sync`,
	// so the throughput is at most MaxBytes per `checkpoint.sync`. Example: with 64 MiB and 1 s, it
	// is at most 64 MiB per second.
	MaxBytes int64
}

// DefaultMaxBytes is the default limit of a [Source].
const DefaultMaxBytes = 64 << 20

var (
	// ErrClosed is returned by Push after Close.
	ErrClosed = errors.New("memory source: closed")
	// ErrTooLarge is returned by Push if its records together exceed MaxBytes or 2 GiB.
	ErrTooLarge = errors.New("memory source: records exceed MaxBytes: push fewer at once, or raise the limit")
)

// Source is a source of records that a program pushes. Its methods are safe for concurrent use.
//
// The records are in the order of the pushes, and each route reads all of them. A route that is
// added later starts with the oldest record that is still in the source.
type Source struct {
	name    string
	max     int64
	part    stream.Partition
	pushing chan struct{} // held by the Push that waits for room: later ones wait too

	mu       sync.Mutex // guards the fields below
	buffer   buffer
	closed   bool
	pipeline string            // pipeline of the source; "" before the first Open
	host     stream.SourceHost // of the latest instance; nil before the first Open
	routes   map[string]*progress
	settled  int64         // position up to which every route has settled the records
	changed  chan struct{} // closed at the next change; nil if nothing waits
}

// progress is the progress of one route. settled is the position up to which the route has settled
// all records (delivered, dead-lettered or dropped them).
type progress struct {
	settled int64
	cuts    readers.Cuts // ends of batches after settled
}

// NewSource returns an open, empty source.
func NewSource(o SourceOptions) *Source {
	s := &Source{
		name: o.Name, max: o.MaxBytes, pushing: make(chan struct{}, 1),
		routes: make(map[string]*progress),
	}
	if s.name == "" {
		s.name = "memory"
	}
	if s.max <= 0 {
		s.max = DefaultMaxBytes
	}
	s.buffer.chunkSize = int(min(chunkBytes, max(1, s.max/8)))
	s.part = stream.Partition{ID: partitionPrefix + rand.Text(), Name: s.name}
	return s
}

// partitionPrefix is the prefix of the id of a source's partition. The rest of the id is random.
// Positions count the bytes pushed to this Source, so a position that an earlier process saved must
// not be taken for one of this Source.
const partitionPrefix = "memory-"

// Component returns the source's entry for the engine's list of components. The component has no
// options.
func (s *Source) Component() stream.Component {
	return stream.Component{
		Role: stream.SourceRole,
		Name: s.name,
		New: func(_ any, h stream.Host) (any, error) {
			host, ok := h.(stream.SourceHost)
			if !ok {
				return nil, fmt.Errorf("memory source: host is a %T, want a stream.SourceHost", h)
			}
			return &instance{s, host}, nil
		},
	}
}

// Push adds copies of all records, or none of them. It waits until there is room, even while no
// engine runs, or until ctx is done. The error is [ErrClosed], [ErrTooLarge] or the cause of ctx.
func (s *Source) Push(ctx context.Context, records ...[]byte) error {
	_, err := s.push(ctx, records)
	return err
}

// Send calls Push, and then waits as [Source.Settled] does. If the wait fails, the records stay in
// the source and may still be delivered.
func (s *Source) Send(ctx context.Context, records ...[]byte) error {
	to, err := s.push(ctx, records)
	if err != nil {
		return err
	}
	return s.waitSettled(ctx, to)
}

// Settled waits until every route has settled all records that were pushed before the call
// (delivered, dead-lettered or dropped them), and has saved this. This takes up to
// `checkpoint.sync` longer than the deliveries. If a route has stopped permanently before it has
// settled all these records, Settled waits until ctx is done. The error is the cause of ctx.
func (s *Source) Settled(ctx context.Context) error {
	s.mu.Lock()
	to := s.buffer.end
	s.mu.Unlock()
	return s.waitSettled(ctx, to)
}

// Close ends the source. Waiting and later calls of Push fail, and each route ends when it has
// settled all records. Close may be called more than once.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.notify()
	return nil
}

// push adds records when there is room for all of them. It returns the position of the last one.
func (s *Source) push(ctx context.Context, records [][]byte) (to int64, err error) {
	cost := costOf(records)
	if cost > s.max || cost > math.MaxInt32 { // offsets into a batch have 32 bits
		return 0, ErrTooLarge
	}
	select {
	case s.pushing <- struct{}{}:
		defer func() { <-s.pushing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	err = s.until(ctx, func() (bool, error) {
		switch {
		case s.closed:
			return false, ErrClosed
		case s.buffer.held+cost > s.max:
			return false, nil
		}
		s.buffer.add(records)
		to = s.buffer.end
		s.notify()
		return true, nil
	})
	return to, err
}

func (s *Source) waitSettled(ctx context.Context, to int64) error {
	return s.until(ctx, func() (bool, error) { return s.settled >= to, nil })
}

// routesEvery is the interval at which a waiting call checks whether a route was removed from the
// pipeline.
const routesEvery = time.Second

// until calls the function done: at once, after each change of the source, and once per
// routesEvery. It returns when done returns true or an error, or when ctx is done. It holds mu
// while it calls done.
func (s *Source) until(ctx context.Context, done func() (bool, error)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var tick <-chan time.Time // created by the first wait
	for {
		s.mu.Lock()
		ok, err := done()
		changed := s.changes()
		s.mu.Unlock()
		if ok || err != nil {
			return err
		}
		if tick == nil {
			ticker := time.NewTicker(routesEvery)
			defer ticker.Stop()
			tick = ticker.C
		}
		select {
		case <-changed:
		case <-tick:
			s.mu.Lock()
			s.release()
			s.mu.Unlock()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changes returns a channel that is closed at the next change of the source. The caller holds mu.
func (s *Source) changes() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *Source) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// attach registers a route, and returns its progress. It returns an error if the source has been
// used by another pipeline. The caller holds mu.
func (s *Source) attach(host stream.SourceHost, route string) (*progress, error) {
	pipeline, _, _ := strings.Cut(route, "/")
	if s.pipeline != "" && s.pipeline != pipeline {
		const taken = "memory source %q feeds pipeline %q already: create another one, with a name of its own, for %q"
		return nil, fmt.Errorf(taken, s.name, s.pipeline, pipeline)
	}
	s.pipeline, s.host = pipeline, host
	p := s.routes[route]
	if p == nil {
		p = new(progress)
		s.routes[route] = p
	}
	return p, nil
}

// release frees the records that every route of the pipeline has settled (delivered, dead-lettered
// or dropped), and wakes the calls that wait for this. It deletes the progress of routes that are
// no longer in the pipeline. The caller holds mu.
func (s *Source) release() {
	if s.host == nil {
		return
	}
	names := s.host.Routes()
	if len(names) == 0 {
		return
	}
	present := make(map[string]*progress, len(names))
	least := int64(math.MaxInt64)
	for _, name := range names {
		p := s.routes[name]
		if p == nil {
			least = 0 // the route has not opened a reader yet
			continue
		}
		present[name] = p
		least = min(least, p.settled)
	}
	s.routes = present
	freed := s.buffer.free(least)
	if least > s.settled || freed {
		s.settled = max(s.settled, least)
		s.notify()
	}
}
