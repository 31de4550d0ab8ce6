package table

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Options of a table source.
type Options struct {
	SQLite   string `yaml:"sqlite" path:"true" doc:"SQLite file, if the database is SQLite"`
	Postgres string `yaml:"postgres" secret:"true" doc:"PostgreSQL: postgres://user:password@host:port/database?sslmode=verify-full"`
	MySQL    string `yaml:"mysql" secret:"true" doc:"MySQL or MariaDB: user:password@tcp(host:port)/database"`

	Table   string   `yaml:"table" doc:"table or view, as schema.table if there are schemas; one of table, tables, query is required"`
	Tables  []string `yaml:"tables" doc:"list of tables or globs with a common order; new tables are found while running"`
	Query   string   `yaml:"query" doc:"SELECT to read from, in the order of order_by"`
	Name    string   `yaml:"name" doc:"name under which the progress of query is stored, also if its text changes; default query"`
	OrderBy []string `yaml:"order_by" doc:"columns that are together unique and never NULL; default: the primary key"`
	Zone    string   `yaml:"zone" doc:"UTC: times of order_by without a zone are UTC"`

	Poll       time.Duration  `yaml:"poll" doc:"maximum interval between polls at the end of the table; much shorter after new rows"`
	Lag        *time.Duration `yaml:"lag" doc:"how long a new row waits for rows with lower keys that commit later; default 0s, mysql 2s"`
	Rescan     int            `yaml:"rescan" doc:"number of last rows of a partition that are searched for late rows; 0: no search"`
	ReusedKeys string         `yaml:"reused_keys" enum:"stop,ignore" doc:"reaction if rows were deleted and other rows got their keys"`
	Notify     string         `yaml:"notify" doc:"postgres: NOTIFY channel that wakes the source"`

	Split       int64 `yaml:"split" doc:"number of values of order_by's first column, an integer, in each partition; 0: not divided"`
	Connections int   `yaml:"connections" doc:"tables and partitions read concurrently, each over its own connection"`
}

const (
	defaultRescan   = 10_000
	defaultLagMySQL = 2 * time.Second

	defaultConnections = 4
	maxConnections     = 64
)

// Source returns the table source as a component for the engine's registry.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "table", DefaultOptions, New)
}

// DefaultOptions returns the default options, without a database.
func DefaultOptions() *Options {
	return &Options{Poll: 5 * time.Second, Rescan: defaultRescan, Connections: defaultConnections,
		ReusedKeys: stopOnReuse}
}

// Validate returns an error for the first invalid option. It also sets the default of lag, which
// depends on the database.
func (o *Options) Validate() error {
	databases := min(1, len(o.SQLite)) + min(1, len(o.Postgres)) + min(1, len(o.MySQL))
	subjects := min(1, len(o.Table)) + min(1, len(o.Tables)) + min(1, len(o.Query))
	if o.Lag == nil {
		o.Lag = new(time.Duration)
		if o.MySQL != "" {
			*o.Lag = defaultLagMySQL
		}
	}
	switch {
	case databases != 1:
		return stream.OptionErrorf("", "selects %d databases; set one of sqlite: PATH, postgres: "+
			"URL or mysql: URL", databases)
	case subjects != 1:
		return stream.OptionErrorf("", "selects %d inputs; set one of table, tables or query",
			subjects)
	case o.Name != "" && o.Query == "":
		return stream.OptionErrorf("name", "needs a query; a table has its own name")
	case o.Query != "" && len(o.OrderBy) == 0:
		return stream.OptionErrorf("query", "has no order; set `order_by` to columns that are "+
			"unique together")
	case o.Zone != "" && !strings.EqualFold(o.Zone, "UTC"):
		return stream.OptionErrorf("zone", "is %q; it can be UTC or missing: convert other times "+
			"in a query", o.Zone)
	case o.Poll <= 0:
		return stream.OptionErrorf("poll", "is %v, want more than 0", o.Poll)
	case *o.Lag < 0:
		return stream.OptionErrorf("lag", "is %v, want 0 or more", *o.Lag)
	case o.Rescan < 0 || o.Rescan > maxRescan:
		return stream.OptionErrorf("rescan", "is %d, want 0 to %d", o.Rescan, maxRescan)
	case o.Notify != "" && o.Postgres == "":
		return stream.OptionErrorf("notify", "needs PostgreSQL; other databases are polled")
	case o.Connections < 1 || o.Connections > maxConnections:
		return stream.OptionErrorf("connections", "is %d, want 1 to %d", o.Connections,
			maxConnections)
	case o.Split < 0:
		return stream.OptionErrorf("split", "is %d, want more than 0; remove it for one partition",
			o.Split)
	}
	return o.validateNames()
}

