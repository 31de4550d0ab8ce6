//penstock:pure

// Package sqltable converts records to rows of a SQL table, for the sinks that write to one.
//
// It contains names and their quoting, the typed columns of a table, and [Rows], which converts the
// records of a batch. A sink owns its [Table]; tables are immutable and safe for concurrent use.
// The package never talks to a database and never builds a statement from data: fields whose names
// cannot be columns are stored in the JSON column.
//
// A value that its column cannot store unchanged is never rounded, truncated or omitted. It goes to
// the JSON column with its digits, or its record is refused (see [Policy]).
package sqltable

import (
	"slices"
	"strings"
)

// Type is the type of a column's values.
type Type uint8

// The types of a column.
const (
	Text    Type = iota // text; accepts every value unchanged
	Integer             // 64-bit integers
	Number              // any number, with all its digits
	// 64-bit binary floats; numbers are rounded, because the config asks for it
	Float
	Bool  //
	JSON  // any value as JSON; objects and arrays unchanged
	Other // a database type, which validates each text itself
	// raw bytes, from a text of \x and two hexadecimal digits per byte; other texts unchanged
	Bytes
)

// Column is one column of a table.
type Column struct {
	Name string
	Type Type
	// the database's name of the type, if Type is Other; "" means the dialect's name for Type
	Decl string
	// the database has a default: used unless the config lists the column
	Own bool

	// Nested means that the column also takes members. If a record has no field of the column's
	// name, the column takes the member at that path.
	Nested bool
}

// Policy determines the treatment of fields without a column, and of values that their column
// cannot store.
type Policy string

// The policies.
const (
	JSONColumn Policy = "json_column" // both are stored in the JSON column
	Ignore     Policy = "ignore"      // the field is ignored; for the value the record is refused
	DeadLetter Policy = "dead_letter" // the record is refused
)

// Dialect describes the limits of a database.
type Dialect struct {
	MaxName     int      // in bytes
	MaxColumns  int      // of tables created from records
	FoldCase    bool     // names that differ only in case are equal
	Reserved    []string // names that columns cannot have
	NoNUL       bool     // text cannot hold the byte 0
	UTF8        bool     // text is UTF-8; invalid bytes become U+FFFD
	NumberLimit int      // digits on each side of the point that Number can store; 0 means any

	TypeOf func(decl string) Type // maps a database type
	// Standard returns the column for a type that a source declares ([stream.Batch.TypeOf]). If it
	// returns false or is nil, the type is inferred from the values.
	Standard func(decl string) (Column, bool)
}

// Usable reports whether name can be a column.
func (d *Dialect) Usable(name string) bool {
	return checkName(name, d.MaxName) == nil &&
		!slices.ContainsFunc(d.Reserved, func(r string) bool { return d.same(r, name) })
}

func (d *Dialect) same(a, b string) bool { return a == b || d.FoldCase && strings.EqualFold(a, b) }

// Table is the columns of a table and the policy for fields without a column.
type Table struct {
	Columns []Column
	Extra   int // index of the JSON column, or -1
	New     Policy

	// Required are the columns that may not be NULL, because a key without a value identifies no
	// row.
	Required []int

	dialect *Dialect
	index   map[string]int // of the columns that take fields
	message int            // the column for unparsed records, or -1
}

// NewTable returns a table with the given columns, in this order. extra names the JSON column,
// which takes no field and need not exist.
func NewTable(d *Dialect, columns []Column, extra string, policy Policy) *Table {
	t := &Table{Columns: columns, Extra: -1, New: policy, dialect: d,
		index: make(map[string]int, len(columns)), message: -1}
	for i, c := range columns {
		if policy == JSONColumn && d.same(c.Name, extra) {
			t.Extra = i
			continue
		}
		t.index[c.Name] = i
	}
	if i, ok := t.index[MessageField]; ok {
		t.message = i
	}
	return t
}

// MessageField is the name of the only field of an unparsed record.
const MessageField = "message"

// Column returns the index of the column for the field name, or -1.
func (t *Table) Column(name string) int {
	if i, ok := t.index[name]; ok {
		return i
	}
	return -1
}
