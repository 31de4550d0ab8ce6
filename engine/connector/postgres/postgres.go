// Package postgres implements the sink that writes records to a table of PostgreSQL exactly once,
// over several connections.
//
// Each connection that writes records is a lane. A batch is one transaction
// (docs/formats/sql-tables.md). The transaction inserts a row for each span of the batch into the
// ledger, where these rows are unique. It reads the marks, which are the stored watermarks of the
// partitions. It also reads the epoch, a number that a new process raises to fence earlier
// processes. It writes the data with COPY. If a batch is delivered twice, the second transaction
// waits for the first one and then finds the batch in the ledger. Transactions of a fenced process
// cannot commit.
//
// The sink owns its connections and has no pool. It never alters an existing table, and never puts
// values of records into SQL text.
package postgres

import (
	"cmp"
	"context"
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

// Options are the options of the sink.
type Options struct {
	URL string `yaml:"url" secret:"true" required:"true" doc:"postgres://user:password@host:port/database?sslmode=verify-full"`
	sqltable.Options
	Workers int `yaml:"workers" doc:"connections, each a worker, 1 to 100; default 4, maybe fewer for a local server, 1 in upsert"`
}

// DefaultOptions returns options for mode append, several connections, and a JSON column for fields
// without a column.
func DefaultOptions() *Options { return &Options{Options: sqltable.DefaultOptions()} }

// dialect describes limits of the sink for tables in PostgreSQL. No limit is higher than that of
// the server (https://www.postgresql.org/docs/current/limits.html).
var dialect = sqltable.Dialect{
	Schemas: true, MaxName: 63, MaxColumns: 500, NoNUL: true, UTF8: true, NumberLimit: 16_000,
	NotFinite: true, Reserved: []string{"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"},
	TypeOf: typeOf, Standard: standard, Declared: declared,
}

// Validate returns an error for the first invalid option.
func (o *Options) Validate() error {
	_, err := sqlspan.Workers(o.Workers, o.Mode)
	return cmp.Or(err, checkURL(o.URL), o.Options.Validate(&dialect))
}

// checkURL checks the URL. Its errors omit the URL, because it may contain a password.
func checkURL(text string) error {
	if text == "" {
		return stream.OptionErrorf("url", "missing: the database, such as "+
			"postgres://host:5432/database, with user:password and an @ before host")
	}
	if !strings.Contains(text, "://") {
		if strings.Contains(text, "=") {
			return nil // keywords and values: the driver parses them
		}
		return stream.OptionErrorf("url", "it is not a URL; write "+
			"postgres://host:5432/database, with user:password and an @ before host")
	}
	u, err := url.Parse(text)
	if err != nil {
		return stream.OptionErrorf("url", "it is not a URL; write "+
			"postgres://host:5432/database, with user:password and an @ before host, "+
			"and %%40 for an @ in the password")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return stream.OptionErrorf("url", "its scheme is %q; write postgres://", u.Scheme)
	}
	return nil
}

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "postgres", DefaultOptions, New)
}

type connections = sqlspan.Connections[*conn]

// Sink writes to one table. It implements stream.Sink, Encoder and PartitionLedger.
type Sink struct {
	*connections
	o      Options
	host   stream.Host
	name   sqltable.Name
	config *pgx.ConnConfig
	// fence is the key of the ledger's advisory lock. If one process owns the whole ledger, each
	// transaction that stores data holds the lock in shared mode. Load, which excludes earlier
	// processes, acquires it in exclusive mode.
	fence int64
	// partFence returns the key of a partition's advisory lock. If several processes own partitions
	// of the ledger, each transaction that stores data holds the locks of its partitions in shared
	// mode. Take acquires them in exclusive mode.
	partFence func(id string) int64

	columnsText string // tableColumns; a test replaces it to slow it down
	suspended   suspended
}

// New returns a sink. It does not connect; Load does.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h, columnsText: tableColumns,
		suspended: suspended{patience: patience}}
	s.connections = sqlspan.NewConnections[*conn](h, server{s},
		sqltable.NewShape(&dialect, &s.o.Options))
	s.name = s.Shape.Name
	return s, nil
}

// Open parses the URL and creates the lanes. It does not connect; Load does.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) (err error) {
	if err := s.configure(o); err != nil {
		return err
	}
	to := fmt.Sprintf("%s:%d/%s", s.config.Host, s.config.Port, s.config.Database)
	workers, err := sqlspan.Workers(s.o.Workers, s.o.Mode)
	if s.o.Workers == 0 && onThisMachine(s.config.Host) {
		workers = min(workers, max(leastBeside, runtime.GOMAXPROCS(0)))
	}
	s.connections.Open(o, "postgres", to, workers)
	return err
}

// configure parses the URL and sets the name of the ledger.
func (s *Sink) configure(o stream.SinkOptions) (err error) {
	if s.config, err = pgx.ParseConfig(s.o.URL); err != nil {
		return fmt.Errorf("sink postgres: url: %w", err)
	}
	s.config.RuntimeParams["client_encoding"] = "UTF8" // by default, that of the database
	s.Ledger.Open(o, s.o.Ledger, s.name.Table, s.dialectOf)
	if _, set := s.config.RuntimeParams["application_name"]; !set {
		s.config.RuntimeParams["application_name"] = "penstock " + s.Ledger.Name
	}
	return nil
}

// leastBeside applies to the default number of connections to a server on this machine. The default
// is at most the number of processors, because more connections would contend for the end of the
// table, which costs the server about a sixth more per byte. But it is at least leastBeside: one
// connection copies while the other one waits for its commit.
const leastBeside = 2

// onThisMachine reports whether a server is on this machine. host is its name, its IP address or
// the directory of its Unix socket.
func onThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback() || host == "localhost" ||
		strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@")
}
