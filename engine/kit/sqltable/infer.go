//penstock:pure

package sqltable

import (
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// valueKinds collects the kinds of all values of one field.
type valueKinds struct {
	column   Column
	seen     [Other]bool // by the type that a column of this kind of value has
	declared bool        // column has the type declared by the source
}

// Infer returns the columns of a table for the records of b. The caller must have called b.Split.
// There is one column for each field, in the order of first appearance. If a record has no fields,
// such as an unparsed one, there is also the column [MessageField]. The types are:
//
//	values of the field, without nulls     column
//	only true and false                    Bool
//	only whole numbers of 64 bits          Integer
//	only numbers                           Number
//	at least one array or object           JSON
//	any other values, or none              Text
//
// If the source declares a type for the field and the dialect supports it, the column has this type
// instead.
//
// In these cases, a field gets no column, and the policy for fields without a column applies
// ([Policy]):
//
//   - There are MaxColumns columns already.
//   - Its name cannot be a column.
//   - The database considers its name equal to that of an earlier field, such as ID and id.
func Infer(d *Dialect, b *stream.Batch) []Column {
	at := make(map[string]int)
	var all []*valueKinds
	note := func(name, decl string, kind stream.Kind, value []byte) {
		i, ok := at[name]
		if !ok {
			i = len(all)
			same := func(s *valueKinds) bool { return d.same(s.column.Name, name) }
			if len(all) >= d.MaxColumns || !d.Usable(name) || slices.ContainsFunc(all, same) {
				i = -1
			} else {
				all = append(all, first(d, name, decl))
			}
			at[name] = i
		}
		if i >= 0 {
			all[i].note(kind, value)
		}
	}
	for _, i := range b.AppendKept(nil) {
		fields := b.FieldsOf(i)
		if len(fields) == 0 {
			note(MessageField, "", stream.Text, nil)
		}
		for _, f := range fields {
			note(b.Names[f.Name], b.TypeOf(f.Name), f.Kind, b.Value(f))
		}
	}
	columns := make([]Column, len(all))
	for i, s := range all {
		if !s.declared {
			s.column.Type = s.of()
		}
		columns[i] = s.column
	}
	return columns
}

// first returns the state of type inference for a field before its first value. decl is the
// type that the source has declared, or "".
func first(d *Dialect, name, decl string) *valueKinds {
	s := &valueKinds{column: Column{Name: name}}
	if decl != "" && d.Standard != nil {
		if c, ok := d.Standard(decl); ok {
			s.column.Type, s.column.Decl, s.declared = c.Type, c.Decl, true
		}
	}
	return s
}

func (s *valueKinds) note(kind stream.Kind, value []byte) {
	switch {
	case kind == stream.Text:
		s.seen[Text] = true
	case kind == stream.Null || len(value) == 0:
	case kind == stream.Bool:
		s.seen[Bool] = true
	case kind == stream.JSON:
		s.seen[JSON] = true
	case isInteger(value):
		s.seen[Integer] = true
	default:
		s.seen[Number] = true
	}
}

func (s *valueKinds) of() Type {
	if s.seen[Bool] && (s.seen[Integer] || s.seen[Number]) && !s.seen[JSON] {
		return Text
	}
	for _, t := range []Type{JSON, Text, Bool, Number, Integer} {
		if s.seen[t] {
			return t
		}
	}
	return Text
}

// Made returns the columns of a table to create: the given columns, the key columns that are
// missing among them, and the JSON column if the policy needs one. If the database considers the
// name of an added column equal to that of a given column, such as id and ID, the added column
// replaces the given one.
func Made(d *Dialect, columns []Column, o *Options) []Column {
	all := slices.Clone(columns)
	for _, k := range o.Key {
		if IndexOf(all, k) >= 0 {
			continue
		}
		// Example: if the key is id, a field ID is stored in the JSON column.
		all = slices.DeleteFunc(all, func(c Column) bool { return d.same(c.Name, k) })
		all = append(all, Column{Name: k})
	}
	if o.Policy() == JSONColumn { // a field of that name is stored inside it
		all = slices.DeleteFunc(all, func(c Column) bool { return d.same(c.Name, o.JSONColumn) })
		all = append(all, Column{Name: o.JSONColumn, Type: JSON})
	}
	return all
}
