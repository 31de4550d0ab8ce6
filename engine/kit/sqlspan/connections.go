package sqlspan

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Database is what [Connections] need of one, over connections of the type C. It is called by many
// goroutines.
type Database[C Session] interface {
	Server[C]
	// Find settles the columns of the data's table, if it exists or the config lists them, after Load.
	Find(ctx context.Context, c C) error
	// Transient reports whether an error of Load may pass.
	Transient(err error) bool
	// Writer returns a writer for one goroutine at a time.
	Writer() Writer[C]
	// Outcome makes of an error of [Deliver] what a worker returns: one of flow's outcomes where the
	// database says what it is.
	Outcome(err error) error
}

// Connections are what a sink over several connections has, whatever its database: a lane for each
// worker, one more for the ledger, and what they share of the route and the table. They implement a
// [stream.TransactionalSink] but for Open, and are to be embedded. Open comes before all else but
// Encode; after it they are safe for concurrent use.
type Connections[C Session] struct {
	*Ledger
	Shape *sqltable.Shape
	Table *Making

	database Database[C]
	host     stream.Host
	own      *Lane[C] // the ledger's own connection; nil: not open
	workers  []*worker[C]
}

// NewConnections returns connections of which none is made.
func NewConnections[C Session](h stream.Host, d Database[C], shape *sqltable.Shape) *Connections[C] {
	return &Connections[C]{Ledger: NewLedger(h), Shape: shape, Table: newMaking(), database: d, host: h}
}

// The bounds of workers.
const (
	defaultWorkers = 4
	maxWorkers     = 100
)

// Workers resolves the option of that name, 1 to 100; 0: four, or one in a mode that has to keep
// the order.
func Workers(n int, mode string) (int, error) {
	switch {
	case n == 0 && mode == sqltable.Upsert:
		return 1, nil
	case n == 0:
		return defaultWorkers, nil
	case n < 1 || n > maxWorkers:
		return n, &stream.OptionError{Key: "workers", Err: fmt.Errorf("is %d; it may be 1 to %d", n, maxWorkers)}
	}
	return n, nil
}

// Open makes the lanes, of so many workers, which are named after where they lead to; nothing
// connects yet. The Ledger has to be open. kind is the sink's name, for the goroutine that ends its
// route when another process has taken the ledger over.
func (s *Connections[C]) Open(o stream.SinkOptions, kind, to string, workers int) {
	s.own = NewLane[C](s.database)
	for range workers {
		s.workers = append(s.workers, &worker[C]{Lane: NewLane[C](s.database), of: s, writer: s.database.Writer()})
	}
	s.host.Go(kind+" fence", s.Watch)
	o.Lanes(Lanes(to, s.workers))
}

// Encodes implements stream.Encoder.
func (s *Connections[C]) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder: the rows as the database takes them. A batch of which a record
// is refused has none: Deliver looks at it again and says which.
func (s *Connections[C]) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	dst, refusals := s.database.Writer().Encode(dst, b)
	if len(refusals) > 0 {
		return nil, nil
	}
	return dst, nil
}

// Ahead makes each lane's connection where it has none, and calls f with it, nil: nothing, so that
// the lane's first batch does not wait for what that brings about. It returns at once, and what
// goes wrong is not told: the first batch meets it again. kind is the sink's name, for the
// goroutines.
func (s *Connections[C]) Ahead(kind string, f func(ctx context.Context, c C, w Writer[C]) error) {
	for i, w := range s.workers {
		s.host.Go(fmt.Sprintf("%s ahead #%d", kind, i+1), func(ctx context.Context) error {
			_ = w.Do(ctx, BookBound, func(ctx context.Context, c C) error {
				if f == nil {
					return nil
				}
				return f(ctx, c, w.writer)
			})
			return nil
		})
	}
}

// Load implements stream.TransactionalSink. It waits for a server that is not there yet.
func (s *Connections[C]) Load(ctx context.Context) ([]stream.Mark, error) {
	return s.Await(ctx, func(ctx context.Context) ([]stream.Mark, error) { return s.Attempt(ctx, nil) }, s.database.Transient)
}

// Attempt is one attempt of Load, over the ledger's own connection and within LoadAttempt. It calls
// connected, unless that is nil, when there is one.
func (s *Connections[C]) Attempt(ctx context.Context, connected func()) (marks []stream.Mark, err error) {
	err = s.own.Do(ctx, LoadAttempt, func(ctx context.Context, c C) error {
		if connected != nil {
			connected()
		}
		if marks, err = s.Ledger.Load(ctx, c); err != nil {
			return err
		}
		return s.database.Find(ctx, c)
	})
	return marks, err
}

// Change calls f with the ledger's own connection, within BookBound. An error that ends the route
// does so.
func (s *Connections[C]) Change(ctx context.Context, f func(ctx context.Context, c C) error) error {
	return s.Note(s.own.Do(ctx, BookBound, f))
}

// Store implements stream.TransactionalSink.
func (s *Connections[C]) Store(ctx context.Context, spans []stream.Span) error {
	spans = Covering(nil, spans)
	if len(spans) == 0 {
		return nil
	}
	return s.Change(ctx, func(ctx context.Context, c C) error { return s.Ledger.Store(ctx, c, spans) })
}

// Compact implements stream.TransactionalSink.
func (s *Connections[C]) Compact(ctx context.Context, marks []stream.Mark) error {
	return s.Change(ctx, func(ctx context.Context, c C) error { return s.Ledger.Compact(ctx, c, marks) })
}

// Prune implements stream.TransactionalSink.
func (s *Connections[C]) Prune(ctx context.Context, ids []string) error {
	return s.Change(ctx, func(ctx context.Context, c C) error { return s.Ledger.Prune(ctx, c, ids) })
}

// Close implements stream.Sink: it waits until the connections are free, and frees them. It may be
// called again.
func (s *Connections[C]) Close() error {
	for _, w := range s.workers {
		w.Close()
	}
	if s.own != nil {
		s.own.Close()
	}
	s.workers, s.own = nil, nil
	return nil
}

// worker delivers over one connection.
type worker[C Session] struct {
	*Lane[C]
	of      *Connections[C]
	writer  Writer[C] // who has the connection may use it, and scratch
	scratch []byte    // of batches without a payload
}

// Deliver implements stream.Worker.
func (w *worker[C]) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	err := w.Do(ctx, 0, func(ctx context.Context, c C) error {
		return Deliver(ctx, c, w.writer, w.of.Shape, a.Value, &w.scratch)
	})
	return stream.Report{}, w.of.database.Outcome(w.of.Note(err))
}

// Making knows whether the data's table is there, and lets one lane at a time make it. It is safe
// for concurrent use.
type Making struct {
	there atomic.Bool
	token chan struct{} // takes one: who has put it in may make the table
}

func newMaking() *Making { return &Making{token: make(chan struct{}, 1)} }

// Found says whether the table is there; where it is not, it will be made.
func (m *Making) Found(there bool) { m.there.Store(there) }

// Once calls make where the table is not there; who comes meanwhile waits. It returns make's error,
// or the cause of a ctx that has ended before.
func (m *Making) Once(ctx context.Context, make func() error) error {
	if m.there.Load() {
		return nil
	}
	select {
	case m.token <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.token }()
	if m.there.Load() {
		return nil
	}
	err := make()
	if err == nil {
		m.there.Store(true)
	}
	return err
}
