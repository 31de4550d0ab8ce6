package mysql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// declared maps the column types of package sqltable to SQL types for new tables.
var declared = map[sqltable.Type]string{
	sqltable.Text: "longtext", sqltable.Integer: "bigint", sqltable.Number: "decimal(65,30)",
	sqltable.Float: "double",
	sqltable.Bool:  "boolean", sqltable.JSON: "json", sqltable.Bytes: "longblob",
}

// spatial has the types of spatial values. The server accepts and returns them as bytes.
var spatial = []string{"geometry", "point", "linestring", "polygon", "multipoint",
	"multilinestring", "multipolygon", "geometrycollection", "geomcollection"}

// typeOf returns the column type of package sqltable for the SQL type decl.
func typeOf(decl string) sqltable.Type {
	word, _, _ := strings.Cut(strings.ToLower(decl), " ")
	word, _, args := strings.Cut(word, "(")
	switch {
	case decl == "tinyint(1)", word == "boolean":
		return sqltable.Bool
	case word == "bigint" && !strings.Contains(decl, "unsigned"):
		return sqltable.Integer
	case decl == "decimal(65,30)":
		return sqltable.Number
	case word == "double" && !args:
		return sqltable.Float
	case word == "json":
		return sqltable.JSON
	case strings.HasSuffix(word, "text"):
		return sqltable.Text
	case strings.HasSuffix(word, "blob"), strings.HasSuffix(word, "binary"),
		slices.Contains(spatial, word):
		return sqltable.Bytes
	case word == "bit":
		return sqltable.Bits
	}
	return sqltable.Other
}

// maxVarchar is the longest declared length for which a column becomes a varchar. A longer column
// becomes a longtext. keyVarchar is the length of text and binary columns in a key: MySQL cannot
// index them without a limit.
const (
	maxVarchar = 4000
	keyVarchar = 255
)

// standardColumns has the MySQL column for each type that sources declare without a length or
// precision. All other types become texts, except numeric and character varying, which the function
// standard converts.
var standardColumns = map[string]sqltable.Column{
	"smallint":                    {Type: sqltable.Other, Decl: "smallint"},
	"integer":                     {Type: sqltable.Other, Decl: "int"},
	"bigint":                      {Type: sqltable.Integer, Decl: "bigint"},
	"oid":                         {Type: sqltable.Integer, Decl: "bigint"},
	"boolean":                     {Type: sqltable.Bool, Decl: "boolean"},
	"real":                        {Type: sqltable.Other, Decl: "float"},
	"double precision":            {Type: sqltable.Float, Decl: "double"},
	"json":                        {Type: sqltable.JSON},
	"jsonb":                       {Type: sqltable.JSON},
	"bytea":                       {Type: sqltable.Bytes},
	"date":                        {Type: sqltable.Other, Decl: "date"},
	"timestamp without time zone": {Type: sqltable.Other, Decl: "datetime(6)"},
	"timestamp with time zone":    {Type: sqltable.Other, Decl: "timestamp(6) null"},
	"uuid":                        {Type: sqltable.Other, Decl: "char(36)"},
}

// standard returns the column for a type that a source declares. A numeric becomes a decimal if
// MySQL supports its precision and scale. Otherwise it is stored as text, which keeps its digits. A
// character varying becomes a varchar if it is not too long. All other types are in
// standardColumns.
func standard(decl string) (sqltable.Column, bool) {
	word, args, _ := strings.Cut(strings.TrimSuffix(decl, ")"), "(")
	switch word = strings.TrimSpace(word); word {
	case "numeric":
		if p, s, ok := strings.Cut(args, ","); ok {
			precision, err1 := strconv.Atoi(p)
			scale, err2 := strconv.Atoi(s)
			if err1 == nil && err2 == nil && precision <= 65 && scale >= 0 && scale <= 30 &&
				scale <= precision {
				return sqltable.Column{Type: sqltable.Other, Decl: "decimal(" + args + ")"}, true
			}
		}
	case "character varying":
		if n, err := strconv.Atoi(args); err == nil && n <= maxVarchar {
			return sqltable.Column{Type: sqltable.Other, Decl: "varchar(" + args + ")"}, true
		}
	}
	return standardColumns[word], true
}

// keyCollation returns the collation for texts in the key of a created table. In this collation,
// texts are equal only if their bytes are equal. Servers before MySQL 8.0.17 and MariaDB 10.2 lack
// such a collation. For them, keyCollation returns utf8mb4_bin, which ignores spaces at the ends of
// texts.
func keyCollation(ctx context.Context, c *connection) (name string, err error) {
	name = "utf8mb4_bin"
	err = c.Run(ctx, &sqlspan.Statement{SQL: `SELECT collation_name
		FROM information_schema.collations
		WHERE collation_name IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin')`, Dest: []any{&name}})
	return name, err
}

