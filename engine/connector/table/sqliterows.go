package table

import (
	"bytes"
	"context"
	"database/sql/driver"
	"math"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// sqliteNames returns the select list of some columns, given by their positions in r.columns. A +
// before each column removes its declared type: for some declared types, the driver would convert
// texts to times.
func sqliteNames(r *relation, only []int) string {
	parts := make([]string, len(only))
	for i, c := range only {
		parts[i] = "+q." + sqltable.Quote(r.columns[c].name)
	}
	return strings.Join(parts, ", ")
}

// sqliteKey returns the order_by columns in SQL, each with suffix. It omits a COLLATE that is not
// necessary, because with it SQLite would not use its indexes.
func sqliteKey(r *relation, suffix string) string {
	return r.ordered(", ", func(c *column) string { return "q." + sqltable.Quote(c.name) + c.collate + suffix })
}

// sqliteWhere returns the FROM and WHERE clauses of q.
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
		sql += " AND (" + sqliteKey(r, "") + ") " + b.op + " (" +
			strings.Repeat("?,", len(values)-1) + "?)"
		for _, v := range values {
			args = append(args, sqliteArgument(v))
		}
	}
	if q.stripe != nil {
		first := "q." + sqltable.Quote(r.columns[r.order[0]].name)
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

// observe implements database. It returns no transactions: SQLite has only one writer at a time. So
// a key that SQLite generates never becomes visible after a greater one.
func (d *sqliteFile) observe(ctx context.Context, r *relation,
	q rowQuery) (o observation, err error) {
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
	}, "SELECT "+sqliteNames(r, r.order)+where+" ORDER BY "+sqliteKey(r, " DESC")+" LIMIT 1",
		args...)
	return o, d.explained(err, r)
}

// hasNullKey implements database.
func (d *sqliteFile) hasNullKey(ctx context.Context, r *relation) (found bool, err error) {
	err = d.query(ctx, sequence(func([]driver.Value) { found = true }),
		"SELECT 1 FROM "+r.from+" AS q WHERE "+anyNull(r)+" LIMIT 1")
	return found, d.explained(err, r)
}

// sameTable returns an error if the table was dropped or its columns have changed. It does not
// detect that a table was recreated with the same columns.
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
		return droppedError(r, true)
	}
	fresh, err := d.describe(ctx, subject{name: r.plain})
	if err == nil {
		err = r.changed(fresh.columns)
	}
	if err == nil {
		r.version = now // only an index or a comment in the schema has changed
	}
	return err
}

// keys implements database.
func (d *sqliteFile) keys(ctx context.Context, r *relation, q rowQuery,
	each func(key []byte) bool) error {
	where, args, err := sqliteWhere(r, q)
	if err != nil {
		return err
	}
	var key []byte
	err = d.query(ctx, func(v []driver.Value) (bool, error) {
		var err error
		if key, err = sqliteRowKey(key[:0], r, v); err != nil {
			return false, err
		}
		return each(key), nil
	}, "SELECT "+sqliteNames(r, r.order)+where+" ORDER BY "+sqliteKey(r, "")+" LIMIT "+
		strconv.Itoa(q.limit), args...)
	return d.explained(err, r)
}

// sqliteRowKey appends the key of a row, given the values of its order_by columns.
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
	err = d.query(ctx, func(v []driver.Value) (bool, error) {
		for i, c := range r.order {
			keyed[i] = v[c]
		}
		var err error
		if key, err = sqliteRowKey(key[:0], r, keyed); err != nil {
			return false, err
		}
		return f.add(key, func() {
			for i, x := range v {
				number = f.maker.sqlite(&r.columns[i], x, number)
			}
		}), nil
	}, "SELECT "+sqliteNames(r, all)+where+" ORDER BY "+sqliteKey(r, "")+" LIMIT "+
		strconv.Itoa(q.limit), args...)
	return d.explained(err, r)
}

// sqlite adds a value in the form in which the driver returns it.
func (m *rowMaker) sqlite(c *column, x driver.Value, scratch []byte) []byte {
	switch x := x.(type) {
	case int64:
		switch {
		case c.kind == boolValue && x == 0:
			m.plain(stream.Bool, "false")
		case c.kind == boolValue && x == 1:
			m.plain(stream.Bool, "true")
		default:
			scratch = strconv.AppendInt(scratch[:0], x, 10)
			m.number(scratch)
		}
	case float64:
		scratch = appendReal(scratch[:0], x, c.standard != "double precision")
		m.number(scratch)
	case string:
		addText(m, x)
	case []byte:
		m.bytes(x)
	default:
		m.null()
	}
	return scratch
}

// appendReal appends the shortest digits that represent the float exactly. The digits always
// contain a point or an exponent, so that they differ from those of an integer. If plain is set,
// they have no exponent, so that a sink with decimals stores the same value.
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
