package table

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/penstock-io/penstock"
)

// sqliteFile reads a SQLite file. No statement stays open between two calls: an open one would keep writers out.
type sqliteFile struct {
	path string
	conn interface {
		driver.Conn
		driver.QueryerContext
	} // nil: there is none
}

// busyWait is how long a statement waits for another program's transaction, in milliseconds.
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
	if d.conn != nil {
		return nil
	}
	full, err := filepath.Abs(d.path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(full); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file does not exist; correct `sqlite`: %w", err)
	}
	at := (&url.URL{Path: filepath.ToSlash(full)}).EscapedPath()
	opened, err := new(sqlite.Driver).Open(fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=query_only(1)", at, busyWait))
	if err != nil {
		return fmt.Errorf("opening the file: %w", err)
	}
	var ok bool
	if d.conn, ok = opened.(interface {
		driver.Conn
		driver.QueryerContext
	}); !ok {
		return errors.Join(errors.New("the SQLite driver lacks QueryContext"), opened.Close())
	}
	return nil
}

// query gives the rows of a statement to row until it returns false; values are valid until the next one.
func (d *sqliteFile) query(ctx context.Context, row func(v []driver.Value) (bool, error), sql string, args ...driver.Value) (err error) {
	if err := d.open(); err != nil {
		return err
	}
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	rows, err := d.conn.QueryContext(ctx, sql, named)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	v := make([]driver.Value, len(rows.Columns()))
	for {
		err := rows.Next(v)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		more, err := row(v)
		if err != nil || !more {
			return err
		}
	}
}

// sequence makes a callback for query of one that always goes on.
func sequence(row func(v []driver.Value)) func([]driver.Value) (bool, error) {
	return func(v []driver.Value) (bool, error) {
		row(v)
		return true, nil
	}
}

func (d *sqliteFile) transient(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xFF {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_INTERRUPT, codes.SQLITE_NOMEM, codes.SQLITE_PROTOCOL:
		return true
	}
	return false
}

func (d *sqliteFile) list(ctx context.Context) (names []string, err error) {
	err = d.query(ctx, sequence(func(v []driver.Value) {
		name, _ := v[0].(string)
		names = append(names, name)
	}), `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`)
	return names, err
}

// describe implements database.
func (d *sqliteFile) describe(ctx context.Context, s subject) (*relation, error) {
	r := &relation{name: s.String(), from: "(" + s.query + "\n)"}
	if s.query != "" {
		return r, d.describeQuery(ctx, r)
	}
	name := strings.TrimSuffix(strings.TrimPrefix(s.name, `"`), `"`)
	r.from, r.plain = quote(name), name
	kind, makes := "", ""
	err := d.query(ctx, sequence(func(v []driver.Value) {
		kind, _ = v[0].(string)
		makes, _ = v[1].(string)
	}), `SELECT type, sql FROM sqlite_schema WHERE name = ? AND type IN ('table', 'view')`, name)
	switch {
	case err != nil:
		return nil, err
	case kind == "":
		return nil, fmt.Errorf("%s does not exist: it was dropped, or `table` names it wrongly", r.name)
	case kind == "view":
		r.name = strings.Replace(r.name, "the table", "the view", 1)
	}
	r.table = kind == "table"
	var primary []string
	err = d.query(ctx, sequence(func(v []driver.Value) {
		column, _ := v[1].(string)
		decl, _ := v[2].(string)
		notNull, _ := v[3].(int64)
		place, _ := v[5].(int64)
		if hidden, _ := v[6].(int64); hidden == 1 {
			return
		}
		r.columns = append(r.columns, describeSQLite(column, decl, notNull == 0))
		if place > 0 {
			for len(primary) < int(place) {
				primary = append(primary, "")
			}
			primary[place-1] = column
		}
	}), "PRAGMA table_xinfo("+quote(name)+")")
	if err != nil || !r.table {
		return r, err
	}
	r.version = makes
	return r, d.constraints(ctx, r, name, primary)
}

