//penstock:pure

package sqltable

import "github.com/penstock-io/penstock/stream"

// Place is where a record has the value of one column.
type Place struct {
	Field int32 // index among the record's fields; -1: it has none, and the column is NULL
	Type  Type  // the column's
	Text  bool  // the column takes any text of the batch as it stands in the arena
	Need  bool  // NULL is refused
}

// Places returns, in the order of the columns, where a record with these fields has their values,
// and how many bytes these are at most; nil: only [Rows.Row] can say. Records of one form follow
// each other, so what was found for one is used for all that have the same names in the same order.
// The names alone are looked at: what is no null and neither a text for a Text place nor surely a
// value of its column's type is Row's. The places are valid until the next call.
func (r *Rows) Places(fields []stream.Field) (places []Place, most int) {
	form := r.form
	if len(fields) != len(form) {
		return r.place(fields)
	}
	end := uint32(0)
	for k := range fields {
		f := &fields[k]
		if f.Name != form[k] {
			return r.place(fields)
		}
		most += int(f.Len)
		end = max(end, f.Off+f.Len)
	}
	if !r.clean(int(end)) {
		return nil, 0
	}
	return r.placed, most
}

// place finds the places for records that have the names of these fields.
func (r *Rows) place(fields []stream.Field) (places []Place, most int) {
	r.form, r.places, r.placed = r.form[:0], r.places[:0], nil
	for c := range r.texts {
		r.places = append(r.places, Place{Field: -1, Type: r.table.Columns[c].Type, Text: r.texts[c]})
	}
	for _, k := range r.table.Required {
		r.places[k].Need = true
	}
	direct, end := len(fields) > 0 && len(r.members) == 0, uint32(0)
	for k, f := range fields {
		r.form = append(r.form, f.Name)
		most, end = most+int(f.Len), max(end, f.Off+f.Len)
		switch c := r.columns[f.Name]; {
		case c >= 0 && r.places[c].Field < 0:
			r.places[c].Field = int32(k)
		case c >= 0 || r.table.New != Ignore: // twice, or to be kept elsewhere or refused
			direct = false
		}
	}
	if direct {
		r.placed = r.places
	}
	if !r.clean(int(end)) {
		return nil, 0
	}
	return r.placed, most
}
