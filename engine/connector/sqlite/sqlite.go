// Package sqlite implements the sink that writes records to a table of a SQLite file exactly once.
//
// The file has one ordered lane. One goroutine writes all ready batches in one transaction. In the
// same transaction it adds the spans of the batches to the ledger, which is in tables of the same
// file (docs/formats/sql-tables.md). A batch is reported as delivered only when it is durable: the
// file has a write-ahead log and synchronous = FULL. A batch that is delivered again after a crash
// is found in the ledger, and is not written again.
//
// The sink owns its connection. Other programs may read the file meanwhile, and write to it
// briefly. The sink never alters an existing table. Values are always arguments of a statement,
// never a part of its SQL text.
package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the sink.
type Options struct {
	Path string `yaml:"path" path:"true" alone:"true" required:"true" doc:"database file; created if missing (0600, directories 0700)"`
	sqltable.Options
}

// DefaultOptions returns options for mode append, and a JSON column for fields without a column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

// dialect describes the limits of the sink for tables in SQLite. They are lower than those of
// SQLite, which allows 2000 columns.
var dialect = sqltable.Dialect{MaxName: 1000, MaxColumns: 500, FoldCase: true, TypeOf: typeOf,
	Standard: standard, Declared: declared}

// Validate returns an error for the first invalid option.
func (o *Options) Validate() error {
	if o.Path == "" {
		return stream.OptionErrorf("path", "missing: the database file")
	}
	return o.Options.Validate(&dialect)
}

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "sqlite", DefaultOptions, New)
}

// inFlight is the maximum number of batches in flight to the file. It is large enough for batches
// to get ready while a transaction is written.
const inFlight = 32

var limits = stream.Limits{InFlight: inFlight, Ordered: true}

// Sink writes to one table. It implements stream.Sink, Encoder and PartitionLedger.
type Sink struct {
	*sqlspan.Ledger
	o      Options
	host   stream.Host
	name   sqltable.Name
	server *server
	file   *sqlspan.Lane[*connection]
	lane   *lane
	shape  *sqltable.Shape
}

// New returns a sink. Open opens the file.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h, Ledger: sqlspan.NewLedger(h)}
	s.shape = sqltable.NewShape(&dialect, &s.o.Options)
	s.name = s.shape.Name
	return s, nil
}

// Open opens or creates the file and creates missing tables of the ledger.
func (s *Sink) Open(ctx context.Context, o stream.SinkOptions) (err error) {
	s.Ledger.Open(o, s.o.Ledger, s.o.Table, s.dialectOf)
	if s.server, err = openFile(s.host.FS(), s.o.Path); err == nil {
		s.file = sqlspan.NewLane(sqlspan.Server[*connection](s.server))
		err = s.use(ctx, func(c *connection) error { return s.Ledger.Create(forever(), c) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("sink sqlite %q: %w", s.o.Path, err), s.Close())
	}
	s.lane = newLane(s)
	s.host.Go("sqlite fence", s.Ledger.Watch)
	s.host.Go("sqlite writer", s.lane.run)
	o.Lanes([]stream.Lane{{Name: s.o.Path, Worker: s.lane, Limits: limits}})
	return nil
}

// Encodes implements stream.Encoder. Encode is for every batch, changed or not.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. It appends nothing. It splits the batch, and infers the columns
// of the table from the first batch, so that the writer has less to do.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	s.shape.For(b)
	return nil, nil
}

// Close makes Deliver calls fail, and closes the file.
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
