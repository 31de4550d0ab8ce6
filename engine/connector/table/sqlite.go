package table

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// sqliteFile reads a SQLite file. No statement stays open between two calls, because an open
// statement would block writers.
type sqliteFile struct {
	polled
	path string
	conn sqldriver.Conn // nil if not connected
	file os.FileInfo    // identifies the open file
}

// busyWait is the maximum wait of a statement for another program's transaction, in milliseconds.
const busyWait = 10_000

func newSQLite(path string) (database, error) { return &sqliteFile{path: path}, nil }

func (d *sqliteFile) close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}

func (d *sqliteFile) open() error {
	full, err := filepath.Abs(d.path)
	if err != nil {
		return err
	}
	file, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the file does not exist; correct `sqlite`: %w", err)
	case err != nil:
		return err
	case d.conn != nil && os.SameFile(file, d.file):
		return nil
	}
	if err := d.close(); err != nil { // the file was replaced
		return err
	}
	d.file = file
	at := (&url.URL{Path: filepath.ToSlash(full)}).EscapedPath()
	opened, err := new(sqlite.Driver).Open(
		fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=query_only(1)", at, busyWait))
	if err != nil {
		return fmt.Errorf("opening the file: %w", err)
	}
	d.conn, err = sqldriver.Direct(opened)
	return err
}

// query runs a statement and calls the function row for each row, until the function returns false.
// The values are valid until the next call.
func (d *sqliteFile) query(ctx context.Context, row func(v []driver.Value) (bool, error),
	sql string, args ...driver.Value) (err error) {
	if err := d.open(); err != nil {
		return err
	}
	return sqldriver.Query(ctx, d.conn, nil, row, sql, args...)
}

func (d *sqliteFile) transient(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains([]int{codes.SQLITE_BUSY, codes.SQLITE_LOCKED,
		codes.SQLITE_INTERRUPT, codes.SQLITE_NOMEM, codes.SQLITE_PROTOCOL}, e.Code()&0xFF)
}

// explained returns an error of a statement that reads r, with a remedy added. SQLite has a single
// error code for all mistakes in a statement.
func (d *sqliteFile) explained(err error, r *relation) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || d.transient(err) {
		return err
	}
	return r.readError(err, strings.Contains(e.Error(), "no such table"),
		strings.Contains(e.Error(), "no such column"))
}

func (d *sqliteFile) list(ctx context.Context) (names []string, err error) {
	err = d.query(ctx, sequence(func(v []driver.Value) {
		name := sqldriver.Text(v[0])
		if strings.HasPrefix(name, `"`) {
			name = sqltable.Quote(name)
		}
		names = append(names, name)
	}), `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE `+
		`'sqlite\_%' ESCAPE '\' ORDER BY name`)
	return names, err
}

// describe implements database.
func (d *sqliteFile) describe(ctx context.Context, s subject) (*relation, error) {
	r := &relation{name: s.String(), from: "(" + s.query + "\n)"}
	if s.query != "" {
		return r, d.describeQuery(ctx, r)
	}
	parsed, err := sqltable.ParseName(s.name, false)
	if err != nil {
		return nil, err
	}
	name := parsed.Table
	r.from, r.plain = sqltable.Quote(name), name
	kind, makes := "", ""
	err = d.query(ctx, sequence(func(v []driver.Value) {
		kind, makes = sqldriver.Text(v[0]), sqldriver.Text(v[1])
	}), `SELECT type, sql FROM sqlite_schema WHERE name = ? AND type IN ('table', 'view')`, name)
	switch {
	case err != nil:
		return nil, err
	case kind == "":
		return nil, r.notFound()
	case kind == "view":
		r.name = strings.Replace(r.name, "the table", "the view", 1)
	}
	r.table = kind == "table"
	var primary []string
	err = d.query(ctx, sequence(func(v []driver.Value) {
		column := sqldriver.Text(v[0])
		nullable := sqldriver.Text(v[2]) == "0"
		r.columns = append(r.columns, describeSQLite(column, sqldriver.Text(v[1]), nullable))
		if place, _ := v[3].(int64); place > 0 {
			for len(primary) < int(place) {
				primary = append(primary, "")
			}
			primary[place-1] = column
		}
	}), `SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1`, name)
	if err != nil || !r.table {
		return r, err
	}
	r.version = makes
	if err := d.constraints(ctx, r, name, primary); err != nil {
		return nil, err
	}
	if err := d.collations(ctx, r); err != nil {
		return nil, err
	}
	r.reuse = sqliteReuse(r, makes)
	return r, nil
}

