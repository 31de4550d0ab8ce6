package parse

import (
	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

func newJSON() *format {
	return &format{open: true, make: func() splitter { return new(object) }}
}

// object splits JSON objects into fields. If a key occurs several times, the field has the position
// of the first one and the value of the last one. So all later components see the same value.
// Nested values stay unchanged.
type object struct {
	scan  json.Scanner
	names names
	turn  uint64 // number of the record, to detect repeated keys
}

func (o *object) begin(b *stream.Batch) { o.names.begin(b) }

func (o *object) split(b *stream.Batch, off, n uint32) problem {
	o.turn++
	base := len(b.Fields)
	data := b.Data
	last := uint32(0)
	o.scan.Start(data, int(off), int(n))
	for o.scan.Next() {
		key := data[o.scan.Key.Off : o.scan.Key.Off+o.scan.Key.Len]
		if o.scan.Key.Escaped {
			key = json.AppendUnescaped(nil, key)
		}
		last = o.names.find(b, last, key)
		v := o.scan.Value
		f := stream.Field{Name: o.names.all[last].place, Kind: v.Kind, Off: uint32(v.Off),
			Len: uint32(v.Len)}
		if v.Escaped {
			f.Off = uint32(len(b.Data))
			b.Data = json.AppendUnescaped(b.Data, data[v.Off:v.Off+v.Len])
			f.Len = uint32(len(b.Data)) - f.Off
		}
		name := &o.names.all[last]
		if name.turn == o.turn {
			b.Fields[base+int(name.field)] = f
			continue
		}
		name.turn, name.field = o.turn, uint32(len(b.Fields)-base)
		b.Fields = append(b.Fields, f)
	}
	if what, at := o.scan.Wrong(); what != "" {
		return problem{what, at - int(off)}
	}
	return problem{}
}