func (o *Options) validateNames() error {
	for i, n := range o.OrderBy {
		if n == "" {
			return stream.OptionErrorf(fmt.Sprintf("order_by[%d]", i), "is empty; add a column")
		}
		if slices.Contains(o.OrderBy[:i], n) {
			return stream.OptionErrorf(fmt.Sprintf("order_by[%d]", i), "%q is given twice", n)
		}
	}
	for i, t := range o.Tables {
		if _, err := path.Match(t, ""); err != nil || t == "" {
			return stream.OptionErrorf(fmt.Sprintf("tables[%d]", i), "%q is neither a name nor a "+
				"glob; check its brackets", t)
		}
	}
	if o.Postgres != "" {
		if err := checkURL(o.Postgres); err != nil {
			return &stream.OptionError{Key: "postgres", Err: err}
		}
	}
	return nil
}

// checkURL returns an error for a text that does not have the form of a PostgreSQL URL or of
// keywords and values. The error does not contain the text, which may contain a password.
func checkURL(text string) error {
	if strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") {
		return nil
	}
	if !strings.Contains(text, "://") && strings.Contains(text, "=") {
		return nil // keywords and values, which the driver parses
	}
	return errors.New("it is not a URL of PostgreSQL; write postgres://host:5432/database, " +
		"with user:password and an @ before host")
}

// Shape implements stream.Shaper. The fields are the columns of the tables, which are known only
// when the tables are opened.
func (o *Options) Shape(stream.Schema) (stream.Schema, error) {
	return stream.Schema{Open: true, OnError: "dead_letter"}, nil
}

// ReadsObjects implements stream.ObjectOptions. The text of a record is its row.
func (*Options) ReadsObjects() bool { return true }

// subjects returns the tables and queries in the options. A table that is matched only by a glob is
// not among them.
func (o *Options) subjects() []subject {
	switch {
	case o.Query != "":
		name := cmp.Or(o.Name, "query")
		return []subject{{name: name, query: strings.TrimRight(strings.TrimSpace(o.Query),
			"; \t\r\n")}}
	case o.Table != "":
		return []subject{{name: o.Table}}
	}
	var out []subject
	for _, t := range o.Tables {
		if !isGlob(t) {
			out = append(out, subject{name: t})
		}
	}
	return out
}

func isGlob(name string) bool { return strings.ContainsAny(name, `*?[`) }

// grows reports whether new partitions may appear while the source runs: new stripes of a table
// (ranges of the first order_by column, with the option split), or new tables that match a glob.
func (o *Options) grows() bool { return o.Split > 0 || slices.ContainsFunc(o.Tables, isGlob) }

// matches reports whether the option tables selects a table. A glob may match the name with or
// without its quotes.
func (o *Options) matches(name string) bool {
	plain := name
	if n, err := sqltable.ParseName(name, o.SQLite == ""); err == nil && n.Schema != "" {
		plain = n.Schema + "." + n.Table
	} else if err == nil {
		plain = n.Table
	}
	return slices.ContainsFunc(o.Tables, func(t string) bool {
		asWritten, err := path.Match(t, name)
		unquoted, _ := path.Match(t, plain)
		return err == nil && (asWritten || unquoted)
	})
}

// optionName returns the name of a table as the option table expects it: in quotes if the name has
// a dot, which would separate it from a schema, or begins with a quote.
func optionName(name string) string {
	if strings.Contains(name, ".") || strings.HasPrefix(name, `"`) {
		return sqltable.Quote(name)
	}
	return name
}
