//penstock:pure

// Package sqltable converts records to rows of a SQL table. Sinks that write to a database use it.
//
// It defines the names and their quoting, the typed columns of a [Table], and [Rows], which
// converts the records of a batch. A Table is immutable and safe for concurrent use. The package
// does not talk to a database. Its statements contain no values of records, and quote all names. A
// field with a name that cannot be a column is treated as a field without a column (see [Policy]).
//
// A value that does not fit into its column is not rounded, truncated or omitted. It is stored in
// the JSON column with all its digits, or its record is refused (see [Policy]). There are three
// exceptions. A column of type [Float] rounds numbers. For a column of type [Other], the database
// converts values by its own rules. Invalid UTF-8 is replaced.
package sqltable

import (
	"cmp"
	"slices"
	"strings"
)

// Type is the type of a column's values.
type Type uint8

// The types of a column.
const (
	Text    Type = iota // text; every value fits
	Integer             // 64-bit integers
	Number              // numbers with all their digits; see Dialect.NumberLimit
	// Float is for 64-bit binary floats, and rounds numbers to them. It is never inferred from
	// values: a column has this type only if the config, the existing table or the source declares
	// it.
	Float
	Bool  // true or false
	JSON  // any value as JSON; objects and arrays unchanged
	Other // any other type; the database itself checks and converts the values
	// Bytes is for raw bytes. A text that begins with \x has two hexadecimal digits for each byte.
	// Any other text is stored as its own bytes.
	Bytes
	// Bits is for strings of at most 64 bits. Whole numbers, true and false are stored as numbers,
	// and hexadecimal digits as in Bytes. No other value fits.
	Bits
)

// Column is one column of a table.
type Column struct {
	Name string
	Type Type
	// Decl is the database's name of the type. It is set if Type is Other. "" means the dialect's
	// name of Type.
	Decl string
	// Own means that the database has a default value for the column, or generates its values. The
	// sink then does not fill the column, unless the config lists it in columns or key.
	Own bool

	// Nested means that the name of the column can also be a path. Example: if a record has no
	// field "a.b", the column a.b gets the member b of the field a.
	Nested bool
}

// Policy determines how to treat fields without a column, and values that do not fit into their
// column.
type Policy string

// The policies.
const (
	JSONColumn Policy = "json_column" // both are stored in the JSON column
	Ignore     Policy = "ignore"      // the field is ignored; a record with such a value is refused
	DeadLetter Policy = "dead_letter" // the record is refused
)

// Dialect describes a kind of database.
type Dialect struct {
	Schemas     bool     // the name of a table may include a schema
	MaxName     int      // maximum length of a name in bytes
	MaxColumns  int      // maximum number of columns inferred from records
	FoldCase    bool     // names that differ only in case are equal
	Reserved    []string // names that columns cannot have
	NoNUL       bool     // text cannot contain the byte 0
	UTF8        bool     // text is UTF-8; invalid bytes become U+FFFD
	NumberLimit int      // digits on each side of the point that Number can store; 0 means any
	NotFinite   bool     // Number can store NaN; Float can store NaN, Infinity and -Infinity
	BoolIsByte  bool     // Bool can also store the whole numbers from -128 to 127
	// Allows returns false for names that columns cannot have, in addition to Reserved. Nil means
	// that there are no such names.
	Allows func(name string) bool

	TypeOf   func(decl string) Type // returns the type of a column for a type of the database
	Declared map[Type]string        // types of the database for the columns of new tables
	// Standard returns the column for a type that a source has declared ([stream.Batch.TypeOf]). If
	// Standard returns false, or is nil, the type is inferred from the values.
	Standard func(decl string) (Column, bool)
}

// Decl returns the type of a column in a new table.
func (d *Dialect) Decl(c Column) string { return cmp.Or(c.Decl, d.Declared[c.Type]) }

// Usable reports whether name can be a column.
func (d *Dialect) Usable(name string) bool {
	return d.CheckName(name) == nil && (d.Allows == nil || d.Allows(name)) &&
		!slices.ContainsFunc(d.Reserved, func(r string) bool { return d.same(r, name) })
}

func (d *Dialect) same(a, b string) bool { return a == b || d.FoldCase && strings.EqualFold(a, b) }

// Table has the columns of a table, and the policy for fields without a column.
type Table struct {
	Columns []Column
	Extra   int // index of the JSON column, or -1
	New     Policy

	// Required has the positions of the key columns in Columns. Their values must not be NULL,
	// because a row without a key cannot be identified.
	Required []int

	dialect *Dialect
	filled  []string       // names of columns that the database fills
	index   map[string]int // indexes of the columns that take fields
	message int            // the column for unparsed records, or -1
}

// NewTable returns a table with the given columns, in this order. extra is the name of the JSON
// column, which need not be one of them. If the policy is JSONColumn, a field with this name is
// treated as a field without a column.
func NewTable(d *Dialect, columns []Column, extra string, policy Policy) *Table {
	t := &Table{Columns: columns, Extra: -1, New: policy, dialect: d,
		index: make(map[string]int, len(columns))}
	for i, c := range columns {
		if policy == JSONColumn && d.same(c.Name, extra) {
			t.Extra = i
			continue
		}
		t.index[c.Name] = i
	}
	t.message = t.Column(MessageField)
	return t
}

// MessageField is the name of the column for the text of records without fields.
const MessageField = "message"

// Column returns the index of the column for the field with the given name, or -1.
func (t *Table) Column(name string) int {
	if i, ok := t.index[name]; ok {
		return i
	}
	return -1
}
