package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// In a config, a slice of structs is an ordered mapping if the first field of the struct has the
// tag `yaml:",key"` and the second one `yaml:",value"`. Example: `set: {b: 1, a: 2}`. A field Where
// of type Place gets the position of the key. All other fields must be unexported. If the structs
// have a text form, a list of texts is also allowed: `columns: [b, a]`.

// isPairs reports whether t is a slice that is an ordered mapping in a config.
func isPairs(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct &&
		t.Elem().NumField() >= 2 &&
		t.Elem().Field(0).Tag.Get("yaml") == ",key" && t.Elem().Field(1).Tag.Get("yaml") == ",value"
}

// isTexts reports whether the elements of a slice have a text form.
func isTexts(t reflect.Type) bool { return reflect.PointerTo(t.Elem()).Implements(textType) }

func (l *loader) decodePairs(n *yaml.Node, v reflect.Value, o option) bool {
	v.SetZero()
	field := v.Type().Elem().Field(1)
	return l.decodeNamed(n, field.Type, o, optionOf("", field),
		func(key *yaml.Node, value reflect.Value) {
			pair := reflect.New(v.Type().Elem()).Elem()
			pair.Field(0).SetString(key.Value)
			pair.Field(1).Set(value)
			if where := pair.FieldByName("Where"); where.IsValid() && where.Type() == placeType {
				where.Set(reflect.ValueOf(l.place(key)))
			}
			v.Set(reflect.Append(v, pair))
		})
}

// cutAtComma finds values in braces that YAML has cut at a comma. Example: YAML reads {a: f(x, y)}
// as two pairs, one with the value `f(x` and one with the key `y)`. If pair i is probably the rest
// of the value before it, cutAtComma records an error and returns true.
func (l *loader) cutAtComma(n *yaml.Node, i int, o option) bool {
	if i == 0 || n.Style&yaml.FlowStyle == 0 || !isNull(n.Content[2*i+1]) {
		return false
	}
	cut := n.Content[2*i-1]
	if cut.Style != 0 || strings.Count(cut.Value, "(") <= strings.Count(cut.Value, ")") {
		return false
	}
	l.fail(cut, "%s: YAML ends this value at its comma", joinKey(o.name, n.Content[2*i-2].Value)).
		Hint = "put the whole value in single quotes"
	return true
}

// describePairs returns v, a slice of structs, as a YAML mapping from keys to values. If the
// structs have a text form, it returns a list of texts instead, because their text may be a key
// without a value.
func describePairs(v reflect.Value, secret bool) *yaml.Node {
	if isTexts(v.Type()) {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			list.Content = append(list.Content, text(Text(v.Index(i).Interface()), secret))
		}
		return list
	}
	n := mapping()
	for i := range v.Len() {
		add(n, v.Index(i).Field(0).String(), describe(v.Index(i).Field(1), secret))
	}
	return n
}
