//penstock:pure

package sqltable

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Rows converts the records of a batch to rows of a table, one after another. It does not change
// the batch. It must be used by one goroutine.
type Rows struct {
	// Cells is the current row with one cell per column. A cell is nil for NULL. Otherwise it is
	// the value's text in the format of the column's type. Cells is valid until the next call of
	// Row.
	Cells [][]byte

	table   *Table
	batch   *stream.Batch
	columns []int // index of the column by index of the name in the batch; -1 if none
	extra   []byte
	scratch []byte
	texts   []bool // by column: it accepts any text of a clean batch unchanged
	seen    int    // number of bytes of the batch's data known to be clean
	unclean bool   // the batch's data has bytes that the database cannot store as text

	needsExtra bool // the last call of Row missed the JSON column

	members []memberColumn // columns that may get a member of a field
	edit    fieldname.Editor

	form   []uint32 // names of the fields of the record for which placed was computed
	placed []Place  // nil if Row must be used
	places []Place  // memory for placed
}

// memberColumn is a column that may get a member of a field, such as a.b.
type memberColumn struct {
	column int
	ref    fieldname.Ref
}

// Over prepares r for the conversion of b to rows of t. The caller must have called b.Split. r
// reuses the memory of earlier batches.
func (r *Rows) Over(t *Table, b *stream.Batch) {
	r.table, r.batch = t, b
	r.columns, r.form, r.placed = r.columns[:0], r.form[:0], nil
	for _, name := range b.Names {
		r.columns = append(r.columns, t.Column(name))
	}
	r.members = r.members[:0]
	for i, c := range t.Columns {
		if !c.Nested {
			continue
		}
		m := memberColumn{i, fieldname.Ref{Name: fieldname.Lenient(c.Name)}}
		if m.ref.Begin(b); m.ref.HasRoot() {
			r.members = append(r.members, m)
		}
	}
	if cap(r.Cells) < len(t.Columns) {
		r.Cells = make([][]byte, len(t.Columns))
	}
	r.Cells = r.Cells[:len(t.Columns)]
	if r.seen, r.unclean = 0, false; !t.dialect.UTF8 && !t.dialect.NoNUL {
		r.seen = len(b.Data)
	}
	r.texts = r.texts[:0]
	for i := range t.Columns {
		r.texts = append(r.texts, t.Columns[i].Type == Text && b.Data != nil)
	}
}

// ahead is the number of bytes of the batch that are checked at a time. A longer record is
// checked at once. ahead is small, so that the values of a row are still in the CPU's cache after
// the check.
const ahead = 4 << 10

// clean reports whether the batch's data up to offset end is known to contain only text that the
// database accepts. It may return false for acceptable data, if later data is not acceptable. The
// data is checked only once, in steps of ahead bytes. From the first byte that is NUL or not
// ASCII, all data is checked in one step.
func (r *Rows) clean(end int) bool {
	return end <= r.seen || r.look(end)
}

func (r *Rows) look(end int) bool {
	if r.unclean {
		return false
	}
	data, d := r.batch.Data, r.table.dialect
	to := min(max(end, r.seen+ahead), len(data))
	if n := ascii(data[r.seen:to]); r.seen+n < to {
		r.unclean = !d.accepts(data[r.seen+n:])
		to = len(data)
	}
	if !r.unclean {
		r.seen = to
	}
	return !r.unclean
}

// Row converts record i to Cells. If the table cannot store the record, Row returns the reason of a
// refusal (see [Refusal]), otherwise "".
func (r *Rows) Row(i int) (refusal string) {
	clear(r.Cells)
	r.extra, r.scratch, r.needsExtra = r.extra[:0], r.scratch[:0], false
	record, fields := &r.batch.Records[i], r.batch.FieldsOf(i)
	end := record.Off + record.Len
	for k := range fields {
		end = max(end, fields[k].Off+fields[k].Len)
	}
	clean := r.clean(int(end))
	if record.NumFields == 0 && !record.Parsed {
		if refusal = r.put(r.table.message, MessageField, stream.Text,
			r.batch.Text(i)); refusal != "" {
			return refusal
		}
	}
	for _, f := range fields {
		// the common case
		if column := r.columns[f.Name]; f.Kind == stream.Text && column >= 0 && clean &&
			r.texts[column] {
			r.Cells[column] = r.batch.Value(f)
			continue
		}
		if refusal = r.put(r.columns[f.Name], r.batch.Names[f.Name], f.Kind,
			r.batch.Value(f)); refusal != "" {
			return refusal
		}
	}
	for k := range r.members {
		if refusal = r.member(&r.members[k], i); refusal != "" {
			return refusal
		}
	}
	if len(r.extra) > 0 {
		r.extra = append(r.extra, '}')
		r.Cells[r.table.Extra] = r.extra
	}
	for _, k := range r.table.Required {
		if r.Cells[k] == nil {
			return fmt.Sprintf("the key's column %q has no value", r.table.Columns[k].Name)
		}
	}
	return ""
}

// member sets the column m to the value of its member in record i. It does nothing if the record
// has a field with the column's name, or lacks the member.
func (r *Rows) member(m *memberColumn, i int) (refusal string) {
	if slices.ContainsFunc(r.batch.FieldsOf(i), m.ref.IsFlat) {
		return ""
	}
	v, ok := r.edit.Lookup(r.batch, &m.ref, i)
	if !ok {
		return ""
	}
	if v.Kind == stream.Text { // its escapes may stand for bytes that are not in the data
		if v.Raw, refusal = r.cleaned(m.ref.Flat, v.Raw); refusal != "" {
			return refusal
		}
	}
	return r.put(m.column, m.ref.Flat, v.Kind, v.Raw)
}

