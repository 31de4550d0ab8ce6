package table_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// fixture is a database fixture with its naming of tables.
type fixture struct {
	db  *sql.DB
	set func(o *table.Options)
}

func sqliteFixture(t *testing.T) fixture {
	db, path := openSQLite(t)
	execute(t, db, "CREATE TABLE other (id integer)")
	return fixture{db, func(o *table.Options) { o.SQLite = path }}
}

func postgresFixture(t *testing.T, server *connectortest.Server) fixture {
	db := openPostgres(t, server.URL)
	execute(t, db, "DROP SCHEMA public CASCADE")
	execute(t, db, "CREATE SCHEMA public")
	return fixture{db, func(o *table.Options) { o.Postgres = server.URL }}
}

// open opens a reader; marks are those of an earlier reader, or nil.
func (w fixture) open(t *testing.T, once bool, marks map[string]stream.Mark,
	set func(o *table.Options)) (stream.Reader, error) {
	t.Helper()
	s := newSource(t, connectortest.NewHost(t), func(o *table.Options) {
		w.set(o)
		o.Poll = 20 * time.Millisecond
		set(o)
	})
	r, err := s.Open(t.Context(), stream.OpenOptions{
		Route: "main", Once: once,
		Resume: func(id string) (stream.Mark, bool) { m, ok := marks[id]; return m, ok },
	})
	if err == nil {
		t.Cleanup(func() { r.Close() })
	}
	return r, err
}

// next reads one batch.
func next(t *testing.T, r stream.Reader) (texts []string, spans []stream.Span, err error) {
	t.Helper()
	return nextWithin(t, r, 10*time.Second)
}

func nextWithin(t *testing.T, r stream.Reader,
	limit time.Duration) (texts []string, spans []stream.Span, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	b := stream.NewBatch(stream.BatchLimits{Records: 3})
	err = r.Read(ctx, b)
	for i := range b.Records {
		texts = append(texts, string(b.Text(i)))
	}
	return texts, b.Spans, err
}

// settle sets marks to the state after spans were settled, and returns them.
func settle(marks map[string]stream.Mark, spans []stream.Span) map[string]stream.Mark {
	if marks == nil {
		marks = make(map[string]stream.Mark)
	}
	for _, s := range spans {
		marks[s.Part.ID] = stream.Mark{Part: *s.Part, Watermark: s.To}
	}
	return marks
}

// drain reads until io.EOF or an error, and returns the marks after everything is settled.
func drain(t *testing.T, r stream.Reader) (texts []string, marks map[string]stream.Mark,
	err error) {
	t.Helper()
	return drainFrom(t, r, nil)
}

func drainFrom(t *testing.T, r stream.Reader,
	marks map[string]stream.Mark) ([]string, map[string]stream.Mark, error) {
	t.Helper()
	var texts []string
	for {
		some, spans, err := next(t, r)
		texts, marks = append(texts, some...), settle(marks, spans)
		if errors.Is(err, io.EOF) {
			return texts, marks, nil
		}
		if err != nil {
			return texts, marks, err
		}
	}
}

func ofTable(name string, order ...string) func(o *table.Options) {
	return func(o *table.Options) { o.Table, o.OrderBy = name, order }
}

func ofQuery(query string, order ...string) func(o *table.Options) {
	return func(o *table.Options) { o.Query, o.OrderBy = query, order }
}

