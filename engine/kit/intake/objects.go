package intake

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

// Objects parses records that are JSON objects and adds their members to a batch as fields. Only
// one goroutine may use it.
type Objects struct {
	scan  json.Scanner
	names map[string]uint32 // of the batch
	seen  []seen            // by name
	turn  int               // counts the records
	// likely predicts the keys of the next record: key k of a record is probably the same as key k
	// of the preceding one.
	likely []likelyKey
}

// likelyKey is a key as written in a record, with its quotes and escapes. name is the index of the
// key in Batch.Names.
type likelyKey struct {
	text []byte
	name uint32
}

// seen locates the last field with a certain name in the records parsed so far. turn is the number
// of the record with this field, and field is the index of the field in Batch.Fields.
type seen struct{ turn, field int }

// Set sets the fields of every record of b. It dead-letters each record that is not a JSON object.
func (o *Objects) Set(b *stream.Batch) {
	b.Split()
	o.Add(b)
	b.Parsed()
}

// Add sets the fields of every record in b.Records, like Set, but does not mark the batch as
// changed: sinks may still deliver the original text of its records.
func (o *Objects) Add(b *stream.Batch) {
	o.begin()
	for i := range b.Records {
		from := len(b.Fields)
		if err := o.parse(b, i); err != nil {
			b.DeadLetter(i, err)
			continue
		}
		r := &b.Records[i]
		r.Field, r.NumFields, r.Parsed = uint32(from), uint32(len(b.Fields)-from), true
	}
}

// begin prepares o for a new batch, which must not have fields.
func (o *Objects) begin() {
	if o.names == nil {
		o.names = make(map[string]uint32)
	}
	clear(o.names)
	o.seen = o.seen[:0]
	clear(o.likely) // it refers to the data of another batch
	o.likely = o.likely[:0]
}

// parse parses record i of b and appends its members to b.Fields. If a key occurs several times,
// the last value is used. If the record is not an object, parse appends no field and returns the
// reason, for use as a dead letter's reason.
func (o *Objects) parse(b *stream.Batch, i int) error {
	o.turn++
	from := len(b.Fields)
	r := &b.Records[i]
	off, n, data := int(r.Off), int(r.Len), b.Data
	o.scan.Start(data, off, n)
	for k := 0; ; k++ {
		if k < len(o.likely) && o.scan.NextIs(o.likely[k].text) {
			o.add(b, data, o.likely[k].name)
			continue
		}
		if !o.scan.Next() {
			break
		}
		key := o.scan.Key
		name := o.name(b, data)
		o.likely = append(o.likely[:k], likelyKey{data[key.Off-1 : key.Off+key.Len+1], name})
		o.add(b, data, name)
	}
	if what, at := o.scan.Wrong(); what != "" {
		b.Fields = b.Fields[:from]
		return &notObjectError{what, at - off}
	}
	return nil
}

// name returns the index of the scanned key in b.Names. If the key is new, name adds it.
func (o *Objects) name(b *stream.Batch, data []byte) uint32 {
	k := o.scan.Key
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
	return name
}

// add appends the scanned value as a field of b.
func (o *Objects) add(b *stream.Batch, data []byte, name uint32) {
	v := o.scan.Value
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

// notObjectError is the error for a record that is not a JSON object, stored as the reason of its
// dead letter.
type notObjectError struct {
	what string
	at   int
}

// Error describes the mistake in the record's text and its position.
func (e *notObjectError) Error() string {
	return fmt.Sprintf("not a JSON object: %s, at byte %d", e.what, e.at)
}

// Group implements stream.Grouped.
func (e *notObjectError) Group() (text, detail string) {
	return "not a JSON object: " + e.what, fmt.Sprintf("at byte %d", e.at)
}
