//penstock:pure

package sqltable

import "github.com/penstock-io/penstock/stream"

// Place describes the field of a record that has the value of one column.
type Place struct {
	Field int32 // index among the record's fields; -1: no field, the column is NULL
	Type  Type  // the column's
	Text  bool  // the column accepts every text in the batch unchanged
	Need  bool  // the value must not be NULL
}

// Places is a fast alternative to [Rows.Row] for records that need no conversion. For a record with
// the given fields, it returns the Place of each column, and an upper bound of the size of the
// values. places is nil if the record must be passed to Row.
//
// Places does not check the values. The caller can use these values: a null if its Place does not
// have Need set, a text if its Place has Text set, and any value that is certainly valid for its
// column. If the record has any other value, the caller must pass the record to Row.
//
// The result is valid until the next call. It is cached for records with the same field names in
// the same order, because consecutive records usually have the same fields.
func (r *Rows) Places(fields []stream.Field) (places []Place, most int) {
	same, end := len(fields) == len(r.form), uint32(0)
	for k := range fields {
		f := &fields[k]
		same = same && f.Name == r.form[k]
		most += int(f.Len)
		end = max(end, f.Off+f.Len)
	}
	if !same {
		r.place(fields)
	}
	if !r.clean(int(end)) {
		return nil, 0
	}
	return r.placed, most
}

// place computes placed for records with the names of these fields.
func (r *Rows) place(fields []stream.Field) {
	r.form, r.places, r.placed = r.form[:0], r.places[:0], nil
	for c := range r.texts {
		r.places = append(r.places, Place{Field: -1, Type: r.table.Columns[c].Type,
			Text: r.texts[c]})
	}
	for _, k := range r.table.Required {
		r.places[k].Need = true
	}
	direct := len(fields) > 0 && len(r.members) == 0
	for k, f := range fields {
		r.form = append(r.form, f.Name)
		switch c := r.columns[f.Name]; {
		case c >= 0 && r.places[c].Field < 0:
			r.places[c].Field = int32(k)
		// The slower method Row is needed for a repeated field, and for a field that goes to the
		// JSON column or causes a refusal.
		case c >= 0 || r.table.New != Ignore:
			direct = false
		}
	}
	if direct {
		r.placed = r.places
	}
}