// refusals are cases in which opening a reader fails. want is the error message after the
// database's name.
var refusals = []struct {
	name, make string
	set        func(o *table.Options)
	want       string
	only       string // the databases, if not all
}{
	{"missing table", ``, ofTable("nosuch", "id"),
		`the table "nosuch" does not exist: it was dropped, or ` + "`table` is misspelled", ""},
	{"missing column", `CREATE TABLE t (id integer PRIMARY KEY, a text)`,
		ofTable("t", "id", "nosuch"),
		`the table "t" has no column "nosuch", which is in ` + "`order_by`; it has id, a", ""},
	{"nullable key", `CREATE TABLE t (id integer PRIMARY KEY, at text)`, ofTable("t", "at", "id"),
		`column "at" of the table "t", which ` +
			"is in `order_by`, may be NULL, and a row without a position would be missed; " +
			"make it NOT NULL, or order by another column", ""},
	{"key that is not unique", `CREATE TABLE t (id integer PRIMARY KEY, at text NOT NULL)`,
		ofTable("t", "at"),
		"the columns of `order_by` (at) are not unique together in the table \"t\": " +
			"rows with equal values would be missed; " +
			"add the columns of its primary key, or create a unique index", ""},
	{"unique for some rows only", `CREATE TABLE t (id integer NOT NULL); ` +
		`CREATE UNIQUE INDEX u ON t (id) WHERE id > 5`, ofTable("t", "id"),
		"the columns of `order_by` (id) are not unique together in the table \"t\"",
		"sqlite postgres"},
	{"no primary key", `CREATE TABLE t (id integer NOT NULL)`, ofTable("t"),
		`the table "t" has no primary key; set ` +
			"`order_by` to columns that are unique together", ""},
	{"view without an order", `CREATE TABLE t (id integer PRIMARY KEY); ` +
		`CREATE VIEW v AS SELECT * FROM t`, ofTable("v"),
		`the view "v" has no order, so a row's position could not be found ` +
			`again; set ` +
			"`order_by` to columns that are unique together", ""},
	{"time without a zone", `CREATE TABLE t (id integer PRIMARY KEY, at timestamp NOT NULL)`,
		ofTable("t", "at", "id"),
		`column "at" of the table "t" is timestamp without time zone, a time without a zone: ` +
			"one hour repeats when clocks are set back; order by a time with a zone, " +
			"or write `zone: UTC` if its times are UTC", "postgres"},
	{"time without a zone, by its name",
		`CREATE TABLE t (id integer PRIMARY KEY, at datetime NOT NULL)`, ofTable("t", "at", "id"),
		`column "at" of the table "t" is datetime, a time without a zone: ` +
			`one hour repeats when clocks are set back; ` +
			"order by a time with a zone, or write `zone: UTC` if its times are UTC",
		"sqlite mysql"},
	{"type without an order of bytes", `CREATE TABLE t (id integer PRIMARY KEY, at ` +
		`interval NOT NULL)`, ofTable("t", "at", "id"),
		`the table "t" cannot be ordered by column "at": its type is interval; ` +
			`order_by accepts numbers, text, bytea, uuid, date and timestamptz`,
		"postgres"},
	{"text, whose order is the server's",
		`CREATE TABLE t (id integer PRIMARY KEY, at varchar(20) NOT NULL)`,
		ofTable("t", "at", "id"),
		`the table "t" cannot be ordered by column "at": its type is varchar; ` +
			`order_by accepts whole numbers, decimal, date, timestamp, ` +
			`binary and varbinary (in a query also CAST(... AS BINARY)), because they have a ` +
			`byte order`, "mysql"},
	{"one name twice", ``, ofQuery("SELECT 1 AS a, 2 AS a", "a"),
		// SQLite renames one of them itself
		`the query "query" has two columns "a"; rename one with AS`, "postgres"},
	{"one name twice, as MySQL says it", ``, ofQuery("SELECT 1 AS a, 2 AS a", "a"),
		`reading the query "query": Error 1060 (42S21): Duplicate column name 'a'`, "mysql"},
	{"query of a column that is not there", `CREATE TABLE t (id integer PRIMARY KEY)`,
		ofQuery("SELECT id, nosuch FROM t", "id"),
		`the query "query": a column is missing: correct ` + "`order_by` or the query (", ""},
	{"primary key that SQLite lets be NULL", `CREATE TABLE t (id text PRIMARY KEY)`, ofTable("t"),
		`column "id" of the table "t", which`, "sqlite"},
	{"integer primary key that is not the rowid",
		`CREATE TABLE t (id INTEGER PRIMARY KEY DESC)`, ofTable("t"),
		`column "id" of the table "t", which`, "sqlite"},
}

func TestRefused(t *testing.T) { refused(t, "sqlite", sqliteFixture) }

func refused(t *testing.T, kind string, fresh func(t *testing.T) fixture) {
	for _, c := range refusals {
		if c.only != "" && !strings.Contains(c.only, kind) {
			continue
		}
		t.Run(kind+"/"+c.name, func(t *testing.T) {
			w := fresh(t)
			if c.make != "" {
				query := c.make
				if kind == "mysql" { // MySQL has no byte order for texts
					query = strings.Replace(query, "at text", "at date", 1)
				}
				execute(t, w.db, query)
			}
			_, err := w.open(t, true, nil, c.set)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v\nwant ... %s", err, c.want)
			}
		})
	}
}

