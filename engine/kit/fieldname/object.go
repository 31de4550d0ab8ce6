//penstock:pure

package fieldname

import (
	"bytes"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Object is a JSON object that can be changed. Members that are not changed keep their original
// text. An object may have several members with the same key. Remove, Take and Rename then change
// all of them. Take and the function Find return the value of the last one.
type Object struct{ members []member }

type member struct {
	key    string  // decoded, without escapes
	label  []byte  // as written, with its quotes
	value  []byte  // as written
	object *Object // replaces value if the member was opened
	to     string  // new key, used by Settle; "" if the key stays
}

// Value is a member's value.
type Value struct {
	Kind stream.Kind
	Raw  []byte // as in a field: a Text has no quotes or escapes
}

// IsObject reports whether the value of a field is a JSON object. White space may precede the
// object, as in json columns of databases.
func IsObject(kind stream.Kind, value []byte) bool {
	value = trim(value)
	return kind == stream.JSON && len(value) > 0 && value[0] == '{'
}

func trim(value []byte) []byte { return bytes.TrimLeft(value, " \t\r\n") }

// Open parses an object. The Object uses the memory of raw. Open returns an error for invalid JSON.
func Open(raw []byte) (*Object, error) {
	o := &Object{}
	var s json.Scanner
	for s.Start(raw, 0, len(raw)); s.Next(); {
		k, v := s.Key, s.Value
		key := raw[k.Off : k.Off+k.Len]
		if k.Escaped {
			key = json.AppendUnescaped(nil, key)
		}
		m := member{key: string(key), label: raw[k.Off-1 : k.Off+k.Len+1]}
		switch v.Kind {
		case stream.Text:
			m.value = raw[v.Off-1 : v.Off+v.Len+1]
		case stream.Null:
			m.value = []byte("null")
		default:
			m.value = raw[v.Off : v.Off+v.Len]
		}
		o.members = append(o.members, m)
	}
	if what, _ := s.Wrong(); what != "" {
		return nil, fmt.Errorf("the object cannot be read: %s", what)
	}
	return o, nil
}

// Find returns the value at path in the object raw. It is a fast alternative to Open for a single
// value. If several members have the same key, Find uses the last one.
func Find(s *json.Scanner, raw []byte, path []string) (Value, bool) {
	for {
		raw = trim(raw)
		v, ok := s.Member(raw, path[0])
		if !ok {
			return Value{}, false
		}
		raw = raw[v.Off : v.Off+v.Len]
		if path = path[1:]; len(path) == 0 {
			if v.Escaped {
				raw = json.AppendUnescaped(nil, raw)
			}
			return Value{v.Kind, raw}, true
		}
		if !IsObject(v.Kind, raw) {
			return Value{}, false
		}
	}
}

// child opens member i and returns its object, or nil if the member is not an object.
func (o *Object) child(i int) (*Object, error) {
	m := &o.members[i]
	if m.object == nil && IsObject(stream.JSON, m.value) {
		inner, err := Open(m.value)
		if err != nil {
			return nil, err
		}
		m.object = inner
	}
	return m.object, nil
}

// Remove removes all members at path, and reports whether there was one.
func (o *Object) Remove(path []string) (removed bool, err error) {
	kept := o.members[:0]
	for i := range o.members {
		if o.members[i].key == path[0] {
			if len(path) == 1 {
				removed = true
				continue
			}
			inner, err := o.child(i)
			if err != nil {
				return removed, err
			}
			if inner != nil {
				some, err := inner.Remove(path[1:])
				if err != nil {
					return removed, err
				}
				removed = removed || some
			}
		}
		kept = append(kept, o.members[i])
	}
	o.members = kept
	return removed, nil
}

// Take removes all members at path, and returns the value of the last one.
func (o *Object) Take(path []string) (v Value, ok bool, err error) {
	for i := range o.members {
		m := &o.members[i]
		if m.key != path[0] {
			continue
		}
		if len(path) == 1 {
			if m.object != nil {
				v, ok = Value{stream.JSON, m.object.Append(nil)}, true
			} else {
				v, ok = valueOf(m.value), true
			}
			continue
		}
		inner, err := o.child(i)
		if err != nil {
			return v, ok, err
		}
		if inner != nil {
			if found, some, err := inner.Take(path[1:]); err != nil {
				return v, ok, err
			} else if some {
				v, ok = found, true
			}
		}
	}
	if ok && len(path) == 1 {
		_, err = o.Remove(path)
	}
	return v, ok, err
}

// valueOf returns a JSON text as a Value.
func valueOf(text []byte) Value {
	var s json.Scanner
	whole := append(append([]byte(`{"":`), text...), '}')
	s.Start(whole, 0, len(whole))
	if !s.Next() {
		return Value{stream.JSON, text}
	}
	raw := whole[s.Value.Off : s.Value.Off+s.Value.Len]
	if s.Value.Escaped {
		raw = json.AppendUnescaped(nil, raw)
	}
	return Value{s.Value.Kind, raw}
}

// Set sets the member at path to value, which is a JSON text. It creates objects on the path where
// a member is missing or null. If several members have the same key, one remains, at the place of
// the first. If the path continues below this member, it gets the object of the last member with
// this key. Example: setting a.z to 3 in {"a":{"x":1},"b":0,"a":{"y":2}} gives
// {"a":{"y":2,"z":3},"b":0}. Set returns an error if another value on the path is not an object.
func (o *Object) Set(path []string, value []byte) error {
	at := -1
	kept := o.members[:0]
	for _, m := range o.members {
		if m.key == path[0] {
			if at >= 0 {
				if len(path) > 1 { // the value of the last member, at the place of the first
					kept[at].value, kept[at].object = m.value, m.object
				}
				continue
			}
			at = len(kept)
		}
		kept = append(kept, m)
	}
	o.members = kept
	if at < 0 || len(path) > 1 && string(o.members[at].value) == "null" &&
		o.members[at].object == nil {
		if len(path) > 1 {
			value = Wrap(path[1:], value)
		}
		if at < 0 {
			at = len(o.members)
			o.members = append(o.members,
				member{key: path[0], label: ndjson.AppendString(nil, path[0])})
		}
		o.members[at].value = value
		return nil
	}
	if len(path) == 1 {
		o.members[at].value, o.members[at].object = value, nil
		return nil
	}
	inner, err := o.child(at)
	if err != nil {
		return err
	}
	if inner == nil {
		return fmt.Errorf("%s is not an object, so member %s cannot be set", path[0], path[1])
	}
	return inner.Set(path[1:], value)
}

// Wrap returns the JSON text of an object with the value at path. Example: the path a, b and the
// value 1 give {"a":{"b":1}}.
func Wrap(path []string, value []byte) []byte {
	var out []byte
	for _, key := range path {
		out = append(ndjson.AppendString(append(out, '{'), key), ':')
	}
	out = append(out, value...)
	for range path {
		out = append(out, '}')
	}
	return out
}

// Rename gives all members at path a new key. The change takes effect at the next call of Settle,
// so that two members can exchange their keys. The order of the members does not change. Rename
// reports whether there was a member at path.
func (o *Object) Rename(path []string, key string) (renamed bool, err error) {
	for i := range o.members {
		m := &o.members[i]
		if m.key != path[0] {
			continue
		}
		if len(path) == 1 {
			m.to, renamed = key, true
			continue
		}
		inner, err := o.child(i)
		if err != nil {
			return renamed, err
		}
		if inner != nil {
			some, err := inner.Rename(path[1:], key)
			if err != nil {
				return renamed, err
			}
			renamed = renamed || some
		}
	}
	return renamed, nil
}

// Settle gives the renamed members their new keys. It removes any other member that has one of
// these keys and was not renamed.
func (o *Object) Settle() {
	taken := make(map[string]bool)
	for i := range o.members {
		if to := o.members[i].to; to != "" {
			taken[to] = true
		}
	}
	kept := o.members[:0]
	for _, m := range o.members {
		if m.to == "" && taken[m.key] {
			continue
		}
		if m.to != "" {
			m.key, m.label, m.to = m.to, ndjson.AppendString(nil, m.to), ""
		}
		if m.object != nil {
			m.object.Settle()
		}
		kept = append(kept, m)
	}
	o.members = kept
}

// Append appends the object as JSON to dst.
func (o *Object) Append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, m.label...), ':')
		if m.object != nil {
			dst = m.object.Append(dst)
		} else {
			dst = append(dst, m.value...)
		}
	}
	return append(dst, '}')
}
