package table

import (
	"bytes"
	"context"
	"database/sql/driver"
	"math"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// sqliteSyntax is the syntax of SQLite. A + before a column in the select list removes its declared
// type: for some declared types, the driver would convert texts to times.
var sqliteSyntax = syntax{quote: sqltable.Quote, selected: "+", descending: " DESC"}

// read runs the query of q with the given select list, and calls row for each row.
func (d *sqliteFile) read(ctx context.Context, r *relation, q rowQuery, list string,
	row func(v []driver.Value) (bool, error)) error {
	sql, keys, err := sqliteSyntax.query(list, r, q)
	if err != nil {
		return err
	}
	args := make([]driver.Value, len(keys))
	for i, k := range keys {
		args[i] = sqliteArgument(k.value)
	}
	return d.explained(d.query(ctx, row, sql, args...), r)
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
	q.last = true
	o.last, err = firstKey(ctx, d, r, q)
	return o, err
}

// hasNullKey implements database.
func (d *sqliteFile) hasNullKey(ctx context.Context, r *relation) (found bool, err error) {
	err = d.query(ctx, sequence(func([]driver.Value) { found = true }), sqliteSyntax.nullKey(r))
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
		now, there = sqldriver.Text(v[0]), true
	}), `SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?`, r.plain)
	switch {
	case err != nil || there && now == r.version:
		return err
	case !there:
		return droppedError(r, true)
	}
	fresh, err := d.describe(ctx, subject{name: sqltable.Quote(r.plain)})
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
	return d.read(ctx, r, q, sqliteSyntax.list(r, r.order), eachKey(sqliteRowKey, r, each))
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
	all := make([]int, len(r.columns))
	for i := range all {
		all[i] = i
	}
	key, keyed := []byte(nil), make([]driver.Value, len(r.order))
	list := sqliteSyntax.list(r, all)
	return d.read(ctx, r, q, list, func(v []driver.Value) (more bool, err error) {
		for i, c := range r.order {
			keyed[i] = v[c]
		}
		if key, err = sqliteRowKey(key[:0], r, keyed); err != nil {
			return false, err
		}
		return f.add(key, func() {
			for i, x := range v {
				f.maker.sqlite(&r.columns[i], x)
			}
		}), nil
	})
}

// sqlite adds a value in the form in which the driver returns it.
func (m *rowMaker) sqlite(c *column, x driver.Value) {
	switch x := x.(type) {
	case int64:
		switch {
		case c.kind == boolValue && x == 0:
			addPlain(m, stream.Bool, "false")
		case c.kind == boolValue && x == 1:
			addPlain(m, stream.Bool, "true")
		default:
			m.scratch = strconv.AppendInt(m.scratch[:0], x, 10)
			m.number(m.scratch)
		}
	case float64:
		m.scratch = appendReal(m.scratch[:0], x, c.standard != "double precision")
		m.number(m.scratch)
	case string:
		addText(m, x)
	case []byte:
		m.bytes(x)
	default:
		m.null()
	}
}

// appendReal appends the shortest digits that represent the float exactly. The digits always
// contain a point or an exponent, so that they differ from those of an integer. If plain is set,
// they have no exponent, so that a sink with decimals stores the same value.
func appendReal(dst []byte, f float64, plain bool) []byte {
	if math.IsInf(f, 0) {
		return append(dst, floatDigits(f)...)
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