// stops are tables at which a running reader must stop with an error. Some of them are changed
// after the first batch. Before the error, the reader hands out the given number of rows. A new
// reader then hands out the following rows, or returns an error.
var stops = []struct {
	name, make string
	set        func(o *table.Options)
	then       string // executed after the first batch of three rows
	rows       int    // rows handed out
	want       string
	rest       string // rows that a new reader hands out, or the beginning of its error
	only       string
}{
	{"two rows of one place", `CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2), (3), ` +
		`(4), (5), (5), (6)`,
		ofQuery("SELECT id FROM t", "id"), ``, 4,
		`two rows of the query "query" have the same position (id 5): the columns of ` +
			"`order_by` are not unique together; add one",
		`two rows of the query "query" have the same position (id 5)`, ""},
	{"duplicates on both sides of a page edge",
		`CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2), (3), (3), (4)`,
		ofQuery("SELECT id FROM t", "id"), ``, 2, `have the same position (id 3)`,
		`two rows of the query "query" have the same position (id 3)`, ""},
	{"no place", `CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (NULL), (2)`,
		ofQuery("SELECT id FROM t", "id"), ``, 0,
		`a row of the query "query" has no position, because a column of ` +
			"`order_by` (id) is NULL; " +
			"exclude such rows in a query, or order by other columns",
		`a row of the query "query" has no position`, ""},
	{"no place any more", `CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2), (3)`,
		ofQuery("SELECT id FROM t", "id"),
		`INSERT INTO t VALUES (NULL), (4)`, 3, `a row of the query "query" has no position`,
		`a row of the query "query" has no position`, ""},
	{"dropped table", `CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1), ` +
		`(2), (3), (4)`, ofTable("t"), `DROP TABLE t`, 3,
		`the table "t" was dropped while penstock read it; ` +
			`all rows that were read are delivered`,
		`the table "t" does not exist: it was dropped, or ` + "`table` is misspelled", ""},
	{"dropped view", `CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1), ` +
		`(2), (3), (4); CREATE VIEW v AS SELECT id FROM t`, ofTable("v", "id"), `DROP VIEW v`, 3,
		`the view "v" was dropped while penstock read it; ` +
			`all rows that were read are delivered`,
		`the table "v" does not exist: it was dropped, or ` + "`table` is misspelled", ""},
	{"lost column", `CREATE TABLE t (id integer PRIMARY KEY, a text); INSERT INTO t VALUES (1), ` +
		`(2), (3), (4)`, ofTable("t"),
		`ALTER TABLE t DROP COLUMN a`, 3,
		`the table "t" has lost its column "a" since penstock began to read it; ` +
			`everything before is delivered: restart penstock to continue with the new form`,
		`{"id":4}`, ""},
	{"new column", `CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1), ` +
		`(2), (3), (4)`, ofTable("t"),
		`ALTER TABLE t ADD COLUMN a text`, 3,
		`the table "t" has a new column "a" since penstock began to read it; ` +
			`everything before is delivered: restart penstock to continue with the new form`,
		`{"id":4,"a":null}`, ""},
	{"changed type", `CREATE TABLE t (id integer PRIMARY KEY, a integer); ` +
		`INSERT INTO t (id) VALUES (1), (2), (3), (4)`, ofTable("t"),
		`ALTER TABLE t ALTER COLUMN a TYPE bigint`, 3,
		`column "a" of the table "t" is bigint now, and was integer since penstock began`,
		`{"id":4,"a":null}`, "postgres"},
	{"changed type of the key",
		`CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)`,
		ofTable("t"), `ALTER TABLE t ALTER COLUMN id TYPE bigint; INSERT INTO t VALUES (4)`, 3,
		`column "id" of the table "t" is bigint now, and was integer since penstock began`,
		`{"id":4}`, "postgres"},
	{"changed type, as MySQL writes it",
		`CREATE TABLE t (id integer PRIMARY KEY, a integer); INSERT INTO t (id) VALUES (1), ` +
			`(2), (3), (4)`,
		ofTable("t"), `ALTER TABLE t MODIFY a bigint`, 3,
		`column "a" of the table "t" is bigint now, and was int since penstock began`,
		`{"id":4,"a":null}`, "mysql"},
	{"changed type, as SQLite can", `CREATE TABLE t (id integer PRIMARY KEY, a integer); ` +
		`INSERT INTO t (id) VALUES (1), (2), (3), (4)`,
		ofTable("t"), `ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a text`, 3,
		`column "a" of the table "t" is TEXT now, and was INTEGER since penstock began`,
		`{"id":4,"a":null}`, "sqlite"},
	{"other order of columns",
		`CREATE TABLE t (id integer PRIMARY KEY, a integer, b integer); ` +
			`INSERT INTO t (id) VALUES (1), (2), (3), (4)`, ofTable("t"),
		`ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a integer`, 3,
		`the order of the columns of the table "t" has changed since penstock began`,
		`{"id":4,"b":null,"a":null}`, ""},
	{"created again", `CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)`,
		ofTable("t"),
		`DROP TABLE t; CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)`, 3,
		`the table "t" was dropped and created again while penstock read it: ` +
			`positions in the old one are not valid in the new one`, "", "postgres"},
	{"query whose column is gone", `CREATE TABLE t (id integer PRIMARY KEY, a integer); ` +
		`INSERT INTO t (id) VALUES (1), (2), (3), (4)`,
		ofQuery("SELECT id, a FROM t", "id"), `ALTER TABLE t DROP COLUMN a`, 3,
		`the query "query": a column is missing: correct ` +
			"`order_by` or the query (", `the query "query": a column is missing`, ""},
}

