//penstock:pure

package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// result is a record that a child has returned: a text, or fields.
type result struct {
	text   []byte
	fields []field // nil if the record is a text
}

// field is one field of a result. value is JSON.
type field struct {
	name  string
	value json.RawMessage
}

// put replaces record i by m. The position of the source record (Origin) stays that of record i.
func (m result) put(b *stream.Batch, i int) {
	old := b.Records[i]
	r := stream.Record{Off: old.Off, Len: old.Len, Span: old.Span, Sub: old.Sub, Origin: old.Origin}
	if m.fields == nil {
		r.Off, r.Len = appendText(b, m.text), uint32(len(m.text))
	} else {
		r.Field, r.NumFields, r.Parsed = uint32(len(b.Fields)), uint32(len(m.fields)), true
		for _, f := range m.fields {
			b.Fields = append(b.Fields, f.put(b))
		}
	}
	b.Records[i] = r
	b.Parsed() // the fields differ from the raw bytes now
}

// appendText appends the text of a record, with a line end, to the batch's data.
func appendText(b *stream.Batch, text []byte) (off uint32) {
	off = uint32(len(b.Data))
	b.Data = append(append(b.Data, text...), '\n')
	return off
}

func (f field) put(b *stream.Batch) stream.Field {
	out := stream.Field{Name: b.Name(f.name), Kind: kindOf(f.value)}
	value := []byte(f.value)
	switch out.Kind {
	case stream.Null:
		value = nil
	case stream.Text:
		var s string
		if json.Unmarshal(f.value, &s) == nil { // no error: the value was validated before
			value = []byte(s)
		}
	}
	out.Off, out.Len = b.AppendData(value)
	return out
}

func kindOf(value []byte) stream.Kind {
	switch value[0] {
	case '"':
		return stream.Text
	case 't', 'f':
		return stream.Bool
	case 'n':
		return stream.Null
	case '{', '[':
		return stream.JSON
	}
	return stream.Number
}

// resultsOf parses the result for one record. It is an object, a text, a list of objects and texts,
// or null. With null or an empty list, the record is dropped.
func resultsOf(value json.RawMessage) ([]result, error) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return nil, errors.New("there is no value for a record")
	}
	switch value[0] {
	case 'n':
		return nil, nil
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, err
		}
		var all []result
		for _, one := range list {
			m, err := resultOf(bytes.TrimSpace(one))
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
		return all, nil
	}
	m, err := resultOf(value)
	return []result{m}, err
}

func resultOf(value []byte) (result, error) {
	switch value[0] {
	case '"':
		var s string
		err := json.Unmarshal(value, &s)
		return result{text: []byte(s)}, err
	case '{':
		fields, err := fieldsOf(value)
		if err != nil {
			return result{}, err
		}
		if len(fields) == 1 && fields[0].name == "message" && fields[0].value[0] == '"' {
			return resultOf(fields[0].value)
		}
		return result{fields: fields}, nil
	}
	return result{}, fmt.Errorf("%.40q is not a record; want an object, a text, null or a list "+
		"of those", value)
}

// fieldsOf returns the fields of an object in order, with unchanged values. If a name occurs
// several times, the last value is used.
func fieldsOf(object []byte) ([]field, error) {
	in := json.NewDecoder(bytes.NewReader(object))
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	fields := []field{} // not nil, even if the object is empty
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if at := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); at >= 0 {
			fields[at].value = value
			continue
		}
		fields = append(fields, field{name, value})
	}
	return fields, nil
}

// ofTuple returns the record for an emitted tuple. If names is not empty, the record has fields
// with these names and the tuple's values. Otherwise the record has only a text: the text in the
// tuple if the tuple is a single text, else the JSON of the tuple.
func ofTuple(names []string, tuple []json.RawMessage) (result, error) {
	if len(names) > 0 {
		if len(names) != len(tuple) {
			return result{}, fmt.Errorf(
				"it emitted a tuple of %d values, but `fields` has %d names",
				len(tuple), len(names))
		}
		fields := make([]field, len(tuple))
		for i, value := range tuple {
			fields[i] = field{names[i], bytes.TrimSpace(value)}
		}
		return result{fields: fields}, nil
	}
	if len(tuple) == 1 && bytes.HasPrefix(bytes.TrimSpace(tuple[0]), []byte(`"`)) {
		return resultOf(bytes.TrimSpace(tuple[0]))
	}
	text, err := json.Marshal(tuple)
	return result{text: text}, err
}
