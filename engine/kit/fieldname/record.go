//penstock:pure

package fieldname

import (
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Editor reads and changes the fields of records. The zero value is ready to use. It must be used
// by one goroutine. It reuses its memory.
type Editor struct {
	scan    json.Scanner
	scratch []byte
}

// Lookup returns the value with the name r in record i. This is the value of the flat field, the
// field with exactly this name. If there is none, it is the value of the member at r's path. ok is
// false if the record has neither. The value shares memory with the batch, except a Text with
// escapes in an object, which is a decoded copy.
func (e *Editor) Lookup(b *stream.Batch, r *Ref, i int) (v Value, ok bool) {
	fields := b.FieldsOf(i)
	for _, f := range fields {
		if r.IsFlat(f) {
			return Value{f.Kind, b.Value(f)}, true
		}
	}
	for _, f := range fields {
		if r.IsRoot(f) && IsObject(f.Kind, b.Value(f)) {
			return Find(&e.scan, b.Value(f), r.Path[1:])
		}
	}
	return Value{}, false
}

// Remove removes the member at r's path from the object in field f, and reports whether there was
// one. It does nothing if f is not the field named by the first part of the path, or if the value
// of f is not an object. It returns an error if the object is invalid JSON.
func (e *Editor) Remove(b *stream.Batch, r *Ref, f *stream.Field) (removed bool, err error) {
	raw := b.Value(*f)
	if !r.IsRoot(*f) || !IsObject(f.Kind, raw) {
		return false, nil
	}
	o, err := Open(raw)
	if err == nil {
		removed, err = o.Remove(r.Path[1:])
	}
	if err != nil {
		return false, fmt.Errorf("field %s: %w", r.Path[0], err)
	}
	if removed {
		e.Put(b, f, o)
	}
	return removed, nil
}

// Put appends the object o to the batch's data as JSON, and makes it the value of f.
func (e *Editor) Put(b *stream.Batch, f *stream.Field, o *Object) {
	e.scratch = o.Append(e.scratch[:0])
	f.Kind = stream.JSON
	f.Off, f.Len = b.AppendData(e.scratch)
}

// SetLast sets the field or member with the name r in record i to the value of f. It sets the flat
// field if the record has it, or if the name has no path. Otherwise it sets the member. Call
// r.BeginWrite for the batch before. The fields of record i must be the last ones in b.Fields. To
// ensure this, call b.SetFields(i, b.OpenFields(i)) before. SetLast returns an error if a value on
// the path is neither an object nor null. The record is then unchanged.
func (e *Editor) SetLast(b *stream.Batch, r *Ref, i int, f stream.Field) error {
	fields := b.FieldsOf(i)
	for k := range fields {
		if r.IsFlat(fields[k]) {
			f.Name = fields[k].Name
			fields[k] = f
			return nil
		}
	}
	if r.Path == nil {
		f.Name = r.flat
		b.Fields = append(b.Fields, f)
		b.Records[i].NumFields++
		return nil
	}
	return e.setPath(b, r, i, f)
}

// setPath is like SetLast, but always sets the member.
func (e *Editor) setPath(b *stream.Batch, r *Ref, i int, f stream.Field) error {
	value := ndjson.AppendValue(nil, f.Kind, b.Value(f))
	fields := b.FieldsOf(i)
	for k := range fields {
		at := &fields[k]
		if !r.IsRoot(*at) {
			continue
		}
		raw := b.Value(*at)
		switch {
		case at.Kind == stream.Null:
			at.Kind = stream.JSON
			at.Off, at.Len = b.AppendData(Wrap(r.Path[1:], value))
			return nil
		case !IsObject(at.Kind, raw):
			return fmt.Errorf("%s is not an object, so member %s cannot be set", r.Path[0],
				strings.Join(r.Path[1:], "."))
		}
		o, err := Open(raw)
		if err == nil {
			err = o.Set(r.Path[1:], value)
		}
		if err != nil {
			return err
		}
		e.Put(b, at, o)
		return nil
	}
	f = stream.Field{Name: r.root, Kind: stream.JSON}
	f.Off, f.Len = b.AppendData(Wrap(r.Path[1:], value))
	b.Fields = append(b.Fields, f)
	b.Records[i].NumFields++
	return nil
}

// SetPathLast is like SetLast, but sets the member even if the record has the flat field.
func (e *Editor) SetPathLast(b *stream.Batch, r *Ref, i int, f stream.Field) error {
	if r.Path == nil {
		return e.SetLast(b, r, i, f)
	}
	return e.setPath(b, r, i, f)
}