// constraints finds what is unique. A single INTEGER PRIMARY KEY is the row's own number, which is never NULL; the columns of
// other primary keys may be, in SQLite, unless the table has no row numbers.
func (d *sqliteFile) constraints(ctx context.Context, r *relation, name string, primary []string) error {
	at := func(n string) *column {
		i := slices.IndexFunc(r.columns, func(c column) bool { return c.name == n })
		return &r.columns[i]
	}
	if r.primary = len(primary) > 0; r.primary {
		r.unique = append(r.unique, primary)
		if len(primary) == 1 && strings.EqualFold(at(primary[0]).decl, "INTEGER") {
			at(primary[0]).nullable = false
		}
	}
	withoutNumbers := false
	err := d.query(ctx, sequence(func(v []driver.Value) {
		n, _ := v[4].(int64)
		withoutNumbers = n == 1
	}), "SELECT * FROM pragma_table_list WHERE schema = 'main' AND name = ?", name)
	if err != nil {
		return err
	}
	if withoutNumbers {
		for _, n := range primary {
			at(n).nullable = false
		}
	}
	sets := make(map[string][]string)
	err = d.query(ctx, sequence(func(v []driver.Value) {
		index, _ := v[0].(string)
		column, named := v[1].(string)
		if !named {
			column = "" // an expression
		} else if coll, _ := v[2].(string); coll != "BINARY" {
			at(column).collate = " COLLATE BINARY"
		}
		sets[index] = append(sets[index], column)
	}), `SELECT l.name, i.name, i.coll FROM pragma_index_list(?) l, pragma_index_xinfo(l.name) i
		WHERE l."unique" = 1 AND l.partial = 0 AND i.key = 1 ORDER BY 1, i.seqno`, name)
	for _, set := range sets {
		if !slices.Contains(set, "") {
			r.unique = append(r.unique, set)
		}
	}
	return err
}

func (d *sqliteFile) describeQuery(ctx context.Context, r *relation) error {
	if err := d.open(); err != nil {
		return err
	}
	rows, err := d.conn.QueryContext(ctx, "SELECT * FROM "+r.from+" AS q LIMIT 0", nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.name, err)
	}
	for i, n := range rows.Columns() {
		if slices.Contains(rows.Columns()[:i], n) {
			err = fmt.Errorf("%s has two columns %q; name them apart with AS", r.name, n)
		}
		r.columns = append(r.columns, describeSQLite(n, "", true))
	}
	return errors.Join(err, rows.Close())
}

// describeSQLite says what a column of a declared type is, after https://sqlite.org/datatype3.html, section 3.1. Every column can
// order rows: SQLite knows an order of all values.
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
	}
	return c
}

// sqliteNames are the columns as they are selected: the + takes the declared type away, by which the driver would make times of texts.
func sqliteNames(r *relation, only []int) string {
	parts := make([]string, len(only))
	for i, c := range only {
		parts[i] = "+q." + quote(r.columns[c].name)
	}
	return strings.Join(parts, ", ")
}

// sqliteKey writes the columns of order_by. A COLLATE where none is needed would keep SQLite from its indexes.
func sqliteKey(r *relation, suffix string) string {
	parts := make([]string, len(r.order))
	for i, c := range r.order {
		parts[i] = "q." + quote(r.columns[c].name) + r.columns[c].collate + suffix
	}
	return strings.Join(parts, ", ")
}

// sqliteWhere writes the condition of q.
func sqliteWhere(r *relation, q rowQuery) (sql string, args []driver.Value, err error) {
	sql = " FROM " + r.from + " AS q WHERE true"
	for _, b := range []struct{ op, key string }{{">", q.after}, {"<=", q.upTo}, {"=", q.exact}} {
		if b.key == "" {
			continue
		}
		values, err := r.keys.decode(b.key)
		if err != nil {
			return "", nil, err
		}
		sql += " AND (" + sqliteKey(r, "") + ") " + b.op + " (" + strings.Repeat("?,", len(values)-1) + "?)"
		for _, v := range values {
			args = append(args, sqliteArgument(v))
		}
	}
	if q.stripe != nil {
		first := "q." + quote(r.columns[r.order[0]].name)
		sql += " AND " + first + " >= ? AND " + first + " < ?"
		args = append(args, sqliteArgument(q.stripe.from), sqliteArgument(q.stripe.to))
	}
	return sql, args, nil
}

func sqliteArgument(v keyValue) driver.Value {
	switch {
	case v.kind == keyInteger:
		return v.n
	case v.kind == keyFloat:
		return v.f
	case v.blob:
		return []byte(v.s)
	}
	return v.s
}

// observe implements database. SQLite has one writer at a time: what is not seen here was not begun before.
func (d *sqliteFile) observe(ctx context.Context, r *relation, q rowQuery) (o observation, err error) {
	if err := d.sameTable(ctx, r); err != nil {
		return o, err
	}
	where, args, err := sqliteWhere(r, q)
	if err != nil {
		return o, err
	}
	err = d.query(ctx, func(v []driver.Value) (bool, error) {
		key, err := sqliteRowKey(nil, r, v)
		o.last = string(key)
		return false, err
	}, "SELECT "+sqliteNames(r, r.order)+where+" ORDER BY "+sqliteKey(r, " DESC")+" LIMIT 1", args...)
	return o, err
}

// passed implements database.
func (d *sqliteFile) passed(_ context.Context, _ *relation, waiting []observation) (int, error) {
	return len(waiting), nil
}

// wait implements database.
func (d *sqliteFile) wait(ctx context.Context, limit time.Duration) (bool, error) {
	return false, sleep(ctx, limit)
}

