package mysql

import (
	"bytes"
	"context"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Audit implements stream.AuditedSink: the audit compares the table with the source. The user of
// the database needs the privilege CREATE TEMPORARY TABLES.
func (s *Sink) Audit(ctx context.Context, o stream.SinkOptions) (stream.Audit, error) {
	if err := s.configure(o, auditIdle); err != nil {
		return nil, err
	}
	a, err := sqlspan.Audited[*connection]{
		Server: server{s}, Ledger: s.Ledger, Shape: s.Shape, Table: s.name, Key: s.o.Key,
		Columns: s.columns,
		Shadow:  "penstock_audit", Create: "CREATE TEMPORARY TABLE penstock_audit",
		At:      "repeat(' ', 4000)",
		Same:    func(column string) string { return "cast(" + column + " AS BINARY)" },
		Value:   literal,
		Outcome: outcome,
	}.Audit(ctx)
	if err != nil {
		return nil, fmt.Errorf("sink mysql: %w", err)
	}
	return a, nil
}

// literal returns a cell as a statement's argument. The argument has the same value as the SQL
// literal that appendLiteral writes for the cell.
func literal(c *sqltable.Column, cell []byte) any {
	switch {
	case cell == nil:
		return nil
	case c.Type == sqltable.Bool && cell[0] == 't':
		return true
	case c.Type == sqltable.Bool && cell[0] == 'f':
		return false
	case c.Type == sqltable.Bytes, c.Type == sqltable.Bits:
		if raw, ok := sqltable.HexBytes(cell); ok {
			return raw
		}
		return bytes.Clone(cell)
	case c.Type == sqltable.Other && isMoment(c.Decl):
		cell = withoutUTC(cell)
	}
	return string(cell)
}
