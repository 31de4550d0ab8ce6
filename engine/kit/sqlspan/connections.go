package sqlspan

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Database is the database-specific part of [Connections], with connections of type C. Its methods
// are called concurrently.
type Database[C Session] interface {
	Server[C]
	// Find determines the columns that the sink fills. If the table for the records exists, it
	// reads the columns of the table. Otherwise it uses the columns listed in the config. If none
	// are listed, the first batch determines the columns later. Load calls Find. Take also calls
	// it, until Find has succeeded once.
	Find(ctx context.Context, c C) error
	// Transient reports whether [Connections.Load] should retry after err.
	Transient(err error) bool
	// Writer returns a writer for use by one goroutine at a time.
	Writer() Writer[C]
	// Outcome maps an error of [Deliver] to the error that a worker returns. The error of the
	// database may show what must be done: retry, refuse records, or correct the configuration. The
	// result is then an outcome of package flow, such as [stream.Misconfigured].
	Outcome(err error) error
}

// Connections are the common part of sinks with several connections to a database. They have a lane
// for each worker, one more connection for the ledger, and the shared state of the route and the
// table. They implement [stream.PartitionLedger] except for Open, and are meant to be embedded.
// Open must be called before all other methods except Encode and Encodes. After Open, all methods
// except Close are safe for concurrent use.
type Connections[C Session] struct {
	*Ledger
	Shape *sqltable.Shape
	Table *Making

	database Database[C]
	host     stream.Host
	own      *Lane[C] // connection of the ledger; nil before Open
	workers  []*worker[C]
}

// NewConnections returns connections that are not connected yet.
func NewConnections[C Session](h stream.Host, d Database[C],
	shape *sqltable.Shape) *Connections[C] {
	return &Connections[C]{Ledger: NewLedger(h), Shape: shape, Table: newMaking(), database: d,
		host: h}
}

// The default and the limit of workers.
const (
	defaultWorkers = 4
	maxWorkers     = 100
)

// Workers returns the number of workers, from 1 to 100. The parameter n is the value of the option
// workers. If it is 0, the result is four, or one in a mode that must write records in the order of
// the source.
func Workers(n int, mode string) (int, error) {
	switch {
	case n == 0 && mode == sqltable.Upsert:
		return 1, nil
	case n == 0:
		return defaultWorkers, nil
	case n < 1 || n > maxWorkers:
		return n, stream.OptionErrorf("workers", "is %d; it may be 1 to %d", n, maxWorkers)
	}
	return n, nil
}

// Open creates the lanes, and does not connect them. The name of a lane consists of the destination
// (the parameter to) and a number. Each lane delivers one batch at a time. If there is a single
// lane, it is ordered: it delivers the records of each partition in order. The Ledger must be open.
// kind is the sink's name, as in the config. It becomes part of the name of the goroutine that runs
// [Ledger.Watch].
func (s *Connections[C]) Open(o stream.SinkOptions, kind, to string, workers int) {
	s.own = NewLane[C](s.database)
	lanes := make([]stream.Lane, workers)
	for i := range lanes {
		w := &worker[C]{Lane: NewLane[C](s.database), of: s, writer: s.database.Writer()}
		s.workers = append(s.workers, w)
		lanes[i] = stream.Lane{Name: fmt.Sprintf("%s #%d", to, i+1), Worker: w,
			Limits: stream.Limits{InFlight: 1, Ordered: workers == 1}}
	}
	s.host.Go(kind+" fence", s.Watch)
	o.Lanes(lanes)
}

// Encodes implements stream.Encoder.
func (s *Connections[C]) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. It encodes the records of b as rows for the database. If the
// database cannot store one of the records, Encode returns no payload. Deliver then encodes the
// batch again and reports the refused records.
func (s *Connections[C]) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	dst, refusals := s.database.Writer().Encode(dst, b)
	if len(refusals) > 0 {
		return nil, nil
	}
	return dst, nil
}