func createSQL(name sqltable.Name, columns []sqltable.Column, key []string,
	collation string) string {
	return sqltable.CreateSQL(name, columns, key, func(c sqltable.Column) string {
		decl := dialect.Decl(c)
		if strings.HasPrefix(decl, "timestamp") && !strings.Contains(decl, " null") {
			decl += " null" // without it, some servers store the current time for NULL
		}
		if !slices.Contains(key, c.Name) {
			return decl
		}
		switch c.Type {
		case sqltable.Text:
			decl = "varchar(" + strconv.Itoa(keyVarchar) + ") COLLATE " + collation
		case sqltable.Bytes:
			decl = "varbinary(" + strconv.Itoa(keyVarchar) + ")"
		}
		return strings.TrimSuffix(strings.TrimSuffix(decl, " null"), " not")
	}) + " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
}

// columnsSQL selects the columns of a table except generated ones.
const columnsSQL = `SELECT column_name, column_type,
	(column_default IS NOT NULL AND column_default <> 'NULL') OR extra LIKE '%auto_increment%'
	FROM information_schema.columns WHERE table_schema = coalesce(nullif(?, ''), DATABASE()) AND table_name = ?
	AND extra NOT LIKE '% GENERATED%' ORDER BY ordinal_position`

// jsonSQL selects the constraints of a table in MariaDB. There, JSON is a text with a constraint.
const jsonSQL = `SELECT check_clause FROM information_schema.check_constraints
	WHERE constraint_schema = coalesce(nullif(?, ''), DATABASE()) AND table_name = ?`

// tableQuery returns a query about the table, whose schema and name are the query's arguments. See
// [sqlspan.Statement] for row and dest.
func (s *Sink) tableQuery(sql string, row func(), dest ...any) *sqlspan.Statement {
	return &sqlspan.Statement{SQL: sql, Args: []any{s.name.Schema, s.name.Table}, Row: row,
		Dest: dest}
}

func (s *Sink) columns(ctx context.Context, c *connection) (columns []sqltable.Column, err error) {
	var column sqltable.Column
	err = c.Run(ctx, s.tableQuery(columnsSQL, func() {
		column.Type = typeOf(column.Decl)
		columns = append(columns, column)
	}, &column.Name, &column.Decl, &column.Own))
	if err != nil {
		return nil, err
	}
	check := ""
	err = c.Run(ctx, s.tableQuery(jsonSQL, func() {
		for i := range columns {
			if check == "json_valid("+sqltable.Quote(columns[i].Name)+")" {
				columns[i].Type = sqltable.JSON
			}
		}
	}, &check))
	if n := numberOf(err); n == noSuchColumn || n == unknownTable {
		err = nil // MySQL, which has a type JSON
	}
	return columns, err
}

// Find implements sqlspan.Database. It checks the table if it exists. It determines the columns
// that the sink fills, if the table exists or the config lists them. Otherwise they are inferred
// from the first batch.
func (s server) Find(ctx context.Context, c *connection) error {
	there, err := s.sink.columns(ctx, c)
	if err != nil {
		return err
	}
	exists, err := s.sink.Shape.Found(there)
	s.sink.Table.Found(exists)
	if err == nil && exists {
		err = s.sink.checkTable(ctx, c)
	}
	return err
}

// Prepare implements sqlspan.Writer. It creates the table if it does not exist. If several lanes
// call it, one creates the table and the others wait. It must run outside of a transaction, which
// MySQL would commit before it creates a table.
func (w *writer) Prepare(ctx context.Context, c *connection, b *stream.Batch) error {
	s := w.sink
	return s.Table.Once(ctx, func() error {
		collation, err := keyCollation(ctx, c)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, createSQL(s.name, s.Shape.For(b).Columns, s.o.Key, collation))
		if isDefinition(err) {
			return &stream.Misconfigured{Err: fmt.Errorf("create the table: %w", err)}
		}
		if err != nil {
			return fmt.Errorf("create the table: %w", err)
		}
		return nil
	})
}

// vanished marks the data's table as missing if err means that this table was dropped, so that the
// sink creates it again. Every lane that gets this error retries its batch. If another table is
// missing, such as a table of the ledger or of a trigger, the sink does not create it. If the
// data's table has lost a column, vanished returns a Misconfigured.
func (s *Sink) vanished(err error) error {
	switch numberOf(err) {
	case noSuchTable:
		if s.names(err) {
			s.Table.Found(false)
			return fmt.Errorf("the table %s does not exist; it will be created again "+
				"(%v)", s.name, err)
		}
	case noSuchColumn:
		return &stream.Misconfigured{Err: fmt.Errorf(
			"the table %s has lost a column; add it, or restart penstock: %w", s.name, err)}
	}
	return err
}

// names reports whether the server's message, such as "Table 'schema.table' doesn't exist", names
// the data's table. Some servers store names in lower case.
func (s *Sink) names(err error) bool {
	name := "." + s.name.Table + "'"
	if s.name.Schema != "" {
		name = "'" + s.name.Schema + name
	}
	return strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name))
}
