package postgres

import (
	"context"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Audit implements stream.AuditedSink: the audit compares the table with the source. The database
// user needs the privilege TEMPORARY.
func (s *Sink) Audit(ctx context.Context, o stream.SinkOptions) (stream.Audit, error) {
	if err := s.configure(o); err != nil {
		return nil, err
	}
	a, err := sqlspan.Audited[*conn]{
		Server: server{s}, Ledger: s.Ledger, Shape: s.Shape, Table: s.name, Key: s.o.Key,
		Columns: s.columns,
		Shadow:  "pg_temp.penstock_audit",
		Create:  "CREATE TEMP TABLE penstock_audit", At: "''::text",
		Same:    func(column string) string { return column + "::text" },
		Value:   textArgument,
		Outcome: outcome,
	}.Audit(ctx)
	if err != nil {
		return nil, fmt.Errorf("sink postgres: %w", err)
	}
	return a, nil
}

// textArgument returns a cell as a statement's argument. It is text, which the server parses
// according to the column's type.
func textArgument(_ *sqltable.Column, cell []byte) any {
	if cell == nil {
		return nil
	}
	return string(cell)
}
