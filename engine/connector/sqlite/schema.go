package sqlite

import (
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// declared maps the column types of package sqltable to SQL types for new tables. Number has no SQL
// type, so that SQLite does not convert it: a number that neither an integer nor a float represents
// exactly stays text.
var declared = map[sqltable.Type]string{
	sqltable.Text: "TEXT", sqltable.Integer: "INTEGER", sqltable.Number: "", sqltable.Float: "REAL",
	sqltable.Bool: "BOOLEAN", sqltable.JSON: "TEXT", sqltable.Bytes: "BLOB",
}

// standardTypes maps the types that sources declare to column types. All others become Text. The
// type numeric gets a column without an SQL type, which keeps all digits.
var standardTypes = map[string]sqltable.Type{
	"smallint": sqltable.Integer, "integer": sqltable.Integer, "bigint": sqltable.Integer,
	"oid": sqltable.Integer, "boolean": sqltable.Bool, "real": sqltable.Float,
	"double precision": sqltable.Float, "numeric": sqltable.Number, "json": sqltable.JSON,
	"jsonb": sqltable.JSON, "bytea": sqltable.Bytes,
}

// standard returns the column for a type that a source declares.
func standard(decl string) (sqltable.Column, bool) {
	word, _, _ := strings.Cut(decl, "(")
	return sqltable.Column{Type: standardTypes[strings.TrimSpace(word)]}, true
}

// columnsOf returns a table's columns except generated and hidden ones, or none if there is no such
// table.
func (c *connection) columnsOf(name sqltable.Name) (columns []sqltable.Column, err error) {
	var column sqltable.Column
	err = c.Run(forever(), &sqlspan.Statement{
		SQL: `SELECT name, type, dflt_value IS NOT NULL FROM pragma_table_xinfo(?)
			WHERE hidden = 0`,
		Args: []any{name.Table}, Dest: []any{&column.Name, &column.Decl, &column.Own},
		Row: func() {
			column.Type = typeOf(column.Decl)
			columns = append(columns, column)
		}})
	return columns, err
}

// typeOf returns the column type for a declared SQL type. It follows SQLite's rules of type
// affinity (https://sqlite.org/datatype3.html, section 3.1), except that BOOL means true or false.
// Values of the type Other, such as a DECIMAL, are passed as text, and SQLite may convert them to
// numbers.
func typeOf(decl string) sqltable.Type {
	d := strings.ToUpper(decl)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(d, w) })
	}
	switch {
	case has("BOOL"):
		return sqltable.Bool
	case has("INT"):
		return sqltable.Integer
	case has("CHAR", "CLOB", "TEXT"):
		return sqltable.Text
	case d == "":
		return sqltable.Number
	case has("BLOB"):
		return sqltable.Bytes
	case has("REAL", "FLOA", "DOUB"):
		return sqltable.Float
	}
	return sqltable.Other
}

// find determines the columns that the sink fills, if the table exists or the config lists them.
// Otherwise they are inferred from the first batch.
func (s *Sink) find(c *connection) error {
	there, err := c.columnsOf(s.name)
	if err == nil {
		s.lane.exists, err = s.shape.Found(there)
	}
	return err
}

// makeTable creates the table in the current transaction.
func (s *Sink) makeTable(c *connection, b *stream.Batch) error {
	columns := s.shape.For(b).Columns
	_, err := c.Exec(forever(), sqltable.CreateSQL(s.name, columns, s.o.Key, dialect.Decl))
	return err
}
