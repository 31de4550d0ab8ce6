// Package mysql holds the sink that writes records into a table of MySQL or MariaDB, exactly once,
// over several connections.
//
// Each connection is a lane. A batch is one transaction: it reads the route's epoch, which it locks
// for sharing, stores its span rows, which are unique, looks at the partitions' marks, and inserts
// the data (docs/formats/sql-tables.md). So a batch that comes a second time, over whichever
// connection, waits for the first one's end and is found in the ledger; and a transaction of a
// process that was fenced off commits nothing.
//
// The sink owns its connections and starts no pool. It never alters a table that exists. Names come
// from the config, and values stand in SQL as literals that can hold nothing else.
package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Options of the sink.
type Options struct {
	URL string `yaml:"url" secret:"true" required:"true" doc:"user:password@tcp(host:port)/database?tls=true"`
	sqltable.Options
	Workers int `yaml:"workers" doc:"connections, each a lane, 1 to 100; default 4, in mode upsert 1, which keeps the order"`
}

// DefaultOptions append over four connections, and keep fields that have no column in a JSON
// column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

// What MySQL can hold. Its DECIMAL has 65 digits; 30 may stand behind the point, and so 30 are
// taken before it.
var dialect = sqltable.Dialect{
	MaxName: 64, MaxColumns: 500, FoldCase: true, UTF8: true, NumberLimit: 30, TypeOf: typeOf, Standard: standard,
}

// Validate says which option is wrong, and resolves workers.
func (o *Options) Validate() error {
	var err error
	if o.Workers, err = sqlspan.Workers(o.Workers, o.Mode); err != nil {
		return err
	}
	if _, err := parse(o.URL); err != nil {
		return &stream.OptionError{Key: "url", Err: err}
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

// Component is the sink's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "mysql",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

type connections = sqlspan.Connections[*connection]

// Sink writes into one table. It implements stream.Sink, Encoder and TransactionalSink.
type Sink struct {
	*connections
	o         Options
	name      sqltable.Name
	connector driver.Connector
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
	s := &Sink{o: o, name: name}
	s.connections = sqlspan.NewConnections[*connection](h, server{s}, sqltable.NewShape(&dialect, &s.o.Options, name))
	return s, nil
}

// session makes names stand in double quotes and values in single ones with nothing escaped, errors
// of what would be cut, times UTC, and a vanished client's locks go after a minute.
var session = map[string]string{
	"sql_mode": "'STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION'", "time_zone": "'+00:00'",
	"wait_timeout": "60", "innodb_lock_wait_timeout": "5", "autocommit": "1",
}

// Open makes the lanes; Load is the first to connect.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) error {
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
	s.Ledger.Open(o, s.o.Ledger, s.dialectOf)
	s.connections.Open(o, "mysql", c.Addr+"/"+c.DBName, s.o.Workers)
	return nil
}
