//penstock:pure

// Package sqltable says how records become rows of a SQL table, for the sinks that write to one.
//
// It holds names and their quoting, the columns of a table with their types, and [Rows], which lays
// a batch's records over them. A sink owns its [Table]; tables do not change once made and may be
// used by many goroutines. The package never talks to a database and never builds a statement from
// data: names that cannot be columns stay data, in the JSON column.
//
// What is promised: a value that its column cannot hold as it is written is never rounded, cut or
// left out. It goes to the JSON column with its digits, or its record is refused (see [Policy]).
package sqltable

import (
	"slices"
	"strings"
)

// Type is what a column holds.
type Type uint8

// The types of a column.
const (
	Text    Type = iota // characters; every value fits, as it is written
	Integer             // whole numbers of 64 bits
	Number              // any number, with its digits
	Float               // a binary float of 64 bits: numbers are rounded, because the config asks for it
	Bool                //
	JSON                // any value, as JSON; objects and arrays as they are written
	Other               // a type of the database's own: it judges each value's text
	Bytes               // raw bytes, from a text of \x and two hexadecimal digits for each; any other text as it is
)

// Column is one column of a table.
type Column struct {
	Name string
	Type Type
	Decl string // the type as the database knows it, where Type is Other; "": the dialect's own word for Type
	Own  bool   // the database has a value of its own for it: left to it, unless the config lists the column

	// Nested says that the column also takes a member: of records that have no field of its name,
	// the one at that path.
	Nested bool
}

// Policy is what becomes of a field that has no column, and of a value that its column cannot hold.
type Policy string

// The policies.
const (
	JSONColumn Policy = "json_column" // both are kept in the JSON column
	Ignore     Policy = "ignore"      // the field is left out; for the value the record is refused
	DeadLetter Policy = "dead_letter" // the record is refused
)

// Dialect is what a database can hold.
type Dialect struct {
	MaxName     int      // bytes of a name
	MaxColumns  int      // of a table that is made from records
	FoldCase    bool     // names that differ in case only are the same
	Reserved    []string // names that no column may have
	NoNUL       bool     // text cannot hold the byte 0
	UTF8        bool     // text is UTF-8: what is none becomes U+FFFD
	NumberLimit int      // digits before and behind the point that Number can hold; 0: any

	TypeOf func(decl string) Type // of a type of the database's own
	// Standard gives the column for a type that a source declares ([stream.Batch.TypeOf]); false: by
	// the values, as where nothing is declared. nil: always so.
	Standard func(decl string) (Column, bool)
}

// Usable says whether name can be a column.
func (d *Dialect) Usable(name string) bool {
	return checkName(name, d.MaxName) == nil && !slices.ContainsFunc(d.Reserved, func(r string) bool { return d.same(r, name) })
}

func (d *Dialect) same(a, b string) bool { return a == b || d.FoldCase && strings.EqualFold(a, b) }

// Table is the columns of a table and what to do with fields that have none.
type Table struct {
	Columns []Column
	Extra   int // index of the JSON column; -1: there is none
	New     Policy

	// Required are the columns that may not be NULL: a key without a value tells no rows apart.
	Required []int

	dialect *Dialect
	index   map[string]int // of the columns that take fields
	message int            // the column of unparsed records, -1: none
}

// NewTable returns a table of the columns given, in their order. extra names the JSON column, which
// takes no field; it need not be there.
func NewTable(d *Dialect, columns []Column, extra string, policy Policy) *Table {
	t := &Table{Columns: columns, Extra: -1, New: policy, dialect: d, index: make(map[string]int, len(columns)), message: -1}
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

// MessageField is the one field of a record that was not parsed.
const MessageField = "message"

// Column returns the index of the column that takes the field name, -1 where none does.
func (t *Table) Column(name string) int {
	if i, ok := t.index[name]; ok {
		return i
	}
	return -1
}
