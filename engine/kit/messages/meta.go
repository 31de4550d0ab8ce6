package messages

import (
	"bytes"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// Meta lists the fields that the option `meta` of a source adds to records, in this order. A field
// with an empty name is not added.
type Meta []stream.SchemaField

// Check returns an error for a name that is not valid for a field.
func (m Meta) Check() error {
	var seen []string
	for _, f := range m {
		if f.Name == "" {
			continue
		}
		n, err := fieldname.Parse(f.Name)
		switch {
		case err != nil:
			return stream.OptionErrorf("meta", "%w", err)
		case n.Path != nil:
			return stream.OptionErrorf("meta", "the name %q has a path; write a plain name, and "+
				"move the field with rename", f.Name)
		case f.Name == stream.MessageName || slices.Contains(seen, f.Name):
			return stream.OptionErrorf("meta", "the field %q has two meanings; give one another "+
				"name", f.Name)
		}
		seen = append(seen, f.Name)
	}
	return nil
}

// Shape returns a copy of a schema to which the fields of m are added.
func (m Meta) Shape(in stream.Schema) stream.Schema {
	out := in.Clone()
	for _, f := range m {
		if f.Name != "" {
			out.Fields = append(out.Fields, f)
		}
	}
	return out
}

// MetaAdder adds the fields of a [Meta] to the records of batches. It must be used by one
// goroutine.
type MetaAdder struct {
	names   []string       // names of the flat fields; "" if the field is not added
	last    []stream.Field // the fields that were added to the previous record of the batch
	any     bool
	scratch []byte
}

// NewMetaAdder returns a MetaAdder for m, which must be valid.
func NewMetaAdder(m Meta) *MetaAdder {
	a := &MetaAdder{names: make([]string, len(m)), last: make([]stream.Field, len(m))}
	for k, f := range m {
		if f.Name != "" {
			a.names[k], a.any = fieldname.Lenient(f.Name).Flat, true
		}
	}
	return a
}

// Enabled reports whether any field has a name.
func (a *MetaAdder) Enabled() bool { return a.any }

// Add adds the fields to record i of b. Call it for each record in order from 0, after all records
// were appended to b. The callback named value appends the value of field k of the Meta to dst. If
// consecutive records have equal values, these are stored only once.
func (a *MetaAdder) Add(b *stream.Batch, i int,
	value func(dst []byte, k int) ([]byte, stream.Kind)) {
	from := b.OpenFields(i)
	for k, name := range a.names {
		if name == "" {
			continue
		}
		text, kind := value(a.scratch[:0], k)
		a.scratch = text
		f := &a.last[k]
		if i == 0 || f.Kind != kind || !bytes.Equal(b.Value(*f), text) {
			f.Kind = kind
			f.Off, f.Len = b.AppendData(text)
		}
		f.Name = b.Name(name)
		b.Fields = append(b.Fields, *f)
	}
	b.SetFields(i, from)
}
