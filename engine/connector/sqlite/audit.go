package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Audit implements stream.AuditedSink. The audit writes only to a temporary table. SQLite itself
// may still move the rest of a write-ahead log into the file when the last connection closes.
func (s *Sink) Audit(ctx context.Context, o stream.SinkOptions) (stream.Audit, error) {
	file, err := newServer(s.o.Path, "")
	if err == nil {
		_, err = os.Stat(file.path)
	}
	if err != nil {
		return nil, fmt.Errorf("sink sqlite: %w", err)
	}
	s.Ledger.Open(o, s.o.Ledger, s.o.Table, s.dialectOf)
	a, err := sqlspan.Audited[*connection]{
		Server: file, Ledger: s.Ledger, Shape: s.shape, Table: s.name, Key: s.o.Key,
		Columns: func(_ context.Context, c *connection) ([]sqltable.Column, error) {
			return c.columnsOf(s.name)
		},
		Shadow: "temp.penstock_audit", Create: "CREATE TEMP TABLE penstock_audit", At: "''",
		Same:    func(column string) string { return column + " COLLATE BINARY" },
		Value:   argument,
		Outcome: auditOutcome,
	}.Audit(ctx)
	if err != nil {
		return nil, fmt.Errorf("sink sqlite %q: %w", s.o.Path, err)
	}
	return a, nil
}

// argument returns a cell as a statement's argument, for package sqlspan.
func argument(c *sqltable.Column, cell []byte) any { return driver.Value(value(c.Type, cell)) }

// auditOutcome returns the outcome of an error during an audit. The audit inserts rows into a
// temporary table. If the database refuses such a row, the outcome is [stream.Rejected], otherwise
// the result of the function outcome.
func auditOutcome(err error) error {
	if refusesRow(err) {
		return &stream.Rejected{Err: err}
	}
	return outcome(err)
}
