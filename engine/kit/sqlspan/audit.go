package sqlspan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Audited describes how a database recounts the rows of a sink's table, for an audit
// ([stream.Audit]). The audit inserts the expected rows into a temporary table. The database then
// compares the two tables, so that both sides of each comparison have the same type.
type Audited[C Session] struct {
	Server Server[C]
	Ledger *Ledger // the ledger of the sink, after Open
	Shape  *sqltable.Shape
	Table  sqltable.Name
	Key    []string // the key in mode upsert, in which only keys are compared

	// Columns returns the columns of the table, or none if it does not exist.
	Columns func(ctx context.Context, c C) ([]sqltable.Column, error)
	// Shadow is the SQL name of the temporary table for the expected rows. Create is the beginning
	// of its CREATE statement, up to the name of the table.
	Shadow, Create string
	// At is an SQL value. Its type becomes the type of the column for record ids in the temporary
	// table.
	At string
	// Same returns an SQL expression for a column, for use in comparisons. For two rows, the
	// results of the expression are equal if the rows have the same value in the column, and
	// different otherwise.
	Same func(column string) string
	// Value returns a cell of an expected row as an argument of the INSERT statement. The database
	// converts the argument to the column's type.
	Value func(c *sqltable.Column, cell []byte) any
	// Outcome maps an error of the database to an outcome of package flow.
	Outcome func(err error) error
}

// Limits on the size of one INSERT into the temporary table.
const (
	auditArgs  = 800
	auditBytes = 256 << 10
)

// audit implements stream.Audit.
type audit[C Session] struct {
	Audited[C]
	c      C
	exists bool
	shadow bool // the temporary table exists
	missed int64
	rows   sqltable.Rows

	pending []pendingRow
	bytes   int
}

// pendingRow is an expected row that is not in the temporary table yet.
type pendingRow struct {
	args   []any
	batch  *stream.Batch
	record int
}

// Audit connects to the database and returns the audit of its table.
func (a Audited[C]) Audit(ctx context.Context) (stream.Audit, error) {
	c, err := a.Server.Connect(ctx)
	if err != nil {
		return nil, err
	}
	out := &audit[C]{Audited: a, c: c}
	columns, err := a.Columns(ctx, c)
	if err == nil {
		out.exists, err = a.Shape.Found(columns)
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// Close implements stream.Audit. The temporary table ends with the connection.
func (a *audit[C]) Close() error {
	a.Server.Close(a.c)
	return nil
}

// Ledger implements stream.Audit.
func (a *audit[C]) Ledger(ctx context.Context) ([]stream.Mark, bool, error) {
	exists, err := report(ctx, a.c, a.Audited.Ledger.d.Present)
	if err != nil || !exists {
		return nil, true, err
	}
	marks, err := a.Audited.Ledger.read(ctx, a.c)
	return marks, true, err
}

// Expect implements stream.Audit.
func (a *audit[C]) Expect(ctx context.Context, b *stream.Batch) error {
	if !a.exists {
		a.missed += int64(b.Kept())
		return nil
	}
	table := a.Shape.Known()
	if !a.shadow {
		create := fmt.Sprintf("%s AS SELECT %s AS penstock_at, %s FROM %s WHERE 1 = 0", a.Create,
			a.At, sqltable.NamesOf(table.Columns), a.Table)
		if err := a.c.Run(ctx, &Statement{SQL: create}); err != nil {
			return fmt.Errorf("create a temporary table: %w", err)
		}
		a.shadow = true
	}
	a.rows.Over(table, b)
	for _, i := range b.AppendKept(nil) {
		if a.rows.Row(i) != "" {
			b.Drop(i) // the sink has refused it for the same reason
			continue
		}
		args := []any{string(b.AppendRecordID(nil, i))}
		for k, cell := range a.rows.Cells {
			args = append(args, a.Value(&table.Columns[k], cell))
			a.bytes += len(cell)
		}
		a.pending = append(a.pending, pendingRow{args, b, i})
		if (len(a.pending)+1)*len(args) > auditArgs || a.bytes > auditBytes {
			if err := a.flush(ctx); err != nil {
				return err
			}
		}
	}
	return a.flush(ctx)
}

// flush inserts the pending rows into the temporary table with one statement. If the database
// refuses this statement, flush inserts the rows one by one, and drops the records of refused rows.
func (a *audit[C]) flush(ctx context.Context) error {
	rows := a.pending
	a.pending, a.bytes = a.pending[:0], 0
	if len(rows) == 0 {
		return nil
	}
	refused, err := a.insert(ctx, rows)
	if !refused {
		return err
	}
	for i := range rows {
		if refused, err = a.insert(ctx, rows[i:i+1]); refused {
			rows[i].batch.Drop(rows[i].record)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// insert inserts rows with one statement. refused reports whether the database refuses a row.
func (a *audit[C]) insert(ctx context.Context, rows []pendingRow) (refused bool, err error) {
	var args []any
	for _, row := range rows {
		args = append(args, row.args...)
	}
	places := ", (?" + strings.Repeat(", ?", len(rows[0].args)-1) + ")"
	sql := "INSERT INTO " + a.Shadow + " VALUES " + strings.Repeat(places, len(rows))[2:]
	err = a.c.Run(ctx, &Statement{SQL: a.Audited.Ledger.d.shared(sql), Args: args})
	_, refused = errors.AsType[*stream.Rejected](a.Outcome(err))
	return refused, err
}

// Compare implements stream.Audit.
func (a *audit[C]) Compare(ctx context.Context, found func(stream.AuditDifference) error) error {
	if !a.exists && a.missed > 0 {
		return fmt.Errorf("the table %s does not exist, but %d records must be in it", a.Table,
			a.missed)
	}
	if !a.shadow {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var d stream.AuditDifference
	var failed error
	err := a.c.Run(ctx, &Statement{SQL: a.compareSQL(), Dest: []any{&d.RecordID, &d.Missing},
		Row: func() {
			if failed == nil {
				failed = found(d)
			}
			if failed != nil {
				cancel(failed)
			}
		}})
	return cmp.Or(failed, err)
}

// compareSQL returns the query for the differences between the expected and the stored rows. Each
// expected row counts 1, and each stored row counts -1. The query forms sets of equal rows. For
// each set with at least one expected row and a sum other than 0, it returns a record id and the
// sum. Example: a row that is expected twice and stored once has the sum 1. In mode upsert, the
// query returns a record id for each expected key that no stored row has.
func (a *audit[C]) compareSQL() string {
	columns, count, differs := a.Key, "1", "MIN(penstock_n) = 1"
	if len(columns) == 0 {
		for _, c := range a.Shape.Known().Columns {
			columns = append(columns, c.Name)
		}
		count, differs = "SUM(penstock_n)", "SUM(penstock_n) <> 0"
	}
	var values, names []string
	for i, c := range columns {
		names = append(names, fmt.Sprintf("c%d", i))
		values = append(values, a.Same(sqltable.Quote(c))+" AS "+names[i])
	}
	list := strings.Join(values, ", ")
	return fmt.Sprintf(
		"SELECT MIN(penstock_at), %s FROM (SELECT penstock_at, 1 AS penstock_n, %s FROM %s "+
			"UNION ALL SELECT NULL, -1, %s FROM %s) AS penstock_u GROUP BY %s "+
			"HAVING %s AND MIN(penstock_at) IS NOT NULL ORDER BY 1",
		count, list, a.Shadow, list, a.Table, strings.Join(names, ", "), differs)
}
