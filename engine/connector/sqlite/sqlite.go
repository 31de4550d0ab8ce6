// Package sqlite holds the sink that writes records into a table of a SQLite file, exactly once.
//
// The file has one lane, which is ordered. One goroutine takes what is ready and writes it in one
// transaction, each batch with its span rows (docs/formats/sql-tables.md), durable before it is
// answered: write-ahead log, synchronous = FULL. So a batch that comes a second time, after a crash
// or a lost answer, is found in the ledger and not written again.
//
// The sink owns its connection; other programs may read the file, and write to it for moments,
// meanwhile. It never alters a table that exists, and never makes SQL of data.
package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Options of the sink.
type Options struct {
	Path string `yaml:"path" path:"true" alone:"true" required:"true" doc:"the database; made where missing (0600, folders 0700)"`
	sqltable.Options
}

// DefaultOptions append, and keep fields that have no column in a JSON column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

// What SQLite can hold. Its limit of columns is 2000; a table that is made from records stays well
// below.
var dialect = sqltable.Dialect{MaxName: 1000, MaxColumns: 500, FoldCase: true, TypeOf: typeOf, Standard: standard}

// Validate says which option is wrong.
func (o *Options) Validate() error {
	if o.Path == "" {
		return &stream.OptionError{Key: "path", Err: errors.New("missing: the database file")}
	}
	return o.Options.Validate(&dialect, false)
}

// Component is the sink's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "sqlite",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// inFlight is how many batches may be in hand at once: enough that while one transaction is written
// the next is at hand.
const inFlight = 32

var limits = stream.Limits{InFlight: inFlight, Ordered: true}

// Sink writes into one table. It implements stream.Sink, Encoder and TransactionalSink.
type Sink struct {
	o      Options
	host   stream.Host
	name   sqltable.Name
	ledger *sqlspan.Ledger
	server *server
	file   *sqlspan.Lane[*connection]
	lane   *lane
	shape  *sqltable.Shape
}

// New returns a sink that has touched nothing yet.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	name, err := sqltable.ParseName(o.Table, false)
	if err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h, name: name, ledger: sqlspan.NewLedger(h)}
	s.shape = sqltable.NewShape(&dialect, &s.o.Options, name)
	return s, nil
}

// Open opens the file, or makes it, and the tables of the ledger.
func (s *Sink) Open(ctx context.Context, o stream.SinkOptions) (err error) {
	s.ledger.Open(o, s.o.Ledger, s.dialectOf)
	if s.server, err = openFile(s.host.FS(), s.o.Path); err == nil {
		s.file = sqlspan.NewLane(sqlspan.Server[*connection](s.server))
		err = s.use(ctx, func(c *connection) error { return s.ledger.Create(forever(), c) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("sink sqlite %q: %w", s.o.Path, err), s.Close())
	}
	s.lane = newLane(s)
	s.host.Go("sqlite writer", s.lane.run)
	o.Lanes([]stream.Lane{{Name: s.o.Path, Worker: s.lane, Limits: limits}})
	return nil
}

// Encodes implements stream.Encoder.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder: it finds the batch's records, and from the first batch the
// table's columns, where the writer would have to do it. It writes nothing.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	s.shape.For(b)
	return nil, nil
}

// Close frees the file.
func (s *Sink) Close() error {
	if s.lane != nil {
		s.lane.end(sqlspan.ErrStopped)
	}
	if s.file == nil {
		return nil
	}
	s.file.Close()
	s.lane, s.file = nil, nil
	return s.server.closed
}
