// Package mysql implements the sink that writes records to a table of MySQL or MariaDB exactly
// once, over several connections.
//
// Each connection is a lane. A batch is one transaction (docs/formats/sql-tables.md). The
// transaction reads the epoch, a number that a new process raises to fence earlier processes, and
// locks it in shared mode. It inserts a row for each span of the batch into the ledger, where these
// rows are unique. It reads the marks, which are the stored watermarks of the partitions, and
// inserts the data. If a batch is delivered twice, the second transaction waits for the first one
// and then finds the batch in the ledger. Transactions of a fenced process cannot commit.
//
// The sink owns its connections and has no pool. It never alters an existing table. Identifiers are
// quoted, and values are encoded as literals, so neither can contain other SQL.
package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the sink.
type Options struct {
	URL string `yaml:"url" secret:"true" required:"true" doc:"user:password@tcp(host:port)/database?tls=true"`
	sqltable.Options
	Workers int `yaml:"workers" doc:"connections, each a worker, 1 to 100; default 4, 1 in upsert to keep the order"`
}

// DefaultOptions returns options for mode append, four connections, and a JSON column for fields
// without a column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

// dialect describes the limits of MySQL. A DECIMAL has at most 65 digits, of which at most 30 may
// follow the point. The sink therefore accepts numbers with at most 30 digits before and 30 digits
// after the point. InnoDB refuses to create a table if a row of short values could exceed half a
// page, and reserves up to 40 bytes for each text. MaxColumns stays below this limit.
var dialect = sqltable.Dialect{
	Schemas: true, MaxName: 64, MaxColumns: 190, FoldCase: true, UTF8: true, NumberLimit: 30,
	BoolIsByte: true, TypeOf: typeOf, Standard: standard, Declared: declared, Allows: allowsName,
}

// allowsName reports whether name can be the name of a column: it must not end with a space, and
// its characters must be in the Basic Multilingual Plane.
func allowsName(name string) bool {
	return !strings.HasSuffix(name, " ") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r > 0xFFFF })
}

// Validate returns an error for the first invalid option. It sets Workers if it is 0.
func (o *Options) Validate() error {
	var err error
	if o.Workers, err = sqlspan.Workers(o.Workers, o.Mode); err != nil {
		return err
	}
	if _, err := parse(o.URL); err != nil {
		return &stream.OptionError{Key: "url", Err: err}
	}
	return o.Options.Validate(&dialect)
}

// parse parses the address. Its errors omit the address, because it may contain a password.
func parse(text string) (*mysql.Config, error) {
	if text == "" {
		return nil, errors.New("missing: the database, " +
			"such as tcp(host:3306)/database, with user:password and an @ before it")
	}
	c, err := mysql.ParseDSN(text)
	if err != nil {
		return nil, errors.New("it is not an address; write tcp(host:3306)/database, " +
			"with user:password and an @ before it")
	}
	if c.DBName == "" {
		return nil, errors.New("it has no database; append it after the slash: " +
			"tcp(host:3306)/database")
	}
	return c, nil
}

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "mysql", DefaultOptions, New)
}

type connections = sqlspan.Connections[*connection]

// Sink writes to one table. It implements stream.Sink, Encoder and PartitionLedger.
type Sink struct {
	*connections
	o         Options
	name      sqltable.Name
	connector driver.Connector
	to        string // address and database, for names of lanes

	// otherIndex is true in mode upsert if the table has another unique index besides that over the
	// key. An index with a column that only the server fills (see index.automatic) does not count.
	// A new row can then have the same values in the other index as an existing row with another
	// key.
	otherIndex atomic.Bool
}

// New returns a sink. It does not connect.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{o: o}
	s.connections = sqlspan.NewConnections[*connection](h, server{s},
		sqltable.NewShape(&dialect, &s.o.Options))
	s.name = s.Shape.Name
	return s, nil
}

// session sets the modes on which the encoder depends: identifiers in double quotes, values in
// single quotes without escapes, UTF-8 and UTC. With these modes, the server also returns an error
// for a value that it would otherwise truncate, and for a division by zero (see insertSQL). It
// stores the value 0 in an AUTO_INCREMENT column, instead of the next number.
// innodb_lock_wait_timeout limits the wait for a lock to 5 s.
var session = map[string]string{
	"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4",
	"character_set_results": "utf8mb4",
	"sql_mode": "'STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES," +
		"NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO'",
	"time_zone":                "'+00:00'",
	"innodb_lock_wait_timeout": "5", "autocommit": "1",
}

// Values of wait_timeout, in seconds: the server ends a session that has been idle for this time.
const (
	deliveryIdle = "60"    // so that the locks of a vanished client are released
	auditIdle    = "86400" // an audit is idle while the source has no record for the table
)

// Open creates the lanes. It does not connect.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) error {
	if err := s.configure(o, deliveryIdle); err != nil {
		return err
	}
	s.connections.Open(o, "mysql", s.to, s.o.Workers)
	return nil
}

// configure prepares the settings of connections and sets the name of the ledger. idle is the
// wait_timeout of the sessions.
func (s *Sink) configure(o stream.SinkOptions, idle string) error {
	c, err := parse(s.o.URL)
	if err != nil {
		return fmt.Errorf("sink mysql: url: %w", err)
	}
	if c.Params == nil {
		c.Params = make(map[string]string)
	}
	maps.Copy(c.Params, session)
	c.Params["wait_timeout"] = idle
	c.InterpolateParams, c.ParseTime, c.MultiStatements, c.ClientFoundRows = true, false,
		false, false
	c.MaxAllowedPacket = 0 // that of the server
	c.Logger = log.New(io.Discard, "", 0)
	if s.connector, err = mysql.NewConnector(c); err != nil {
		return fmt.Errorf("sink mysql: url: %w", err)
	}
	s.Ledger.Open(o, s.o.Ledger, s.name.Table, s.dialectOf)
	s.to = c.Addr + "/" + c.DBName
	return nil
}