var empty = []byte{}

func (r *Rows) put(column int, name string, kind stream.Kind, value []byte) (refusal string) {
	if column < 0 {
		return r.unknown(name, kind, value)
	}
	if kind == stream.Null || len(value) == 0 && kind != stream.Text {
		r.Cells[column] = nil
		return ""
	}
	c := &r.table.Columns[column]
	if !r.table.dialect.fits(c.Type, kind, value) {
		if r.storeExtra(name, kind, value) {
			return ""
		}
		return fmt.Sprintf("field %q has %s, which its column cannot store (%s)", name,
			kindNames[kind], cmp.Or(typeTexts[c.Type], c.Decl))
	}
	if c.Type == Bits || c.Type == JSON && kind == stream.Text {
		from := len(r.scratch)
		if c.Type == Bits {
			r.scratch, _ = appendBits(r.scratch, value)
		} else {
			r.scratch = ndjson.AppendString(r.scratch, value)
		}
		r.Cells[column] = r.scratch[from:len(r.scratch):len(r.scratch)]
		return ""
	}
	if r.unclean {
		if value, refusal = r.cleaned(name, value); refusal != "" {
			return refusal
		}
	}
	if value == nil {
		value = empty
	}
	r.Cells[column] = value
	return ""
}

// unknown handles a field without a column. Depending on the policy, it stores the field in the
// JSON column, ignores it, or refuses the record.
func (r *Rows) unknown(name string, kind stream.Kind, value []byte) (refusal string) {
	switch {
	case r.table.New == Ignore:
		return ""
	case r.storeExtra(name, kind, value):
		return ""
	case slices.Contains(r.table.filled, name):
		return fmt.Sprintf("column %q has a default value, so it is filled only if `columns` "+
			"lists it", name)
	}
	return fmt.Sprintf("field %q has no column in the table", name)
}

// Refusal returns the refusal of record i with the reason that Row has just returned.
func (r *Rows) Refusal(i int, reason string) Refusal { return Refusal{i, reason, r.needsExtra} }

// storeExtra adds a field that fits no other column to the JSON column, and returns true. If the
// policy has no JSON column, it returns false. If the table should have this column and does not,
// storeExtra sets needsExtra, and returns false.
func (r *Rows) storeExtra(name string, kind stream.Kind, value []byte) bool {
	if r.table.New != JSONColumn {
		return false
	}
	if r.needsExtra = r.table.Extra < 0; r.needsExtra {
		return false
	}
	if len(r.extra) == 0 {
		r.extra = append(r.extra, '{')
	} else {
		r.extra = append(r.extra, ',')
	}
	r.extra = append(ndjson.AppendString(r.extra, name), ':')
	r.extra = ndjson.AppendValue(r.extra, kind, value)
	return true
}

// cleaned returns value as a text that the database accepts: invalid UTF-8 is replaced. If value
// has a NUL byte that the database cannot store, cleaned returns a refusal.
func (r *Rows) cleaned(name string, value []byte) (text []byte, refusal string) {
	d := r.table.dialect
	if d.NoNUL && bytes.IndexByte(value, 0) >= 0 {
		return nil, fmt.Sprintf("field %q has a NUL byte, which the database cannot store in "+
			"text", name)
	}
	if !d.UTF8 || utf8.Valid(value) {
		return value, ""
	}
	from := len(r.scratch)
	for _, c := range string(value) {
		r.scratch = utf8.AppendRune(r.scratch, c)
	}
	return r.scratch[from:len(r.scratch):len(r.scratch)], ""
}

var kindNames = map[stream.Kind]string{stream.Number: "a number", stream.Bool: "a truth value",
	stream.JSON: "an array or object", stream.Text: "a text"}

var typeTexts = map[Type]string{Integer: "whole numbers of 64 bits", Number: "numbers",
	Float: "floats of 64 bits", Bool: "true or false", Bits: "whole numbers and bits"}

// accepts reports whether the database can store data as text. If it can, it can also store each
// part of data that consists of whole characters.
func (d *Dialect) accepts(data []byte) bool {
	return (!d.UTF8 || utf8.Valid(data)) && (!d.NoNUL || bytes.IndexByte(data, 0) < 0)
}

// ascii returns the length of a prefix of data that is ASCII without NUL bytes. It may be up to 31
// bytes shorter than the longest such prefix.
func ascii(data []byte) int {
	const tops, ones = 0x8080808080808080, 0x0101010101010101
	rest := data
	for ; len(rest) >= 32; rest = rest[32:] {
		a, b := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		c, e := binary.LittleEndian.Uint64(rest[16:]), binary.LittleEndian.Uint64(rest[24:])
		// Let x be one of a, b, c and e. In x, the top bit of each byte that is not ASCII is set.
		// In x-ones, the top bit of each byte that is 0 is set, and perhaps that of later bytes.
		if (a|b|c|e|(a-ones)|(b-ones)|(c-ones)|(e-ones))&tops != 0 {
			return len(data) - len(rest)
		}
	}
	for _, c := range rest {
		if c-1 >= 0x7F {
			return len(data) - len(rest)
		}
	}
	return len(data)
}