// constraints determines which columns are unique. A single column INTEGER PRIMARY KEY is the
// rowid, which is never NULL. The columns of any other primary key may be NULL in SQLite, unless
// the table is WITHOUT ROWID. INTEGER PRIMARY KEY DESC is not the rowid: it has an index of its own.
func (d *sqliteFile) constraints(ctx context.Context, r *relation, name string,
	primary []string) error {
	at := func(n string) *column { return &r.columns[indexOf(r.columns, n)] }
	if r.primary = len(primary) > 0; r.primary {
		r.unique = append(r.unique, primary)
	}
	isRowid := len(primary) == 1 && strings.EqualFold(at(primary[0]).decl, "INTEGER")
	err := d.query(ctx, sequence(func([]driver.Value) { isRowid = false }),
		"SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", name)
	if err != nil {
		return err
	}
	if isRowid {
		at(primary[0]).nullable = false
	}
	withoutNumbers := false
	err = d.query(ctx, sequence(func(v []driver.Value) {
		withoutNumbers = sqldriver.Text(v[0]) == "1"
	}), "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", name)
	if err != nil {
		return err
	}
	if withoutNumbers {
		for _, n := range primary {
			at(n).nullable = false
		}
	}
	add := r.uniqueSets()
	err = d.query(ctx, sequence(func(v []driver.Value) {
		column := sqldriver.Text(v[1]) // "" for an expression
		if column != "" && sqldriver.Text(v[2]) != "BINARY" {
			at(column).collate = " COLLATE BINARY"
		}
		add(sqldriver.Text(v[0]), column, false)
	}), `SELECT l.name, i.name, i.coll FROM pragma_index_list(?) l, pragma_index_xinfo(l.name) i
		WHERE l."unique" = 1 AND l.partial = 0 AND i.key = 1 ORDER BY 1, i.seqno`, name)
	r.unique = slices.DeleteFunc(r.unique,
		func(set []string) bool { return slices.Contains(set, "") })
	return err
}

// collations sets the collation of columns that do not compare texts byte by byte. SQLite reports
// the collations of indexes, but not those of columns. So the query compares texts that differ by
// case or by a space at the end: a UNION uses the collation of its first SELECT.
func (d *sqliteFile) collations(ctx context.Context, r *relation) error {
	if !strings.Contains(strings.ToUpper(r.version), "COLLATE") {
		return nil
	}
	for i := range r.columns {
		c := &r.columns[i]
		err := d.query(ctx, sequence(func(v []driver.Value) {
			if different, _ := v[0].(int64); different < 3 {
				c.collate = " COLLATE BINARY"
			}
		}), "SELECT count(*) FROM (SELECT "+sqltable.Quote(c.name)+" FROM "+r.from+
			" WHERE 0 UNION SELECT 'a' UNION SELECT 'A' UNION SELECT 'a ')")
		if _, ok := errors.AsType[*sqlite.Error](err); ok && !d.transient(err) {
			c.collate, err = " COLLATE BINARY", nil // a collation of another program
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sqliteReuse returns the reason why SQLite may generate a key again, if one of the columns is the
// rowid. Without AUTOINCREMENT, a new row gets the greatest existing number plus one. Example: rows
// 1 to 5 exist. If row 5 is deleted, the next new row gets number 5 again.
func sqliteReuse(r *relation, makes string) reuse {
	if !r.primary || len(r.unique[0]) != 1 ||
		strings.Contains(strings.ToUpper(makes), "AUTOINCREMENT") {
		return reuse{}
	}
	i := indexOf(r.columns, r.unique[0][0])
	if !strings.EqualFold(r.columns[i].decl, "INTEGER") ||
		strings.Contains(strings.ToUpper(makes), "WITHOUT ROWID") {
		return reuse{}
	}
	return reuse{r.columns[i].name, "it is an INTEGER PRIMARY KEY without AUTOINCREMENT",
		"declare it AUTOINCREMENT if rows are deleted"}
}

// lastGiven implements database.
func (d *sqliteFile) lastGiven(ctx context.Context, r *relation) (n int64, known bool, err error) {
	if !strings.Contains(strings.ToUpper(r.version), "AUTOINCREMENT") {
		return 0, false, nil
	}
	err = d.query(ctx, sequence(func(v []driver.Value) { n, known = v[0].(int64) }),
		"SELECT seq FROM sqlite_sequence WHERE name = ?", r.plain)
	return n, known, err
}

func (d *sqliteFile) describeQuery(ctx context.Context, r *relation) error {
	if err := d.open(); err != nil {
		return err
	}
	rows, err := d.conn.QueryContext(ctx, "SELECT * FROM "+r.from+" AS q LIMIT 0", nil)
	if err != nil {
		return d.explained(err, r)
	}
	for _, n := range rows.Columns() {
		r.columns = append(r.columns, describeSQLite(n, "", true))
	}
	return errors.Join(r.distinct(r.columns), rows.Close())
}

// describeSQLite describes a column by its declared type, as in https://sqlite.org/datatype3.html,
// section 3.1. Every column can be a key, because SQLite defines an order for all values.
func describeSQLite(name, decl string, nullable bool) column {
	c := column{name: name, decl: decl, key: keyAny, nullable: nullable}
	d := strings.ToUpper(decl)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(d, w) })
	}
	switch {
	case d == "":
	case has("BOOL"):
		c.kind, c.standard = boolValue, "boolean"
	case has("JSON"):
		c.kind, c.standard = textValue, "text"
	case has("INT"):
		c.standard = "bigint"
	case has("CHAR", "CLOB", "TEXT"):
		c.standard = "text"
	case has("BLOB"):
		c.standard = "bytea"
	case has("REAL", "FLOA", "DOUB"):
		c.standard = "double precision"
	case has("NUMERIC", "DECIMAL"):
		c.standard = "numeric"
	case has("DATETIME", "TIMESTAMP"):
		// SQLite stores times as texts or numbers and ignores time zones
		c.zoneless = !has("WITH TIME ZONE", "TIMESTAMPTZ")
	}
	return c
}
