package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/retry"
)

// statement is a query that is being built.
type statement struct {
	sql     strings.Builder
	args    [][]byte
	oids    []uint32
	formats []int16
}

// keyColumns returns the order_by columns in SQL, with their collations.
func keyColumns(r *relation, each func(name string) string) string {
	return r.ordered(", ", func(c *column) string { return each("q." + sqltable.Quote(c.name) + c.collate) })
}

func same(name string) string { return name }

// bound adds a condition that compares the whole key of a row with key, by the operator op.
func (s *statement) bound(r *relation, op, key string) error {
	values, err := r.keys.decode(key)
	if err != nil {
		return err
	}
	places := make([]string, len(values))
	for i, v := range values {
		places[i] = s.argument(r.columns[r.order[i]].id, v)
	}
	fmt.Fprintf(&s.sql, " AND (%s) %s (%s)", keyColumns(r, same), op, strings.Join(places, ", "))
	return nil
}

func (s *statement) argument(id uint32, v keyValue) string {
	value, format := argument(id, v)
	s.args, s.oids, s.formats = append(s.args, value), append(s.oids, id), append(s.formats, format)
	return "$" + strconv.Itoa(len(s.args))
}

// appendWhere appends the FROM and WHERE clauses of q.
func (s *statement) appendWhere(r *relation, q rowQuery) error {
	s.sql.WriteString(" FROM " + r.from + " AS q WHERE true")
	for _, b := range []struct{ op, key string }{{">", q.after}, {"<=", q.upTo}, {"=", q.exact}} {
		if b.key == "" {
			continue
		}
		if err := s.bound(r, b.op, b.key); err != nil {
			return err
		}
	}
	if q.stripe != nil {
		first := r.columns[r.order[0]]
		id := first.id
		if id == oidInt2 || id == oidInt4 || id == oidOid { // the bounds may exceed these types
			id = oidInt8
		}
		fmt.Fprintf(&s.sql, " AND q.%s >= %s AND q.%s < %s", sqltable.Quote(first.name),
			s.argument(id, q.stripe.from),
			sqltable.Quote(first.name), s.argument(id, q.stripe.to))
	}
	return nil
}

func (s *statement) ordered(r *relation, direction string, limit int) {
	s.sql.WriteString(" ORDER BY " + keyColumns(r, func(n string) string { return n + direction }))
	if limit > 0 {
		s.sql.WriteString(" LIMIT " + strconv.Itoa(limit))
	}
}

// keyFormats appends the result formats of the order_by columns.
func keyFormats(dst []int16, r *relation) []int16 {
	for _, c := range r.order {
		format := int16(1)
		if r.columns[c].id == oidNumeric {
			format = 0
		}
		dst = append(dst, format)
	}
	return dst
}

// appendKey appends the key of a row, given the values of its order_by columns in the server's
// response.
func appendKey(dst []byte, r *relation, values [][]byte) ([]byte, error) {
	dst = r.keys.begin(dst)
	for i, c := range r.order {
		col := &r.columns[c]
		b := values[i]
		switch {
		case b == nil:
			return nil, nullKey(r)
		case col.key == keyBytes:
			dst = appendText(dst, b)
			continue
		case col.key == keyNumber:
			dst = appendNumber(dst, string(b))
			continue
		}
		v, ok := binaryKey(col.id, b)
		if !ok {
			return nil, fmt.Errorf("the server sent %d bytes as a value of column %q", len(b),
				col.name)
		}
		dst = r.keys.append(dst, i, v)
	}
	return dst, nil
}

// run sends a statement and calls row for each row until it returns false.
func (d *postgres) run(ctx context.Context, r *relation, s *statement, results []int16,
	row func(rr *pgconn.ResultReader) (more bool, err error)) error {
	c, err := d.connected(ctx)
	if err != nil {
		return err
	}
	rr := c.ExecParams(ctx, s.sql.String(), s.args, s.oids, s.formats, results)
	var wrong error
	for more := true; rr.NextRow(); {
		if more {
			more, wrong = row(rr)
		}
	}
	_, err = rr.Close()
	return errors.Join(explained(err, r), wrong)
}

// rows implements database.
func (d *postgres) rows(ctx context.Context, r *relation, q rowQuery, f *filling) error {
	var s statement
	s.sql.WriteString("SELECT q.*, " + keyColumns(r, same))
	if err := s.appendWhere(r, q); err != nil {
		return err
	}
	s.ordered(r, "", q.limit)
	n := len(r.columns)
	results := keyFormats(make([]int16, n, n+len(r.order)), r)
	var key []byte
	checked := false
	err := d.run(ctx, r, &s, results, func(rr *pgconn.ResultReader) (more bool, err error) {
		if !checked {
			if checked = true; !sameColumns(r, rr.FieldDescriptions()) {
				return false, errShape
			}
		}
		values := rr.Values()
		if key, err = appendKey(key[:0], r, values[n:]); err != nil {
			return false, err
		}
		return f.add(key, func() {
			for i, v := range values[:n] {
				f.maker.value(r.columns[i].kind, v)
			}
		}), nil
	})
	// A protocol violation means that the number of values differs from that of requested formats.
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == protocolViolation ||
		errors.Is(err, errShape) {
		return d.reshaped(ctx, r)
	}
	return err
}

var errShape = errors.New("the columns are others")

// sameColumns reports whether the columns of a result are still those at the start of the run.
func sameColumns(r *relation, now []pgconn.FieldDescription) bool {
	if len(now) != len(r.columns)+len(r.order) {
		return false
	}
	for i, c := range r.columns {
		if now[i].Name != c.name || now[i].DataTypeOID != c.id ||
			now[i].TypeModifier != c.modifier {
			return false
		}
	}
	return true
}

