package table

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Options of a table source.
type Options struct {
	SQLite   string `yaml:"sqlite" path:"true" doc:"a SQLite file; or"`
	Postgres string `yaml:"postgres" secret:"true" doc:"postgres://user:password@host:port/database?sslmode=verify-full; or"`
	MySQL    string `yaml:"mysql" secret:"true" doc:"user:password@tcp(host:port)/database, MySQL or MariaDB"`

	Table   string   `yaml:"table" doc:"the table or view to read, schema.table where the database has schemas; or"`
	Tables  []string `yaml:"tables" doc:"several, also globs, with one order: new ones are found while it runs; or"`
	Query   string   `yaml:"query" doc:"a SELECT, whose rows are read in the order of order_by"`
	Name    string   `yaml:"name" doc:"of a query: names its partition, which keeps its place when the text changes; default query"`
	OrderBy []string `yaml:"order_by" doc:"columns that are unique together and never NULL; default: the primary key"`
	Zone    string   `yaml:"zone" doc:"UTC: the times of order_by that have no zone are UTC"`

	Poll       time.Duration `yaml:"poll" doc:"how soon the end is looked at again at the latest; after something new much sooner"`
	Lag        time.Duration `yaml:"lag" doc:"rows count as settled in their places when seen for so long; default of mysql: 2s"`
	Rescan     int           `yaml:"rescan" doc:"how many of the last rows are looked through for ones that came late; 0: none"`
	ReusedKeys string        `yaml:"reused_keys" enum:"stop,ignore" doc:"of rows replaced by others under their keys"`
	Notify     string        `yaml:"notify" doc:"postgres: a channel of NOTIFY that wakes the source"`

	Split       int64 `yaml:"split" doc:"partitions of so many values of order_by's first column, a whole number, each; 0: one"`
	Connections int   `yaml:"connections" doc:"how many tables and partitions are read at a time, each over a connection of its own"`
}

const (
	defaultRescan   = 10_000
	defaultLagMySQL = 2 * time.Second

	defaultConnections = 4
	maxConnections     = 64
)

// Source is the component table.
func Source() stream.Component {
	return stream.Component{
		Role:    stream.SourceRole,
		Name:    "table",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// DefaultOptions name no database yet.
func DefaultOptions() *Options {
	return &Options{Poll: 5 * time.Second, Rescan: defaultRescan, Connections: defaultConnections, ReusedKeys: stopOnReuse}
}

// Validate says which option is wrong, and resolves lag.
func (o *Options) Validate() error {
	wrong := func(key, format string, args ...any) error {
		return &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	databases, subjects := 0, 0
	for _, s := range []string{o.SQLite, o.Postgres, o.MySQL} {
		databases += min(1, len(s))
	}
	for _, set := range []bool{o.Table != "", len(o.Tables) > 0, o.Query != ""} {
		if set {
			subjects++
		}
	}
	if o.Lag == 0 && o.MySQL != "" {
		o.Lag = defaultLagMySQL
	}
	switch {
	case databases != 1:
		return wrong("", "names %d databases; name one by sqlite: PATH, postgres: URL or mysql: URL", databases)
	case subjects != 1:
		return wrong("", "names %d things to read; name one by table, tables or query", subjects)
	case o.Name != "" && o.Query == "":
		return wrong("name", "names a query, and there is none; a table has its own name")
	case o.Query != "" && len(o.OrderBy) == 0:
		return wrong("query", "has no order of its own; name in `order_by` columns that tell its rows apart")
	case o.Zone != "" && !strings.EqualFold(o.Zone, "UTC"):
		return wrong("zone", "is %q; it can be UTC, or be left out: convert other times in a query, where their order is plain", o.Zone)
	case o.Poll <= 0:
		return wrong("poll", "is %v, want more than 0", o.Poll)
	case o.Lag < 0:
		return wrong("lag", "is %v, want 0 or more", o.Lag)
	case o.Rescan < 0 || o.Rescan > maxRescan:
		return wrong("rescan", "is %d, want 0 to %d", o.Rescan, maxRescan)
	case o.Notify != "" && o.Postgres == "":
		return wrong("notify", "is a thing of PostgreSQL; other databases are polled")
	case o.Connections < 1 || o.Connections > maxConnections:
		return wrong("connections", "is %d, want 1 to %d", o.Connections, maxConnections)
	case o.Split < 0:
		return wrong("split", "is %d, want more than 0, or nothing for one partition", o.Split)
	}
	return o.validateNames(wrong)
}

func (o *Options) validateNames(wrong func(key, format string, args ...any) error) error {
	for i, n := range o.OrderBy {
		if n == "" {
			return wrong(fmt.Sprintf("order_by[%d]", i), "is empty; name a column")
		}
		for _, before := range o.OrderBy[:i] {
			if before == n {
				return wrong(fmt.Sprintf("order_by[%d]", i), "%q stands twice", n)
			}
		}
	}
	for i, t := range o.Tables {
		if _, err := path.Match(t, ""); err != nil || t == "" {
			return wrong(fmt.Sprintf("tables[%d]", i), "%q is neither a name nor a glob; brackets must close, and it may not be empty", t)
		}
	}
	if o.Postgres != "" {
		if err := checkURL(o.Postgres); err != nil {
			return &stream.OptionError{Key: "postgres", Err: err}
		}
	}
	return nil
}

// checkURL never shows the URL, which may hold a password.
func checkURL(text string) error {
	if strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") {
		return nil
	}
	if !strings.Contains(text, "://") && strings.Contains(text, "=") {
		return nil // keywords and values, which the driver reads
	}
	return errors.New("it is not a URL of PostgreSQL; write postgres://user@host:5432/database")
}

// Shape implements stream.Shaper: records have the table's columns as fields, which are known when
// it is opened.
func (o *Options) Shape(stream.Schema) (stream.Schema, error) {
	return stream.Schema{Open: true, OnError: "dead_letter"}, nil
}

// subjects are what is read, but for the tables that a glob names.
func (o *Options) subjects() []subject {
	switch {
	case o.Query != "":
		name := o.Name
		if name == "" {
			name = "query"
		}
		return []subject{{name: name, query: strings.TrimRight(strings.TrimSpace(o.Query), "; \t\r\n")}}
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

// grows says whether there may be partitions later that were not there at the start.
func (o *Options) grows() bool { return o.Split > 0 || slices.ContainsFunc(o.Tables, isGlob) }

// matches says whether `tables` names a table.
func (o *Options) matches(name string) bool {
	for _, t := range o.Tables {
		if ok, err := path.Match(t, name); err == nil && ok {
			return true
		}
	}
	return false
}
