package parse

import (
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// within parses the text of one field of record i, and replaces the field by the new fields. If a
// name occurs several times, the field has the position of the first one and the value of the last
// one.
func (p *Processor) within(b *stream.Batch, i int) problem {
	from := b.OpenFields(i)
	at := slices.IndexFunc(b.Fields[from:], func(f stream.Field) bool { return f.Name == p.field })
	if at < 0 {
		return problem{"the record has no field " + p.options.Field, -1}
	}
	f := b.Fields[from+at]
	if f.Kind != stream.Text && f.Kind != stream.JSON {
		return problem{"the field " + p.options.Field + " is not text", -1}
	}
	found := len(b.Fields)
	if bad := p.split.split(b, f.Off, f.Len); bad.what != "" {
		return bad
	}
	b.Fields = append(b.Fields, b.Fields[from+at+1:found]...)
	b.Fields = slices.Delete(b.Fields, from+at, found)
	b.Fields = b.Fields[:from+unique(b.Fields[from:])]
	return problem{}
}

// unique keeps one field of each name, at the position of the first one and with the value of the
// last one. It returns the number of fields that are left.
func unique(fields []stream.Field) int {
	n := 0
	for _, f := range fields {
		if at := slices.IndexFunc(fields[:n],
			func(o stream.Field) bool { return o.Name == f.Name }); at >= 0 {
			fields[at] = f
			continue
		}
		fields[n] = f
		n++
	}
	return n
}
