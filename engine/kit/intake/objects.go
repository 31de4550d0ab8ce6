package intake

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

// objects makes the members of records that are JSON objects their fields. It belongs to one
// reader.
type objects struct {
	scan  json.Scanner
	names map[string]uint32 // of the batch
	seen  []seen            // by name
	turn  int               // counts the records
}

// seen is where a name stands in the latest record that has it.
type seen struct{ turn, field int }

// set gives every record of b its fields. Of a key that an object has twice, the last value counts.
func (o *objects) set(b *stream.Batch) {
	b.Split()
	if o.names == nil {
		o.names = make(map[string]uint32)
	}
	clear(o.names)
	o.seen = o.seen[:0]
	for i := range b.Records {
		o.turn++
		from := len(b.Fields)
		r := &b.Records[i]
		data := b.Data
		for o.scan.Start(data, int(r.Off), int(r.Len)); o.scan.Next(); {
			o.add(b, data)
		}
		if what, at := o.scan.Wrong(); what != "" { // the source has checked it: keep the record, and say so
			b.Fields = b.Fields[:from]
			b.Bury(i, &notObjectError{what, at - int(r.Off)})
			continue
		}
		b.SetFields(i, from)
	}
}

func (o *objects) add(b *stream.Batch, data []byte) {
	k, v := o.scan.Key, o.scan.Value
	key := data[k.Off : k.Off+k.Len]
	if k.Escaped {
		key = json.AppendUnescaped(nil, key)
	}
	name, known := o.names[string(key)]
	if !known {
		name = uint32(len(b.Names))
		b.Names = append(b.Names, string(key))
		o.names[string(key)] = name
		o.seen = append(o.seen, seen{})
	}
	f := stream.Field{Name: name, Kind: v.Kind, Off: uint32(v.Off), Len: uint32(v.Len)}
	if v.Escaped && v.Kind == stream.Text {
		f.Off = uint32(len(b.Data))
		b.Data = json.AppendUnescaped(b.Data, data[v.Off:v.Off+v.Len])
		f.Len = uint32(len(b.Data)) - f.Off
	}
	at := &o.seen[name]
	if at.turn == o.turn {
		b.Fields[at.field] = f
		return
	}
	*at = seen{o.turn, len(b.Fields)}
	b.Fields = append(b.Fields, f)
}

// notObjectError is the reason of a dead letter for a record that is no JSON object.
type notObjectError struct {
	what string
	at   int
}

// Error describes the mistake and its place.
func (e *notObjectError) Error() string {
	return fmt.Sprintf("not a JSON object: %s, at byte %d", e.what, e.at)
}

// Group implements stream.Grouped.
func (e *notObjectError) Group() (text, detail string) {
	return "not a JSON object: " + e.what, fmt.Sprintf("at byte %d", e.at)
}
