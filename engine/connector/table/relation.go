//penstock:pure

package table

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// column is a column of a table, view or query.
type column struct {
	name     string
	decl     string // the type as named by the database
	standard string // its type in PostgreSQL, for sinks that create a table; "" if unknown
	kind     valueKind
	key      keyKind // how its values are ordered; 0 if it cannot be a key
	noKey    string  // the reason why it cannot be a key, if key is 0
	nullable bool
	zoneless bool   // a time without a zone
	id       uint32 // the database's id of the type; 0 if none
	modifier int32  // type modifier, such as a length
	collate  string // a collation that compares texts byte by byte; "" if the default one does
}

// indexOf returns the index of the first column with the given name, or -1.
func indexOf(columns []column, name string) int {
	return slices.IndexFunc(columns, func(c column) bool { return c.name == name })
}

// valueKind determines how the text of a value is interpreted.
type valueKind uint8

// The kinds of values.
const (
	textValue   valueKind = iota
	numberValue           // digits; NaN and the infinities become text
	boolValue
	jsonValue
	bytesValue // raw bytes, which become \x and hexadecimal digits
)

// relation describes a table, view or query as it was when the reader was opened.
type relation struct {
	name    string // for messages: the table's name or "the query"
	table   bool   // true for a table, which has constraints, unlike a view or query
	columns []column
	unique  [][]string // sets of columns that are unique; the primary key first
	primary bool       // unique[0] is the primary key
	schema  string     // MySQL: its schema
	plain   string     // its name in the database; "" for a query
	from    string     // the SQL after FROM
	version string     // PostgreSQL: the table's oid; SQLite: its CREATE TABLE; otherwise ""
	reuse   reuse
	order   []int // columns of order_by
	keys    keyset
}

// reuse states why the database may generate the number of a deleted row a second time, and the
// remedy. The source might then skip a new row, because it has read a row with this number before.
// Therefore it logs a warning at its start. column is the column with the generated numbers. A zero
// reuse means that no such case is known.
type reuse struct{ column, reason, remedy string }

// mayReuse reports whether the database may generate keys of deleted rows again. The reason is in
// r.reuse.
func (r *relation) mayReuse() bool {
	return r.reuse.reason != "" && len(r.keys.names) == 1 && r.keys.names[0] == r.reuse.column
}

// orderBy sets the order of the rows: by the given columns, or by the primary key if names is
// empty. Its errors are shown to users.
func (r *relation) orderBy(names []string, zone string) error {
	if len(names) == 0 {
		switch {
		case !r.table:
			return fmt.Errorf("%s has no order, so a row's position could not be found again; "+
				"set `order_by` to columns that are unique together", r.name)
		case !r.primary:
			return fmt.Errorf("%s has no primary key; set `order_by` to columns that are unique "+
				"together", r.name)
		}
		names = r.unique[0]
	}
	var kinds []keyKind
	for _, n := range names {
		i := indexOf(r.columns, n)
		if i < 0 {
			return fmt.Errorf("%s has no column %q, which is in `order_by`; it has %s", r.name, n,
				r.list())
		}
		c := &r.columns[i]
		switch {
		case c.key == 0:
			return fmt.Errorf("%s cannot be ordered by column %q: %s", r.name, n, c.noKey)
		case r.table && c.nullable:
			return fmt.Errorf("column %q of %s, which is in `order_by`, may be NULL, and a row "+
				"without a position would be missed; make it NOT NULL, or order by another "+
				"column", n, r.name)
		case c.zoneless && zone == "":
			return fmt.Errorf("column %q of %s is %s, a time without a zone: one hour repeats "+
				"when clocks are set back; order by a time with a zone, or write `zone: UTC` if "+
				"its times are UTC", n,
				r.name, c.decl)
		}
		r.order = append(r.order, i)
		kinds = append(kinds, c.key)
	}
	if r.table && !slices.ContainsFunc(r.unique,
		func(set []string) bool { return subset(set, names) }) {
		return fmt.Errorf("the columns of `order_by` (%s) are not unique together in %s: rows "+
			"with equal values would be missed; add the columns of its primary key, or create a "+
			"unique index",
			strings.Join(names, ", "), r.name)
	}
	r.keys = newKeyset(names, kinds)
	return nil
}

// readError returns an error of a statement that reads r, with a remedy added. The arguments report
// whether the statement names a table or a column that does not exist.
func (r *relation) readError(err error, noTable, noColumn bool) error {
	existed := len(r.columns) > 0 && (r.table || r.version != "" || r.plain != "")
	switch {
	case noTable && existed:
		return droppedError(r, true)
	case noTable && r.table:
		return fmt.Errorf("%w (%w)", r.notFound(), err)
	case noTable:
		return fmt.Errorf("%s: a table does not exist: it was dropped, or the query misspells "+
			"it (%w)", r.name, err)
	case noColumn:
		return fmt.Errorf("%s: a column is missing: correct `order_by` or the query (%w)",
			r.name, err)
	}
	return fmt.Errorf("reading %s: %w", r.name, err)
}