// reshaped returns an error that describes which columns have changed.
func (d *postgres) reshaped(ctx context.Context, r *relation) error {
	now, err := d.columns(ctx, r)
	if err == nil {
		err = r.changed(now)
	}
	if err == nil {
		err = &changedError{r.name + " has changed its columns"}
	}
	return err
}

// keys implements database.
func (d *postgres) keys(ctx context.Context, r *relation, q rowQuery,
	each func(key []byte) bool) error {
	var s statement
	s.sql.WriteString("SELECT " + keyColumns(r, same))
	if err := s.appendWhere(r, q); err != nil {
		return err
	}
	s.ordered(r, "", q.limit)
	var key []byte
	return d.run(ctx, r, &s, keyFormats(nil, r), func(rr *pgconn.ResultReader) (_ bool, err error) {
		if key, err = appendKey(key[:0], r, rr.Values()); err != nil {
			return false, err
		}
		return each(key), nil
	})
}

// observe implements database. It first reads the last row that is visible in a snapshot, and the
// first transaction id that the snapshot does not know. Then it reads the transactions with a write
// lock on the table.
//
// A row before the last visible row may still be invisible. Its transaction then has an id below
// the first unknown id, or holds a write lock, because an INSERT takes the lock before it takes a
// number of a sequence. So these transactions are all that must be waited for.
func (d *postgres) observe(ctx context.Context, r *relation,
	q rowQuery) (o observation, err error) {
	if err := d.sameTable(ctx, r); err != nil {
		return o, err
	}
	var s statement
	s.sql.WriteString("SELECT pg_snapshot_xmax(pg_current_snapshot())::text, " +
		keyColumns(r, same))
	if err := s.appendWhere(r, q); err != nil {
		return o, err
	}
	s.ordered(r, " DESC NULLS LAST", 1)
	err = d.run(ctx, r, &s, keyFormats([]int16{0}, r), func(rr *pgconn.ResultReader) (bool, error) {
		values := rr.Values()
		var err error
		if o.xmax, err = strconv.ParseUint(string(values[0]), 10, 64); err != nil {
			return false, err
		}
		key, err := appendKey(nil, r, values[1:])
		o.last = string(key)
		return false, err
	})
	if err != nil || o.last == "" || !r.table {
		return o, err
	}
	o.writers, err = d.writers(ctx, r)
	return o, err
}

// writers returns the transactions that hold a write lock on the table.
func (d *postgres) writers(ctx context.Context, r *relation) (all []string, err error) {
	err = d.query(ctx, func(v [][]byte) error {
		all = append(all, string(v[0]))
		return nil
	}, `SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = $1::oid
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')`, []byte(r.version))
	return all, err
}

// passed implements database.
func (d *postgres) passed(ctx context.Context, r *relation,
	waiting []observation) (n int, err error) {
	oldest := uint64(0)
	err = d.query(ctx, func(v [][]byte) (err error) {
		oldest, err = strconv.ParseUint(string(v[0]), 10, 64)
		return err
	}, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text`)
	if err != nil {
		return 0, err
	}
	var writers []string
	for _, o := range waiting {
		if o.xmax > oldest {
			break
		}
		if len(o.writers) > 0 && writers == nil {
			if writers, err = d.writers(ctx, r); err != nil {
				return 0, err
			}
		}
		if slices.ContainsFunc(o.writers,
			func(w string) bool { return slices.Contains(writers, w) }) {
			break
		}
		n++
	}
	return n, nil
}

// hasNullKey implements database.
func (d *postgres) hasNullKey(ctx context.Context, r *relation) (found bool, err error) {
	var s statement
	s.sql.WriteString("SELECT 1 FROM " + r.from + " AS q WHERE " + anyNull(r) + " LIMIT 1")
	err = d.run(ctx, r, &s, nil, func(*pgconn.ResultReader) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// anyNull returns a condition that is true for rows with NULL in an order_by column.
func anyNull(r *relation) string {
	return r.ordered(" OR ", func(c *column) string { return "q." + sqltable.Quote(c.name) + " IS NULL" })
}

// sameTable returns an error if the table was dropped or recreated.
func (d *postgres) sameTable(ctx context.Context, r *relation) error {
	if r.version == "" {
		return nil
	}
	now := ""
	err := d.query(ctx, func(v [][]byte) error {
		now = string(v[0])
		return nil
	}, `SELECT to_regclass($1)::oid`, []byte(r.from))
	if err == nil && now != r.version {
		return droppedError(r, now == "")
	}
	return err
}

// droppedError returns an error about a table that was dropped or recreated.
func droppedError(r *relation, dropped bool) error {
	if dropped {
		return fmt.Errorf("%s was dropped while penstock read it; all rows that were read are "+
			"delivered", r.name)
	}
	return fmt.Errorf("%s was dropped and created again while penstock read it: "+
		"positions in the old one are not valid in the new one; "+
		"delete them with `penstock checkpoint reset` and in the sink's ledger, "+
		"and restart penstock",
		r.name)
}

// wait implements database.
func (d *postgres) wait(ctx context.Context, limit time.Duration) (woken bool, err error) {
	if d.notify == "" {
		return false, retry.Sleep(ctx, limit)
	}
	if d.listener == nil || d.listener.IsClosed() {
		if d.listener, err = pgconn.ConnectConfig(ctx, d.config); err != nil {
			return false, err
		}
		_, err = d.listener.Exec(ctx, "LISTEN "+sqltable.Quote(d.notify)).ReadAll()
		return err == nil, err // notifications sent before the LISTEN were missed: check at once
	}
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = d.listener.WaitForNotification(until)
	if err != nil && until.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}
