// Package postgres holds the sink that writes records into a table of PostgreSQL, exactly once,
// over several connections.
//
// Each connection is a lane. A batch is one transaction: its span rows, unique, then a look at the
// partition's mark and at the route's epoch, then the data by COPY (docs/formats/sql-tables.md). So
// a batch that comes a second time, over whichever connection, waits for the first one's end and is
// found in the ledger; and a transaction of a process that was fenced off commits nothing.
//
// The sink owns its connections and starts no pool. It never alters a table that exists, and never
// makes SQL of data.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Options of the sink.
type Options struct {
	URL string `yaml:"url" secret:"true" required:"true" doc:"postgres://user:password@host:port/database?sslmode=verify-full"`
	sqltable.Options
	Workers int `yaml:"workers" doc:"connections, each a lane, 1 to 100; default 4, fewer beside a server on this machine, in upsert 1"`
}

// DefaultOptions append over several connections, and keep fields that have no column in a JSON
// column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

// What PostgreSQL can hold (https://www.postgresql.org/docs/current/limits.html). A table that is
// made from records stays well below its limit of columns, and numbers below those of numeric.
var dialect = sqltable.Dialect{
	MaxName: 63, MaxColumns: 500, NoNUL: true, UTF8: true, NumberLimit: 16_000,
	Reserved: []string{"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}, TypeOf: typeOf,
	Standard: standard,
}

// Validate says which option is wrong.
func (o *Options) Validate() error {
	if _, err := sqlspan.Workers(o.Workers, o.Mode); err != nil {
		return err
	}
	if err := checkURL(o.URL); err != nil {
		return &stream.OptionError{Key: "url", Err: err}
	}
	return o.Options.Validate(&dialect, true)
}

// checkURL never shows the URL, which may hold a password.
func checkURL(text string) error {
	if text == "" {
		return errors.New("missing: the database, such as postgres://user@host:5432/database")
	}
	if !strings.Contains(text, "://") {
		if strings.Contains(text, "=") {
			return nil // keywords and values, which the driver reads
		}
		return errors.New("it is not a URL; write postgres://user@host:5432/database")
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("it is not a URL; write postgres://user@host:5432/database, and %40 for an @ in the password")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return fmt.Errorf("its scheme is %q; write postgres://", u.Scheme)
	}
	return nil
}

// Component is the sink's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "postgres",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

type connections = sqlspan.Connections[*conn]

// Sink writes into one table. It implements stream.Sink, Encoder and TransactionalSink.
type Sink struct {
	*connections
	o      Options
	host   stream.Host
	name   sqltable.Name
	config *pgx.ConnConfig
	fence  int64 // the lock that transactions share and Load has alone

	columnsText string // tableColumns; a test makes it slow
}

// New returns a sink that has touched nothing yet.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	name, err := sqltable.ParseName(o.Table, true)
	if err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h, name: name, columnsText: tableColumns}
	s.connections = sqlspan.NewConnections[*conn](h, server{s}, sqltable.NewShape(&dialect, &s.o.Options, name))
	return s, nil
}

// Open reads the URL and makes the lanes; Load is the first to connect.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) (err error) {
	if s.config, err = pgx.ParseConfig(s.o.URL); err != nil {
		return fmt.Errorf("sink postgres: url: %w", err)
	}
	s.Ledger.Open(o, s.o.Ledger, s.dialectOf)
	if _, set := s.config.RuntimeParams["application_name"]; !set {
		s.config.RuntimeParams["application_name"] = "penstock " + s.Ledger.Name
	}
	to := fmt.Sprintf("%s:%d/%s", s.config.Host, s.config.Port, s.config.Database)
	workers, err := sqlspan.Workers(s.o.Workers, s.o.Mode)
	if s.o.Workers == 0 && onThisMachine(s.config.Host) {
		workers = min(workers, max(leastBeside, runtime.GOMAXPROCS(0)))
	}
	s.connections.Open(o, "postgres", to, workers)
	return err
}

// leastBeside is how many connections there are by default to a server on this machine, however few
// its processors are: one copies while the other waits for its commit. More than processors only
// wait for each other at the end of the table, which costs the server a sixth more for each byte.
const leastBeside = 2

// onThisMachine says whether a host, or folder of a Unix socket, is this machine's own.
func onThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback() || host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@")
}
