package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/retry"
)

// postgresSyntax is the syntax of PostgreSQL.
var postgresSyntax = syntax{quote: sqltable.Quote, descending: " DESC NULLS LAST", numbered: true}

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
			return nil, errShape
		}
		dst = r.keys.append(dst, i, v)
	}
	return dst, nil
}

// read runs the query of q, and calls row for each row, until row returns false. The select list
// consists of the parameter list, which has n columns as text, and the order_by columns.
func (d *postgres) read(ctx context.Context, r *relation, q rowQuery, list string, n int,
	row func(rr *pgconn.ResultReader) (more bool, err error)) error {
	sql, keys, err := postgresSyntax.query(list+postgresSyntax.list(r, r.order), r, q)
	if err != nil {
		return err
	}
	var args [][]byte
	var oids []uint32
	var formats []int16
	for _, k := range keys {
		id := k.column.id
		if k.bound && (id == oidInt2 || id == oidInt4 || id == oidOid) {
			id = oidInt8
		}
		value, format := argument(id, k.value)
		args, oids, formats = append(args, value), append(oids, id), append(formats, format)
	}
	results := keyFormats(make([]int16, n, n+len(r.order)), r)
	checked := false
	err = d.run(ctx, func(rr *pgconn.ResultReader) (more bool, err error) {
		if !checked {
			if checked = true; !sameKeys(r, rr.FieldDescriptions(), n) {
				return false, errShape
			}
		}
		return row(rr)
	}, sql, args, oids, formats, results)
	// A protocol violation means that the number of result columns differs from the number of
	// requested formats, because the columns have changed.
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == protocolViolation ||
		errors.Is(err, errShape) {
		return d.reshaped(ctx, r)
	}
	return explained(err, r)
}

// rows implements database.
func (d *postgres) rows(ctx context.Context, r *relation, q rowQuery, f *filling) error {
	n := len(r.columns)
	var key []byte
	checked := false
	return d.read(ctx, r, q, "q.*, ", n, func(rr *pgconn.ResultReader) (more bool, err error) {
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
}

var errShape = errors.New("the columns are others")

// sameKeys reports whether the order_by columns of a result still have the types at the start of
// the run. They follow n other columns.
func sameKeys(r *relation, now []pgconn.FieldDescription, n int) bool {
	if len(now) != n+len(r.order) {
		return false
	}
	for i, c := range r.order {
		if now[n+i].DataTypeOID != r.columns[c].id {
			return false
		}
	}
	return true
}

// sameColumns reports whether the columns of a result are still those at the start of the run.
func sameColumns(r *relation, now []pgconn.FieldDescription) bool {
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
	next := eachKey(appendKey, r, each)
	return d.read(ctx, r, q, "", 0, func(rr *pgconn.ResultReader) (bool, error) {
		return next(rr.Values())
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
	q.last = true
	err = d.read(ctx, r, q, "pg_snapshot_xmax(pg_current_snapshot())::text, ", 1,
		func(rr *pgconn.ResultReader) (more bool, err error) {
			values := rr.Values()
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
	err = d.query(ctx, func(v [][]byte) { all = append(all, string(v[0])) },
		`SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = $1::oid
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')`, []byte(r.version))
	return all, err
}

// passed implements database.
func (d *postgres) passed(ctx context.Context, r *relation,
	waiting []observation) (n int, err error) {
	oldest := uint64(0)
	err = d.query(ctx, func(v [][]byte) {
		oldest, _ = strconv.ParseUint(string(v[0]), 10, 64) // 0 would let nothing pass
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
	err = d.query(ctx, func([][]byte) { found = true }, postgresSyntax.nullKey(r))
	return found, explained(err, r)
}

// sameTable returns an error if the table was dropped or recreated.
func (d *postgres) sameTable(ctx context.Context, r *relation) error {
	if r.version == "" {
		return nil
	}
	now := ""
	err := d.query(ctx, func(v [][]byte) { now = string(v[0]) },
		`SELECT to_regclass($1)::oid`, []byte(r.from))
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
