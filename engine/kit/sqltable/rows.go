//penstock:pure

package sqltable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// Rows lays the records of a batch over a table, one at a time. It only reads the batch, and belongs to one goroutine.
type Rows struct {
	// Cells are the current row's, one for each column: nil is NULL, all else the value's text in the form of the column's
	// type. They are valid until the next Row.
	Cells [][]byte

	table   *Table
	batch   *penstock.Batch
	columns []int // by name of the batch
	extra   []byte
	scratch []byte
	texts   []bool // by column: it takes any text as it is
	unclean bool   // the arena holds what the database's text cannot

	form   []uint32 // the names of the fields for which placed was found
	placed []Place  // nil: Row
	places []Place  // its memory
}

// Over begins to lay b, whose Records are filled, over t. The memory of an earlier batch is used again.
func (r *Rows) Over(t *Table, b *penstock.Batch) {
	r.table, r.batch = t, b
	r.columns, r.form, r.placed = r.columns[:0], r.form[:0], nil
	for _, name := range b.Names {
		r.columns = append(r.columns, t.Column(name))
	}
	if cap(r.Cells) < len(t.Columns) {
		r.Cells = make([][]byte, len(t.Columns))
	}
	r.Cells = r.Cells[:len(t.Columns)]
	d := t.dialect
	r.unclean = !d.takes(b.Data)
	r.texts = r.texts[:0]
	for i := range t.Columns {
		r.texts = append(r.texts, t.Columns[i].Type == Text && !r.unclean && b.Data != nil)
	}
}

// Row lays record i and returns why it is refused, "" where it is not. A reason never holds data.
func (r *Rows) Row(i int) (refusal string) {
	clear(r.Cells)
	r.extra, r.scratch = r.extra[:0], r.scratch[:0]
	record := &r.batch.Records[i]
	if record.NumFields == 0 {
		if refusal = r.put(r.table.message, MessageField, penstock.Text, r.batch.Text(i)); refusal != "" {
			return refusal
		}
	}
	for _, f := range r.batch.Fields[record.Field : record.Field+record.NumFields] {
		if column := r.columns[f.Name]; f.Kind == penstock.Text && column >= 0 && r.texts[column] { // most of them
			r.Cells[column] = r.batch.Value(f)
			continue
		}
		if refusal = r.put(r.columns[f.Name], r.batch.Names[f.Name], f.Kind, r.batch.Value(f)); refusal != "" {
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

var empty = []byte{}

func (r *Rows) put(column int, name string, kind penstock.Kind, value []byte) (refusal string) {
	if column < 0 {
		return r.unknown(name, kind, value)
	}
	if kind == penstock.Null || len(value) == 0 && kind != penstock.Text {
		r.Cells[column] = nil
		return ""
	}
	c := &r.table.Columns[column]
	if !fits(c.Type, kind, value, r.table.dialect.NumberLimit) {
		if r.table.New == JSONColumn && r.table.Extra >= 0 {
			r.more(name, kind, value)
			return ""
		}
		return fmt.Sprintf("field %q holds %s, which its column cannot (%s)", name, kindName(kind), typeName(c))
	}
	if c.Type == JSON && kind == penstock.Text {
		from := len(r.scratch)
		r.scratch = ndjson.AppendString(r.scratch, value)
		r.Cells[column] = r.scratch[from:len(r.scratch):len(r.scratch)]
		return ""
	}
	if r.unclean {
		if value, refusal = r.clean(name, value); refusal != "" {
			return refusal
		}
	}
	if value == nil {
		value = empty
	}
	r.Cells[column] = value
	return ""
}

// unknown keeps, leaves out or refuses a field that has no column.
func (r *Rows) unknown(name string, kind penstock.Kind, value []byte) (refusal string) {
	switch {
	case r.table.New == Ignore:
		return ""
	case r.table.New == JSONColumn && r.table.Extra >= 0:
		r.more(name, kind, value)
		return ""
	}
	return fmt.Sprintf("field %q has no column in the table", name)
}

// more adds a member to the JSON column.
func (r *Rows) more(name string, kind penstock.Kind, value []byte) {
	if len(r.extra) == 0 {
		r.extra = append(r.extra, '{')
	} else {
		r.extra = append(r.extra, ',')
	}
	r.extra = append(ndjson.AppendString(r.extra, name), ':')
	r.extra = ndjson.AppendValue(r.extra, kind, value)
}

// clean makes a value of an arena that holds bad bytes one that the database takes.
func (r *Rows) clean(name string, value []byte) (cleaned []byte, refusal string) {
	d := r.table.dialect
	if d.NoNUL && bytes.IndexByte(value, 0) >= 0 {
		return nil, fmt.Sprintf("field %q holds a NUL byte, which the database cannot store in text", name)
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

func kindName(k penstock.Kind) string {
	switch k {
	case penstock.Number:
		return "a number"
	case penstock.Bool:
		return "a truth value"
	case penstock.JSON:
		return "an array or object"
	}
	return "a text"
}

func typeName(c *Column) string {
	switch c.Type {
	case Integer:
		return "whole numbers of 64 bits"
	case Number:
		return "numbers"
	case Float:
		return "floats of 64 bits"
	case Bool:
		return "true or false"
	}
	return c.Decl
}

// takes says whether the database's text may be any part of data, whose texts are whole characters: what there is is looked at once
// where it is ASCII, as nearly all of it is.
func (d *Dialect) takes(data []byte) bool {
	rest := data
	const tops, ones = 0x8080808080808080, 0x0101010101010101
	for ; len(rest) >= 32; rest = rest[32:] {
		a, b := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		c, e := binary.LittleEndian.Uint64(rest[16:]), binary.LittleEndian.Uint64(rest[24:])
		// The top bit of a byte of x-ones is set where the byte was 0, or is beyond ASCII, or follows one that was 0.
		if (a|b|c|e|(a-ones)|(b-ones)|(c-ones)|(e-ones))&tops != 0 {
			break
		}
	}
	return !(d.UTF8 && !utf8.Valid(rest) || d.NoNUL && bytes.IndexByte(rest, 0) >= 0)
}
