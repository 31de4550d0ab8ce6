package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// declared maps the column types of package sqltable to SQL types for new tables. It uses json
// instead of jsonb because json keeps digits, order and repeated keys.
var declared = map[sqltable.Type]string{
	sqltable.Text: "text", sqltable.Integer: "bigint", sqltable.Number: "numeric",
	sqltable.Float: "double precision",
	sqltable.Bool:  "boolean", sqltable.JSON: "json",
}

// types maps SQL types to column types of package sqltable. All others are Other.
var types = map[string]sqltable.Type{
	"text": sqltable.Text, "bigint": sqltable.Integer, "int8": sqltable.Integer,
	"numeric": sqltable.Number, "double precision": sqltable.Float, "float8": sqltable.Float,
	"boolean": sqltable.Bool, "json": sqltable.JSON, "jsonb": sqltable.JSON,
}

// typeOf returns the column type of package sqltable for the SQL type decl.
func typeOf(decl string) sqltable.Type {
	if t, ok := types[decl]; ok {
		return t
	}
	return sqltable.Other
}

// standard returns the column for a type that a source declares. It reports false if decl does not
// have the form of a type's name.
func standard(decl string) (sqltable.Column, bool) {
	_, err := sqltable.ColumnOption{Name: "c", Type: decl}.Column()
	return sqltable.Column{Type: typeOf(decl), Decl: decl}, err == nil
}

// stageName is the staging table of an upsert. Each connection has one, and every commit empties
// it. rowColumn is its additional column with the number of the row in the batch. Of several rows
// with the same key, the one with the highest number is stored.
const (
	stageName = `pg_temp."penstock_stage"`
	rowColumn = `"penstock_row"`
)

func stageSQL(name sqltable.Name, columns []sqltable.Column) string {
	return fmt.Sprintf(`CREATE TEMP TABLE "penstock_stage" ON COMMIT DELETE ROWS AS SELECT `+
		`0::bigint AS %s, %s FROM %s WITH NO DATA`,
		rowColumn, sqltable.NamesOf(columns), name)
}

func copySQL(table string, columns []sqltable.Column, numbered bool) string {
	names := sqltable.NamesOf(columns)
	if numbered {
		names = rowColumn + "," + names
	}
	form := ""
	if isBinary(columns) {
		form = " (FORMAT binary)"
	}
	return fmt.Sprintf("COPY %s (%s) FROM STDIN%s", table, names, form)
}

// mergeSQL returns the statement that moves the staged rows into the table. If several staged rows
// have the same key, it moves the last one. It moves the rows in the order of their keys, so that
// concurrent transactions lock the same keys in the same order and cannot deadlock.
func mergeSQL(name sqltable.Name, columns []sqltable.Column, key []string) string {
	keys, names := sqltable.QuoteAll(key), sqltable.NamesOf(columns)
	last := fmt.Sprintf("SELECT DISTINCT ON (%s) * FROM %s ORDER BY %s,%s DESC", keys, stageName,
		keys, rowColumn)
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM (%s) AS last %s", name, names, names,
		last, sqltable.OnConflict(columns, key))
}

// Find implements sqlspan.Database. It determines the columns that the sink fills, if the table
// exists or the config lists them. Otherwise they are inferred from the first batch.
func (s server) Find(ctx context.Context, c *conn) error {
	there, err := s.sink.columns(ctx, c)
	if err != nil {
		return err
	}
	exists, err := s.sink.Shape.Found(there)
	s.sink.Table.Found(exists)
	return err
}

// columns returns the columns of the table, or none if it does not exist.
func (s *Sink) columns(ctx context.Context, c *conn) (there []sqltable.Column, err error) {
	err = c.Run(ctx, s.readColumns(&there))
	return there, err
}

// lockTable returns a statement that prevents changes to the columns of the table until the
// transaction ends. The lock is the same as that of COPY. Without it, a change could commit after
// the columns were read and before COPY begins. The statement does nothing if the table does not
// exist or is of a kind that cannot be locked, or if the user lacks the right to lock it. A user
// who may insert only into some of the columns lacks this right.
func (s *Sink) lockTable() *sqlspan.Statement {
	return &sqlspan.Statement{SQL: "DO '" + strings.ReplaceAll(fmt.Sprintf(
		`BEGIN LOCK TABLE ONLY %s IN ROW EXCLUSIVE MODE; EXCEPTION WHEN undefined_table OR `+
			`insufficient_privilege OR wrong_object_type THEN END`, s.name), "'", "''") + "'"}
}

// readColumns returns a statement that reads the columns of the table into *columns. It reads none
// if the table does not exist.
func (s *Sink) readColumns(columns *[]sqltable.Column) *sqlspan.Statement {
	var c sqltable.Column
	return &sqlspan.Statement{SQL: s.columnsText, Args: []any{s.name.String()},
		Dest: []any{&c.Name, &c.Decl, &c.Own}, Row: func() {
			c.Type = typeOf(c.Decl)
			*columns = append(*columns, c)
		}}
}

// checkColumns checks that the table still has the column types for which rows are encoded, because
// the binary form of one type is invalid for another.
func (s *Sink) checkColumns(t *sqltable.Table, there []sqltable.Column) error {
	if len(there) == 0 {
		s.Table.Found(false)
		return fmt.Errorf("the table %s does not exist; it will be created again", s.name)
	}
	for _, c := range t.Columns {
		i := sqltable.IndexOf(there, c.Name)
		want := dialect.Decl(c)
		switch {
		case i < 0:
			err := fmt.Errorf("the table %s has lost its column %q; add it, or restart penstock",
				s.name, c.Name)
			return &stream.Misconfigured{Err: err}
		case there[i].Type != c.Type || c.Type == sqltable.JSON && there[i].Decl != want:
			err := fmt.Errorf("column %q of the table %s is %s, but was %s when this run began; "+
				"restart penstock",
				c.Name, s.name, there[i].Decl, want)
			return &stream.Misconfigured{Err: err}
		}
	}
	return nil
}

// Prepare implements sqlspan.Writer. It creates the table and, in mode upsert, the staging table if
// they do not exist.
func (w *writer) Prepare(ctx context.Context, c *conn, b *stream.Batch) error {
	s := w.sink
	columns := s.Shape.For(b).Columns
	if err := s.makeTable(ctx, c.Conn, columns); err != nil {
		return err
	}
	if s.o.Mode == sqltable.Upsert && !c.stage {
		if _, err := c.Exec(ctx, stageSQL(s.name, columns)); err != nil {
			return fmt.Errorf("create the staging table: %w", err)
		}
		c.stage = true
	}
	return nil
}

// makeTable creates the table if it does not exist. If several lanes call it, one creates the table
// and the others wait, because concurrent creation can fail in PostgreSQL.
func (s *Sink) makeTable(ctx context.Context, c *pgx.Conn, columns []sqltable.Column) error {
	return s.Table.Once(ctx, func() error {
		_, err := c.Exec(ctx, sqltable.CreateSQL(s.name, columns, s.o.Key, dialect.Decl))
		if err != nil && collided(err) {
			return fmt.Errorf("another process is creating the table, too: %v", err)
		}
		if r, ok := errors.AsType[*stream.Rejected](outcome(err)); ok { // no fault of the records
			return &stream.Misconfigured{Err: fmt.Errorf("create the table: %w", r.Err)}
		}
		if err != nil {
			return fmt.Errorf("create the table: %w", err)
		}
		return nil
	})
}