func TestStopped(t *testing.T) { stopped(t, "sqlite", sqliteFixture) }

func stopped(t *testing.T, kind string, fresh func(t *testing.T) fixture) {
	for _, c := range stops {
		if c.only != "" && !strings.Contains(c.only, kind) {
			continue
		}
		t.Run(kind+"/"+c.name, func(t *testing.T) {
			if kind != "postgres" { // its fixtures share a database
				t.Parallel()
			}
			w := fresh(t)
			query := c.make
			if kind != "postgres" && strings.Contains(query, "a text") {
				query = strings.NewReplacer("(1)", "(1,'')", "(2)", "(2,'')", "(3)", "(3,'')",
					"(4)", "(4,'')").Replace(query)
			}
			execute(t, w.db, query)
			r, err := w.open(t, false, nil, c.set)
			if err != nil {
				t.Fatal(err)
			}
			texts, spans, err := next(t, r)
			if err == nil && c.then != "" {
				execute(t, w.db, c.then)
			}
			marks := settle(nil, spans)
			if err == nil {
				var more []string
				more, marks, err = drainFrom(t, r, marks)
				texts = append(texts, more...)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read: %v\nwant ... %s", err, c.want)
			}
			if len(texts) != c.rows {
				t.Errorf("%d rows were handed out, want %d: %v", len(texts), c.rows, texts)
			}
			r, err = w.open(t, true, marks, c.set)
			texts = nil
			if err == nil {
				texts, _, err = drain(t, r)
			}
			if rest := strings.Join(texts, " "); err == nil && rest != c.rest || err != nil &&
				(rest != "" || c.rest == "" || !strings.Contains(err.Error(), ": "+c.rest)) {
				t.Errorf("a new reader hands out %q, %v\nwant %s", rest, err, c.rest)
			}
		})
	}
}

// TestOtherOrder checks that a position stored with order_by (a, b) is not accepted with order_by
// (b, a).
func TestOtherOrder(t *testing.T) {
	w := sqliteFixture(t)
	execute(t, w.db, `CREATE TABLE t (a integer NOT NULL, b integer NOT NULL, PRIMARY KEY (a, `+
		`b)); INSERT INTO t VALUES (1, 2), (3, 4)`)
	r, err := w.open(t, true, nil, ofTable("t"))
	if err != nil {
		t.Fatal(err)
	}
	_, marks, err := drain(t, r)
	if err != nil || len(marks) != 1 {
		t.Fatal(marks, err)
	}
	_, err = w.open(t, true, marks, ofTable("t", "b", "a"))
	want := `the checkpoint has a position of the table "t" in another order than by (b, a), ` +
		`or with other column types; ` +
		"restore that order, or reset the position with `penstock checkpoint reset` and in the " +
		"sink's ledger"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Open: %v\nwant ... %s", err, want)
	}
}

// stateIn opens a directory of the test in the way the engine does for a route.
func stateIn(dir string) func() (vfs.Dir, error) {
	return func() (vfs.Dir, error) { return connectortest.FS().MakeDir(dir, 0o700) }
}