// unplaced implements database.
func (d *sqliteFile) unplaced(ctx context.Context, r *relation) (found bool, err error) {
	err = d.query(ctx, sequence(func([]driver.Value) { found = true }), "SELECT 1 FROM "+r.from+" AS q WHERE "+anyNull(r)+" LIMIT 1")
	return found, err
}

// sameTable says whether the table is the one that it was, and has the columns that it had.
func (d *sqliteFile) sameTable(ctx context.Context, r *relation) error {
	if r.version == "" {
		return nil
	}
	now, there := "", false
	err := d.query(ctx, sequence(func(v []driver.Value) {
		now, _ = v[0].(string)
		there = true
	}), `SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?`, r.plain)
	switch {
	case err != nil || there && now == r.version:
		return err
	case !there:
		return gone(r, true)
	}
	fresh, err := d.describe(ctx, subject{name: r.plain})
	if err == nil {
		err = r.changed(fresh.columns)
	}
	if err == nil {
		r.version = now // an index in its text, or a comment: nothing that is read
	}
	return err
}

// keys implements database.
func (d *sqliteFile) keys(ctx context.Context, r *relation, q rowQuery, each func(key []byte) bool) error {
	where, args, err := sqliteWhere(r, q)
	if err != nil {
		return err
	}
	var key []byte
	return d.query(ctx, func(v []driver.Value) (bool, error) {
		var err error
		if key, err = sqliteRowKey(key[:0], r, v); err != nil {
			return false, err
		}
		return each(key), nil
	}, "SELECT "+sqliteNames(r, r.order)+where+" ORDER BY "+sqliteKey(r, "")+" LIMIT "+strconv.Itoa(q.limit), args...)
}

// sqliteRowKey encodes the values of order_by.
func sqliteRowKey(dst []byte, r *relation, values []driver.Value) ([]byte, error) {
	dst = r.keys.begin(dst)
	for i := range r.order {
		var v keyValue
		switch x := values[i].(type) {
		case int64:
			v = keyValue{kind: keyInteger, n: x}
		case float64:
			v = keyValue{kind: keyFloat, f: x}
		case string:
			v = keyValue{kind: keyBytes, s: x}
		case []byte:
			v = keyValue{kind: keyBytes, s: string(x), blob: true}
		default:
			return nil, nullKey(r)
		}
		dst = appendAny(dst, v)
	}
	return dst, nil
}

// rows implements database.
func (d *sqliteFile) rows(ctx context.Context, r *relation, q rowQuery, f *filling) error {
	if err := d.sameTable(ctx, r); err != nil {
		return err
	}
	where, args, err := sqliteWhere(r, q)
	if err != nil {
		return err
	}
	all := make([]int, len(r.columns))
	for i := range all {
		all[i] = i
	}
	key, keyed := []byte(nil), make([]driver.Value, len(r.order))
	var number []byte
	return d.query(ctx, func(v []driver.Value) (bool, error) {
		for i, c := range r.order {
			keyed[i] = v[c]
		}
		var err error
		if key, err = sqliteRowKey(key[:0], r, keyed); err != nil {
			return false, err
		}
		switch f.accept(key) {
		case endRows:
			return false, nil
		case skipRow:
			return true, nil
		}
		for i, x := range v {
			number = f.maker.sqlite(&r.columns[i], x, number)
		}
		f.done()
		return true, nil
	}, "SELECT "+sqliteNames(r, all)+where+" ORDER BY "+sqliteKey(r, "")+" LIMIT "+strconv.Itoa(q.limit), args...)
}

// sqlite adds a value as the driver gives it.
func (m *rowMaker) sqlite(c *column, x driver.Value, scratch []byte) []byte {
	switch x := x.(type) {
	case int64:
		switch {
		case c.kind == boolValue && x == 0:
			m.plain(penstock.Bool, "false")
		case c.kind == boolValue && x == 1:
			m.plain(penstock.Bool, "true")
		default:
			scratch = strconv.AppendInt(scratch[:0], x, 10)
			m.number(scratch)
		}
	case float64:
		scratch = appendReal(scratch[:0], x, c.standard != "double precision")
		m.number(scratch)
	case string:
		m.textOf(x)
	case []byte:
		m.bytes(x)
	default:
		m.null()
	}
	return scratch
}

// appendReal appends the shortest digits that give the float back; always ones that say that it is none of the integers, and without
// an exponent where plain: as a decimal that a sink keeps as a float because it prints so.
func appendReal(dst []byte, f float64, plain bool) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, infinity...)
	case math.IsInf(f, -1):
		return append(dst, "-"+infinity...)
	}
	from := len(dst)
	if exp := math.Abs(f); plain || exp == 0 || exp >= 1e-5 && exp < 1e15 {
		dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
		if bytes.IndexByte(dst[from:], '.') < 0 {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 64)
}
