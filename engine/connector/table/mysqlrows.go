package table

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math"
	"strconv"

	"github.com/penstock-io/penstock/stream"
)

// mysqlKey returns the order_by columns in SQL, each with suffix.
func mysqlKey(r *relation, suffix string) string {
	return r.ordered(", ", func(c *column) string { return "q." + tick(c.name) + suffix })
}

// mysqlList returns the select list: all columns, then the order_by columns, then each FLOAT
// column a second time as a double, because the server formats a FLOAT with only six digits.
// floats has the positions of the FLOAT columns in r.columns.
func mysqlList(r *relation) (list string, floats []int) {
	list = "q.*, " + mysqlKey(r, "")
	for i, c := range r.columns {
		if c.decl == "float" {
			list += ", q." + tick(c.name) + " + 0e0"
			floats = append(floats, i)
		}
	}
	return list, floats
}

// mysqlWhere returns the FROM and WHERE clauses of q. It does not compare rows, as in (a, b) > (1,
// 2), because MySQL would not use its index. Instead it compares the columns one by one: a >= 1
// AND (a > 1 OR (a = 1 AND b > 2)).
func mysqlWhere(r *relation, q rowQuery) (sql string, args []driver.Value, err error) {
	sql = " FROM " + r.from + " AS q WHERE 1 = 1"
	for _, b := range []struct{ first, strict, last, key string }{
		{">=", ">", ">", q.after}, {"<=", "<", "<=", q.upTo}, {"=", "=", "=", q.exact},
	} {
		if b.key == "" {
			continue
		}
		values, err := r.keys.decode(b.key)
		if err != nil {
			return "", nil, err
		}
		name := func(i int) string { return "q." + tick(r.columns[r.order[i]].name) }
		place := func(i int) string {
			if values[i].kind == keyNumber {
				// Write the digits into the statement: the server would convert an
				// argument to a float. This is safe, because decode has checked
				// that the text is a number.
				return values[i].s
			}
			args = append(args, mysqlArgument(&r.columns[r.order[i]], values[i]))
			return "?"
		}
		if len(values) == 1 {
			sql += " AND " + name(0) + " " + b.last + " " + place(0)
			continue
		}
		sql += " AND " + name(0) + " " + b.first + " " + place(0) + " AND (false"
		for i := range values {
			op := b.strict
			if i == len(values)-1 {
				op = b.last
			} else if op == "=" {
				continue
			}
			sql += " OR ("
			for k := range i {
				sql += name(k) + " = " + place(k) + " AND "
			}
			sql += name(i) + " " + op + " " + place(i) + ")"
		}
		sql += ")"
	}
	if q.stripe != nil {
		first := "q." + tick(r.columns[r.order[0]].name)
		sql += " AND " + first + " >= ? AND " + first + " < ?"
		args = append(args, q.stripe.from.n, q.stripe.to.n)
	}
	return sql, args, nil
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
	where, args, err := mysqlWhere(r, q)
	if err != nil {
		return err
	}
	list, floats := mysqlList(r)
	n := len(r.columns)
	var key, number []byte
	err = d.query(ctx, func(rows driver.Rows) error { return d.sameColumns(r, rows, len(r.order)+len(floats)) },
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
					number = f.maker.mysql(&r.columns[i], x, number)
				}
			}), nil
		}, "SELECT "+list+where+" ORDER BY "+mysqlKey(r, "")+" LIMIT "+strconv.Itoa(q.limit),
		args...)
	return d.described(err, r)
}

// sameColumns returns an error if the columns of a result differ from those at the start of the
// run. It ignores the last columns of the result; more is their number.
func (d *mysqlServer) sameColumns(r *relation, rows driver.Rows, more int) error {
	now, err := mysqlColumns(rows, len(rows.Columns())-more)
	if err != nil {
		return err
	}
	return r.changed(now)
}

// mysql adds the value x of column c to the row. x has the form in which the driver for MySQL
// returns it.
func (m *rowMaker) mysql(c *column, x driver.Value, scratch []byte) []byte {
	switch x := x.(type) {
	case nil:
		m.null()
	case int64:
		scratch = strconv.AppendInt(scratch[:0], x, 10)
		m.number(scratch)
	case uint64:
		scratch = strconv.AppendUint(scratch[:0], x, 10)
		m.number(scratch)
	case float32:
		scratch = strconv.AppendFloat(scratch[:0], float64(x), 'g', -1, 32)
		m.number(scratch)
	case float64:
		bits := 64
		if c.decl == "float" {
			bits = 32
		}
		scratch = strconv.AppendFloat(scratch[:0], x, 'g', -1, bits)
		m.number(scratch)
	case []byte:
		if c.decl == "timestamp" {
			scratch = append(append(scratch[:0], x...), "+00"...)
			m.text(scratch)
		} else {
			m.value(c.kind, x)
		}
	default:
		m.plain(stream.Text, fmt.Sprint(x))
	}
	return scratch
}

// keys implements database.
func (d *mysqlServer) keys(ctx context.Context, r *relation, q rowQuery,
	each func(key []byte) bool) error {
	where, args, err := mysqlWhere(r, q)
	if err != nil {
		return err
	}
	var key []byte
	err = d.query(ctx, nil, func(v []driver.Value) (more bool, err error) {
		if key, err = mysqlRowKey(key[:0], r, v); err != nil {
			return false, err
		}
		return each(key), nil
	}, "SELECT "+mysqlKey(r, "")+where+" ORDER BY "+mysqlKey(r, "")+" LIMIT "+
		strconv.Itoa(min(q.limit, math.MaxInt32)), args...)
	return d.described(err, r)
}

// observe implements database.
func (d *mysqlServer) observe(ctx context.Context, r *relation,
	q rowQuery) (o observation, err error) {
	where, args, err := mysqlWhere(r, q)
	if err != nil {
		return o, err
	}
	err = d.query(ctx, nil, func(v []driver.Value) (bool, error) {
		key, err := mysqlRowKey(nil, r, v)
		o.last = string(key)
		return false, err
	}, "SELECT "+mysqlKey(r, "")+where+" ORDER BY "+mysqlKey(r, " DESC")+" LIMIT 1", args...)
	if err == nil && o.last == "" && r.table {
		// detects a dropped or changed table even if no new rows come
		var now []column
		if now, err = d.columns(ctx, r); err == nil {
			err = r.changed(now)
		}
	}
	return o, d.described(err, r)
}

// hasNullKey implements database.
func (d *mysqlServer) hasNullKey(ctx context.Context, r *relation) (found bool, err error) {
	anyNull := r.ordered(" OR ", func(c *column) string { return "q." + tick(c.name) + " IS NULL" })
	err = d.query(ctx, nil, sequence(func([]driver.Value) { found = true }),
		"SELECT 1 FROM "+r.from+" AS q WHERE "+anyNull+" LIMIT 1")
	return found, d.described(err, r)
}
