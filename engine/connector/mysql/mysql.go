// Package mysql holds the sink that writes records into a table of MySQL or MariaDB, exactly once, over several connections.
//
// Each connection is a lane. A batch is one transaction: it reads the route's epoch, which it locks for sharing, stores its span
// rows, which are unique, looks at the partitions' marks, and inserts the data (docs/formats/sql-tables.md). So a batch
// that comes a second time, over whichever connection, waits for the first one's end and is found in the ledger; and a
// transaction of a process that was fenced off commits nothing.
//
// The sink owns its connections and starts no pool. It never alters a table that exists. Names come from the config, and values
// stand in SQL as literals that can hold nothing else.
package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/flow"
)

// Options of the sink.
type Options struct {
	URL string `yaml:"url" secret:"true" required:"true" doc:"user:password@tcp(host:port)/database?tls=true"`
	sqltable.Options
	Workers int `yaml:"workers" doc:"connections, each a lane, 1 to 100; default 4, in mode upsert 1, which keeps the order"`
}

// DefaultOptions append over four connections, and keep fields that have no column in a JSON column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

const (
	defaultWorkers = 4
	maxWorkers     = 100
)

// What MySQL can hold. Its DECIMAL has 65 digits; 30 may stand behind the point, and so 30 are taken before it.
var dialect = sqltable.Dialect{
	MaxName: 64, MaxColumns: 500, FoldCase: true, UTF8: true, NumberLimit: 30, TypeOf: typeOf, Standard: standard,
}

// Validate says which option is wrong, and resolves workers.
func (o *Options) Validate() error {
	if o.Workers == 0 && o.Mode == sqltable.Upsert {
		o.Workers = 1
	} else if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.Workers < 1 || o.Workers > maxWorkers {
		return &penstock.OptionError{Key: "workers", Err: fmt.Errorf("is %d; it may be 1 to %d", o.Workers, maxWorkers)}
	}
	if _, err := parse(o.URL); err != nil {
		return &penstock.OptionError{Key: "url", Err: err}
	}
	return o.Options.Validate(&dialect, true)
}

// parse reads the address. Its errors never show it: it may hold a password.
func parse(text string) (*mysql.Config, error) {
	if text == "" {
		return nil, errors.New("missing: the database, such as user:password@tcp(host:3306)/database")
	}
	c, err := mysql.ParseDSN(text)
	if err != nil {
		return nil, errors.New("it is not an address; write user:password@tcp(host:3306)/database")
	}
	if c.DBName == "" {
		return nil, errors.New("it names no database; write it behind the slash: user:password@tcp(host:3306)/database")
	}
	return c, nil
}

// PreferredBatch implements penstock.Preferred: a transaction's cost is that of one fsync.
func (o *Options) PreferredBatch() penstock.Limits {
	return penstock.Limits{Bytes: 4 << 20, Records: 10_000}
}

// Component is the sink's line in the list of components.
func Component() penstock.Component {
	return penstock.Component{
		Role:    penstock.SinkRole,
		Name:    "mysql",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h penstock.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// Sink writes into one table. It implements penstock.Sink, Encoder and Ledgered.
type Sink struct {
	o         Options
	host      penstock.Host
	name      sqltable.Name
	shape     *sqltable.Shape
	connector driver.Connector
	ledger    string
	once      bool

	epoch  atomic.Int64  // taken by Load; 0: not loaded
	exists atomic.Bool   // the table is there
	making chan struct{} // who holds its token may make it
	lost   chan error    // takes one: why the route has to end

	books *lane   // the ledger's own connection
	lanes []*lane // one for each worker
}

// New returns a sink that has touched nothing yet.
func New(o Options, h penstock.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	name, err := sqltable.ParseName(o.Table, true)
	if err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h, name: name, lost: make(chan error, 1), making: make(chan struct{}, 1)}
	s.shape = sqltable.NewShape(&dialect, &s.o.Options, name)
	return s, nil
}

// session makes names stand in double quotes and values in single ones with nothing escaped, errors of what would be cut, times
// UTC, and a vanished client's locks go after a minute.
var session = map[string]string{
	"sql_mode": "'STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION'", "time_zone": "'+00:00'",
	"wait_timeout": "60", "innodb_lock_wait_timeout": "5", "autocommit": "1",
}

// Open makes the lanes; Load is the first to connect.
func (s *Sink) Open(_ context.Context, o penstock.SinkOptions) error {
	c, err := parse(s.o.URL)
	if err != nil {
		return fmt.Errorf("sink mysql: url: %w", err)
	}
	if c.Params == nil {
		c.Params = make(map[string]string)
	}
	for k, v := range session {
		c.Params[k] = v
	}
	c.InterpolateParams, c.ParseTime, c.MultiStatements, c.ClientFoundRows = true, false, false, false
	c.Logger = log.New(io.Discard, "", 0)
	if s.connector, err = mysql.NewConnector(c); err != nil {
		return fmt.Errorf("sink mysql: url: %w", err)
	}
	s.once = o.Once
	s.ledger = o.Pipeline + "/" + o.Route
	if s.o.Ledger != "" {
		s.ledger = s.o.Ledger
	}
	s.books = newLane(s)
	lanes := make([]penstock.Lane, s.o.Workers)
	for i := range lanes {
		l := newLane(s)
		s.lanes = append(s.lanes, l)
		lanes[i] = penstock.Lane{
			Name: fmt.Sprintf("%s/%s #%d", c.Addr, c.DBName, i+1), Worker: l,
			// one at a time is in the order of places: a single connection keeps the order of a partition
			Limits: flow.Limits{InFlight: 1, Ordered: len(lanes) == 1},
		}
	}
	s.host.Go("mysql fence", s.watch)
	o.Lanes(lanes)
	return nil
}

// watch ends the route when another process has taken its ledger over.
func (s *Sink) watch(ctx context.Context) error {
	select {
	case err := <-s.lost:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Encode implements penstock.Encoder: the rows as INSERT statements. A batch of which a record is refused has none: Deliver looks
// at it again and says which.
func (s *Sink) Encode(dst []byte, b *penstock.Batch) ([]byte, error) {
	b.Split()
	var e encoder
	dst, refusals := e.append(dst, s, b)
	if len(refusals) > 0 {
		return nil, nil
	}
	return dst, nil
}

// Close frees the connections.
func (s *Sink) Close() error {
	for _, l := range append(s.lanes, s.books) {
		if l != nil {
			l.close()
		}
	}
	s.lanes, s.books = nil, nil
	return nil
}