// notFound returns the error for a table that does not exist.
func (r *relation) notFound() error {
	return fmt.Errorf("%s does not exist: it was dropped, or `table` is misspelled", r.name)
}

// distinct returns an error if two columns of r have the same name.
func (r *relation) distinct(columns []column) error {
	for i, c := range columns {
		if indexOf(columns, c.name) < i {
			return fmt.Errorf("%s has two columns %q; rename one with AS", r.name, c.name)
		}
	}
	return nil
}

// uniqueSets returns a function that adds columns to r.unique, the sets of columns that are unique
// in the table. It is called for each column of each unique index, one index after the other.
func (r *relation) uniqueSets() func(index, column string, primary bool) {
	last := ""
	return func(index, column string, primary bool) {
		if r.primary = r.primary || primary; index != last {
			r.unique = append(r.unique, nil)
		}
		set := &r.unique[len(r.unique)-1]
		*set, last = append(*set, column), index
	}
}

func subset(set, of []string) bool {
	return len(set) > 0 &&
		!slices.ContainsFunc(set, func(n string) bool { return !slices.Contains(of, n) })
}

// list returns the names of the first columns for messages.
func (r *relation) list() string {
	const most = 20
	var names []string
	for _, c := range r.columns {
		if names = append(names, c.name); len(names) == most {
			names = append(names, "and more")
			break
		}
	}
	return strings.Join(names, ", ")
}

// changed compares the given columns, the current ones, with those at the start. It returns an
// error that describes a difference, or nil if there is none.
func (r *relation) changed(now []column) error {
	for _, c := range r.columns {
		switch i := indexOf(now, c.name); {
		case i < 0:
			return &changedError{fmt.Sprintf("%s has lost its column %q", r.name, c.name)}
		case now[i].decl != c.decl:
			return &changedError{fmt.Sprintf("column %q of %s is %s now, and was %s", c.name,
				r.name, now[i].decl, c.decl)}
		}
	}
	for _, c := range now {
		if indexOf(r.columns, c.name) < 0 {
			return &changedError{fmt.Sprintf("%s has a new column %q", r.name, c.name)}
		}
	}
	for i, c := range now {
		if r.columns[i].name != c.name {
			return &changedError{fmt.Sprintf("the order of the columns of %s has changed", r.name)}
		}
	}
	return nil
}

// changedError means that the columns of a table are not those at the start any more.
type changedError struct{ change string }

// Error returns the change and the remedy.
func (e *changedError) Error() string {
	return e.change + " since penstock began to read it; everything before is delivered: " +
		"restart penstock to continue with the new form"
}

// ordered calls the function each for every order_by column, and joins the results with sep between
// them.
func (r *relation) ordered(sep string, each func(c *column) string) string {
	parts := make([]string, len(r.order))
	for i, c := range r.order {
		parts[i] = each(&r.columns[c])
	}
	return strings.Join(parts, sep)
}

// maxPartitionID is the maximum length of the result of partitionID. With the width and number of a
// stripe, and lateSuffix, an id has at most 200 bytes (stream.Partition).
const maxPartitionID = 140

// partitionID converts a name to a partition id. Letters, digits, '-', '_' and '.' stay. Every
// other byte becomes % and two hexadecimal digits. A long id ends with a hash of the name.
func partitionID(name string) string {
	var out strings.Builder
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-_.", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	id := out.String()
	if len(id) > maxPartitionID {
		sum := sha256.Sum256([]byte(name))
		hash := "-" + hex.EncodeToString(sum[:16])
		id = id[:maxPartitionID-len(hash)] + hash
	}
	return id
}

// nullKey returns an error about a row with NULL in an order_by column.
func nullKey(r *relation) error {
	return fmt.Errorf("a row of %s has no position, because a column of `order_by` (%s) is "+
		"NULL; exclude such rows in a query, or order by other columns", r.name,
		strings.Join(r.keys.names, ", "))
}

// lateSuffix is the last part of the id of a partition with late rows.
const lateSuffix = "~late"

// mark returns the progress of the partition with the given id, from which the reader must resume.
// It returns an error if order_by had other columns when the position was stored.
func (r *relation) mark(o stream.OpenOptions, id string) (stream.Mark, error) {
	m, ok := o.Resume(id)
	if !ok {
		return m, nil
	}
	for _, p := range append([]stream.Range{{To: m.Watermark}}, m.Above...) {
		if p.To.Key != "" && !r.keys.fits(p.To.Key) {
			return m, fmt.Errorf("the checkpoint has a position of %s in another order than by "+
				"(%s), or with other column types; restore that order, or reset the position "+
				"with `penstock checkpoint reset` and in the sink's ledger",
				r.name, strings.Join(r.keys.names, ", "))
		}
	}
	return m, nil
}
