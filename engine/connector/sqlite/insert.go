package sqlite

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Limits of an INSERT with several rows. It is faster than single-row statements.
const (
	maxRows = 64
	maxArgs = 800
)

func rowsPerInsert(columns int) int { return min(maxRows, max(1, maxArgs/max(1, columns))) }

func insertSQL(name sqltable.Name, columns []sqltable.Column, key []string, rows int) string {
	row := "(" + strings.Repeat("?,", len(columns)-1) + "?)"
	sql := fmt.Sprintf("INSERT INTO %s (%s) VALUES %s%s", name, sqltable.NamesOf(columns),
		strings.Repeat(row+",", rows-1), row)
	if len(key) == 0 {
		return sql
	}
	return sql + " " + sqltable.OnConflict(columns, key)
}

// inserting has the state of a write of the rows of a batch in the current transaction.
type inserting struct {
	s        *Sink
	c        *connection
	table    *sqltable.Table
	rows     sqltable.Rows
	waiting  []int // records whose values are in args but not written yet
	refusals []sqltable.Refusal
}

// write writes all kept records of b (neither dropped nor dead-lettered). After a refused record,
// it continues with the next one, so that one error can report several records ([sqltable.Answer]).
// A rolledBackError, or an error that is not about a record, ends write at once. After an error,
// the caller must roll back the writes.
func (w *inserting) write(b *stream.Batch) error {
	w.waiting, w.refusals = w.waiting[:0], w.refusals[:0]
	w.table = w.s.shape.For(b)
	w.rows.Over(w.table, b)
	columns := w.table.Columns
	per := rowsPerInsert(len(columns))
	w.c.args = slices.Grow(w.c.args[:0], per*len(columns))
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		if reason := w.rows.Row(i); reason != "" {
			refusal := w.rows.Refusal(i, reason)
			if err := w.s.shape.Unfit(refusal); err != nil {
				return &stream.Misconfigured{Err: err}
			}
			w.refusals = append(w.refusals, refusal)
			continue
		}
		w.waiting = append(w.waiting, i)
		w.c.bind(columns, w.rows.Cells)
		if len(w.waiting) == per {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	if len(w.refusals) > 0 {
		slices.SortFunc(w.refusals, func(a, b sqltable.Refusal) int { return a.Record - b.Record })
		return sqltable.Answer(b, w.refusals)
	}
	return nil
}

// flush writes the waiting rows. If there are as many as one INSERT can have, flush first tries to
// write them with one statement. If there are fewer, or if the database refuses that statement,
// flush writes the rows one by one, and collects the refused ones.
func (w *inserting) flush() error {
	n, columns := len(w.waiting), len(w.table.Columns)
	defer func() { w.waiting, w.c.args = w.waiting[:0], w.c.args[:0] }()
	if n == 0 {
		return nil
	}
	if n == rowsPerInsert(columns) {
		err := w.insert(n, w.c.args)
		if err == nil || !refusesRow(err) {
			return err
		}
		if w.c.hasEnded() {
			return &rolledBackError{err}
		}
	}
	for k, record := range w.waiting {
		args := w.c.args[k*columns : (k+1)*columns]
		for i := range args {
			args[i].Ordinal = i + 1
		}
		err := w.insert(1, args)
		if err != nil && refusesRow(err) {
			if w.c.hasEnded() {
				return &rolledBackError{err}
			}
			w.refusals = append(w.refusals, sqltable.Refusal{Record: record, Reason: err.Error()})
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (w *inserting) insert(rows int, args []driver.NamedValue) error {
	stmt := w.c.inserts[rows]
	if stmt == nil {
		prepared, err := w.c.Conn.Prepare(insertSQL(w.s.name, w.table.Columns, w.s.o.Key, rows))
		if err != nil {
			return err
		}
		var ok bool
		if stmt, ok = prepared.(driver.StmtExecContext); !ok {
			return errors.Join(errors.New("the SQLite driver's statements lack ExecContext"),
				prepared.Close())
		}
		w.c.inserts[rows] = stmt
	}
	_, err := stmt.ExecContext(forever(), args)
	return err
}

// bind appends the cells of one row to the arguments of the next INSERT.
func (c *connection) bind(columns []sqltable.Column, cells [][]byte) {
	for i := range columns {
		c.args = append(c.args, driver.NamedValue{Ordinal: len(c.args) + 1,
			Value: value(columns[i].Type, cells[i])})
	}
}

// value returns the argument for a cell, chosen such that SQLite stores the value unchanged.
func value(t sqltable.Type, cell []byte) driver.Value {
	if cell == nil {
		return nil
	}
	switch t {
	case sqltable.Integer:
		if n, err := strconv.ParseInt(string(cell), 10, 64); err == nil {
			return n
		}
	case sqltable.Float:
		if f, err := strconv.ParseFloat(string(cell), 64); err == nil {
			return f
		}
	case sqltable.Number:
		return exact(cell)
	case sqltable.Bytes:
		if raw, ok := sqltable.HexBytes(cell); ok {
			return raw
		}
	case sqltable.Bool:
		return int64(len("false") - len(cell)) // 1 for true, 0 for false
	}
	return string(cell)
}

// exact returns the number in a cell as an integer or a float, if that prints as the same text.
// Otherwise it returns the text. Example: 1.50 stays text, because the float prints as 1.5.
func exact(cell []byte) driver.Value {
	if n, err := strconv.ParseInt(string(cell), 10, 64); err == nil && (cell[0] != '-' || n != 0) {
		return n
	}
	if f, err := strconv.ParseFloat(string(cell), 64); err == nil && f != 0 && bytes.IndexByte(cell, '.') > 0 {
		var buf [32]byte
		if string(strconv.AppendFloat(buf[:0], f, 'f', -1, 64)) == string(cell) {
			return f
		}
	}
	return string(cell)
}
