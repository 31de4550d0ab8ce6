package table

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"

	"github.com/penstock-io/penstock/stream"
)

// mysqlSyntax is the syntax of MySQL.
var mysqlSyntax = syntax{quote: tick, descending: " DESC", byColumn: true}

// mysqlList returns the select list: all columns, then the order_by columns, then each FLOAT
// column a second time as a double, because the server formats a FLOAT with only six digits.
// floats has the positions of the FLOAT columns in r.columns.
func mysqlList(r *relation) (list string, floats []int) {
	list = "q.*, " + mysqlSyntax.list(r, r.order)
	for i, c := range r.columns {
		if c.decl == "float" {
			list += ", q." + tick(c.name) + " + 0e0"
			floats = append(floats, i)
		}
	}
	return list, floats
}

// read runs the query of q with the given select list, and calls row for each row. If head is not
// nil, read calls it before the first row.
func (d *mysqlServer) read(
	ctx context.Context, r *relation, q rowQuery, list string,
	head func(driver.Rows) error, row func(v []driver.Value) (bool, error),
) error {
	sql, keys, err := mysqlSyntax.query(list, r, q)
	if err != nil {
		return err
	}
	args := make([]driver.Value, len(keys))
	for i, k := range keys {
		args[i] = mysqlArgument(k.column, k.value)
	}
	return d.described(d.query(ctx, head, row, sql, args...), r)
}

func mysqlArgument(c *column, v keyValue) driver.Value {
	switch {
	case v.kind == keyInteger:
		return v.n
	case v.kind == keyUnsigned:
		return uint64(v.n)
	case c.kind == bytesValue:
		return []byte(v.s)
	}
	return v.s
}

// mysqlRowKey appends the key of a row, given the values of its order_by columns.
func mysqlRowKey(dst []byte, r *relation, values []driver.Value) ([]byte, error) {
	dst = r.keys.begin(dst)
	for i, c := range r.order {
		switch x := values[i].(type) {
		case int64:
			dst = r.keys.append(dst, i, keyValue{n: x})
		case uint64:
			dst = r.keys.append(dst, i, keyValue{n: int64(x)})
		case []byte:
			if r.columns[c].key == keyNumber {
				dst = appendNumber(dst, string(x))
			} else {
				dst = appendText(dst, x)
			}
		case nil:
			return nil, nullKey(r)
		default:
			return nil, fmt.Errorf("the server sent a %T as a value of column %q", x,
				r.columns[c].name)
		}
	}
	return dst, nil
}

// rows implements database.
func (d *mysqlServer) rows(ctx context.Context, r *relation, q rowQuery, f *filling) error {
	list, floats := mysqlList(r)
	n := len(r.columns)
	var key []byte
	return d.read(ctx, r, q, list,
		func(rows driver.Rows) error { // the columns must be those at the start of the run
			now, err := mysqlColumns(rows, len(rows.Columns())-len(r.order)-len(floats))
			if err != nil {
				return err
			}
			return r.changed(now)
		},
		func(v []driver.Value) (more bool, err error) {
			if key, err = mysqlRowKey(key[:0], r, v[n:n+len(r.order)]); err != nil {
				return false, err
			}
			return f.add(key, func() {
				for i, c := range floats {
					if v[c] != nil {
						v[c] = v[n+len(r.order)+i]
					}
				}
				for i, x := range v[:n] {
					f.maker.mysql(&r.columns[i], x)
				}
			}), nil
		})
}

// mysql adds the value x of column c to the row. x has the form in which the driver for MySQL
// returns it.
func (m *rowMaker) mysql(c *column, x driver.Value) {
	switch x := x.(type) {
	case nil:
		m.null()
	case int64:
		m.scratch = strconv.AppendInt(m.scratch[:0], x, 10)
		m.number(m.scratch)
	case uint64:
		m.scratch = strconv.AppendUint(m.scratch[:0], x, 10)
		m.number(m.scratch)
	case float32:
		m.scratch = strconv.AppendFloat(m.scratch[:0], float64(x), 'g', -1, 32)
		m.number(m.scratch)
	case float64:
		bits := 64
		if c.decl == "float" {
			bits = 32
		}
		m.scratch = strconv.AppendFloat(m.scratch[:0], x, 'g', -1, bits)
		m.number(m.scratch)
	case []byte:
		if c.decl == "timestamp" {
			m.scratch = append(append(m.scratch[:0], x...), "+00"...)
			m.text(m.scratch)
		} else {
			m.value(c.kind, x)
		}
	default:
		addPlain(m, stream.Text, fmt.Sprint(x))
	}
}

// keys implements database.
func (d *mysqlServer) keys(ctx context.Context, r *relation, q rowQuery,
	each func(key []byte) bool) error {
	return d.read(ctx, r, q, mysqlSyntax.list(r, r.order), nil, eachKey(mysqlRowKey, r, each))
}

// observe implements database.
func (d *mysqlServer) observe(ctx context.Context, r *relation,
	q rowQuery) (o observation, err error) {
	q.last = true
	o.last, err = firstKey(ctx, d, r, q)
	if err == nil && o.last == "" && r.table {
		// detects a dropped or changed table even if no new rows come
		var now []column
		if now, err = d.columns(ctx, r); err == nil {
			err = r.changed(now)
		}
	}
	return o, err
}

// hasNullKey implements database.
func (d *mysqlServer) hasNullKey(ctx context.Context, r *relation) (found bool, err error) {
	err = d.query(ctx, nil, sequence(func([]driver.Value) { found = true }), mysqlSyntax.nullKey(r))
	return found, d.described(err, r)
}
