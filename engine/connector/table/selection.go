//penstock:pure

package table

import (
	"strconv"
	"strings"
)

// syntax has the differences between the databases in the SQL of a [rowQuery].
type syntax struct {
	quote      func(name string) string
	selected   string // prefix of a column in the select list
	descending string // suffix of a column in ORDER BY
	numbered   bool   // the parameters are $1, $2 and so on, instead of ?
	// byColumn means that the columns of a key are compared one by one, because MySQL would not use
	// its index for (a, b) > (1, 2). In addition, the digits of a decimal number are written into
	// the statement, because MySQL would convert an argument to a float.
	byColumn bool
}

// keyArgument is an argument of a query: a value that is compared with a column.
type keyArgument struct {
	column *column
	value  keyValue
	bound  bool // of a stripe; it may exceed the type of the column
}

// name returns the SQL of a column. It omits a COLLATE that is not necessary, because with it
// SQLite would not use its indexes.
func (x *syntax) name(c *column) string { return "q." + x.quote(c.name) + c.collate }

// list returns the select list of some columns, given by their positions in r.columns.
func (x *syntax) list(r *relation, columns []int) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = x.selected + "q." + x.quote(r.columns[c].name)
	}
	return strings.Join(parts, ", ")
}

// key returns the order_by columns, each with suffix.
func (x *syntax) key(r *relation, suffix string) string {
	return r.ordered(", ", func(c *column) string { return x.name(c) + suffix })
}

// nullKey returns a query that has a row if a column of order_by is NULL in any row.
func (x *syntax) nullKey(r *relation) string {
	return "SELECT 1 FROM " + r.from + " AS q WHERE " +
		r.ordered(" OR ", func(c *column) string { return x.name(c) + " IS NULL" }) + " LIMIT 1"
}

// query returns the SELECT of q with the given select list.
func (x *syntax) query(list string, r *relation, q rowQuery) (string, []keyArgument, error) {
	where, args, err := x.where(r, q)
	suffix, limit := "", q.limit
	if q.last {
		suffix, limit = x.descending, 1
	}
	return "SELECT " + list + where + " ORDER BY " + x.key(r, suffix) + " LIMIT " +
		strconv.Itoa(limit), args, err
}

// where returns the FROM and WHERE clauses of q.
func (x *syntax) where(r *relation, q rowQuery) (sql string, args []keyArgument, err error) {
	place := func(a keyArgument) string {
		if x.byColumn && a.value.kind == keyNumber {
			return a.value.s // decode has checked that the text is a number
		}
		if args = append(args, a); x.numbered {
			return "$" + strconv.Itoa(len(args))
		}
		return "?"
	}
	sql = " FROM " + r.from + " AS q WHERE 1 = 1"
	for _, b := range []struct{ first, strict, op, key string }{
		{">=", ">", ">", q.after}, {"<=", "<", "<=", q.upTo}, {"=", "=", "=", q.exact},
	} {
		if b.key == "" {
			continue
		}
		values, err := r.keys.decode(b.key)
		if err != nil {
			return "", nil, err
		}
		column := func(i int) *column { return &r.columns[r.order[i]] }
		compare := func(i int, op string) string {
			return x.name(column(i)) + " " + op + " " +
				place(keyArgument{column: column(i), value: values[i]})
		}
		switch {
		case len(values) == 1:
			sql += " AND " + compare(0, b.op)
		case x.byColumn:
			sql += " AND " + compare(0, b.first) + " AND (false" +
				columnwise(len(values), b.strict, b.op, compare) + ")"
		default:
			places := make([]string, len(values))
			for i, v := range values {
				places[i] = place(keyArgument{column: column(i), value: v})
			}
			sql += " AND (" + x.key(r, "") + ") " + b.op + " (" + strings.Join(places, ", ") + ")"
		}
	}
	if q.stripe != nil {
		first := &r.columns[r.order[0]]
		sql += " AND " + x.name(first) + " >= " + place(keyArgument{first, q.stripe.from, true}) +
			" AND " + x.name(first) + " < " + place(keyArgument{first, q.stripe.to, true})
	}
	return sql, args, nil
}

// columnwise returns the alternatives in which a key of n columns is before or after another one.
// Example for a key (1, 2) and the operator >: OR (a > 1) OR (a = 1 AND b > 2). strict is op
// without an equal sign, and op itself compares the last column.
func columnwise(n int, strict, op string, compare func(i int, op string) string) (sql string) {
	for i := range n {
		by := strict
		if i == n-1 {
			by = op
		} else if strict == "=" {
			continue
		}
		sql += " OR ("
		for k := range i {
			sql += compare(k, "=") + " AND "
		}
		sql += compare(i, by) + ")"
	}
	return sql
}

// eachKey returns a callback for the rows of a query. The callback encodes the key of a row, and
// passes it to the function each. The query ends when each returns false.
func eachKey[V any](rowKey func(dst []byte, r *relation, values []V) ([]byte, error), r *relation,
	each func(key []byte) bool) func(values []V) (more bool, err error) {
	var key []byte
	return func(values []V) (more bool, err error) {
		if key, err = rowKey(key[:0], r, values); err != nil {
			return false, err
		}
		return each(key), nil
	}
}