// Ahead connects all lanes in goroutines and returns at once, so that the first batches need not
// wait for a connection. If f is not nil, it prepares each new connection. Errors are ignored,
// because the first batch of the lane will get the same error. kind is the sink's name, for the
// names of the goroutines.
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

// Load implements [stream.TransactionalSink]: it returns the progress that the ledger contains. If
// the server is not running yet, Load waits for it.
func (s *Connections[C]) Load(ctx context.Context) ([]stream.Mark, error) {
	return s.Await(ctx, func(ctx context.Context) ([]stream.Mark, error) {
		return s.Attempt(ctx, nil)
	}, s.database.Transient)
}

// Attempt makes one attempt to load the ledger over the ledger's connection, bounded by the time
// LoadAttempt. If connected is not nil, Attempt calls it as soon as there is a connection.
func (s *Connections[C]) Attempt(ctx context.Context,
	connected func()) (marks []stream.Mark, err error) {
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

// Take implements [stream.PartitionLedger]: it makes this process the owner of partitions. It makes
// one attempt, bounded by the time LoadAttempt. The engine repeats Take after an error.
func (s *Connections[C]) Take(ctx context.Context,
	parts []stream.Taking) (taken []stream.Taken, err error) {
	err = s.own.Do(ctx, LoadAttempt, func(ctx context.Context, c C) error {
		taken, err = s.Ledger.Take(ctx, c, parts, func() error { return s.database.Find(ctx, c) })
		return err
	})
	return taken, err
}

// Change calls f with the ledger's connection, for a change to the ledger. BookBound bounds the
// time of the call. If f returns an error that must end the route (see [Ends]), Change ends the
// route.
func (s *Connections[C]) Change(ctx context.Context, f func(ctx context.Context, c C) error) error {
	return s.Note(s.own.Do(ctx, BookBound, f))
}

// Store implements [stream.TransactionalSink]: it stores spans of batches that have no data to
// write.
func (s *Connections[C]) Store(ctx context.Context, spans []stream.Span) error {
	if len(Covering(nil, spans)) == 0 {
		return nil
	}
	return s.Change(ctx, func(ctx context.Context, c C) error {
		return s.Ledger.Store(ctx, c, spans)
	})
}

// Compact implements [stream.TransactionalSink]: it raises watermarks, and deletes the rows of
// spans that they cover.
func (s *Connections[C]) Compact(ctx context.Context, marks []stream.Mark) error {
	return s.Change(ctx, func(ctx context.Context, c C) error {
		return s.Ledger.Compact(ctx, c, marks)
	})
}

// Prune implements [stream.TransactionalSink]: it deletes partitions from the ledger.
func (s *Connections[C]) Prune(ctx context.Context, ids []string) error {
	return s.Change(ctx, func(ctx context.Context, c C) error {
		return s.Ledger.Prune(ctx, c, ids)
	})
}

// Close implements stream.Sink: it waits until the connections are idle and closes them. It may be
// called more than once.
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

// worker delivers batches over one connection.
type worker[C Session] struct {
	*Lane[C]
	of      *Connections[C]
	writer  Writer[C] // owned by the holder of the connection, as is scratch
	scratch []byte    // buffer for batches without a payload
}

// Deliver implements stream.Worker.
func (w *worker[C]) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	err := w.Do(ctx, 0, func(ctx context.Context, c C) error {
		return Deliver(ctx, c, w.writer, w.of.Shape, a.Value, &w.scratch)
	})
	return stream.Report{}, w.of.database.Outcome(w.of.Note(err))
}

// A Making records whether the table for the data exists, and lets one lane at a time create the
// table. It is safe for concurrent use.
type Making struct {
	there atomic.Bool
	token chan struct{} // buffer of 1; the goroutine that fills it may create the table
}

func newMaking() *Making { return &Making{token: make(chan struct{}, 1)} }

// Found notes whether the table for the data exists.
func (m *Making) Found(there bool) { m.there.Store(there) }

// Once calls make to create the table, unless the table exists, and returns the error of make. Only
// one caller at a time runs make, and the others wait. If ctx ends while a caller waits, Once
// returns the cause of ctx.
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
