package config

import (
	"encoding"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/flow/dispatch"
	windows "github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/stream"
)

// option is the parsed struct tag of an option, with the name of the option for messages.
type option struct {
	name       string // with dots: "rotate.bytes"
	doc        string
	enum       []string // allowed values
	path       bool     // relative to the config's folder
	glob       bool     // a glob of names or, with a slash, of paths; see isRelativeGlob
	alone      bool     // no other component of the config may have this path
	secret     bool
	required   bool
	expression bool
	min, max   string // of a number or duration, inclusive; "" means no limit
}

// expression is implemented by types of options that are expressions. In YAML, ` #` starts a
// comment, which would silently cut off the rest of an unquoted expression. So ` #` in the unquoted
// value of such an option is an error. A type needs only this method to implement expression, and a
// connector need not import this package.
type expression interface{ Expression() }

var (
	durationType = reflect.TypeFor[time.Duration]()
	placeType    = reflect.TypeFor[Place]()
	sizeType     = reflect.TypeFor[stream.Size]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func optionOf(prefix string, f reflect.StructField) option {
	split := func(tag string) []string {
		if v := f.Tag.Get(tag); v != "" {
			return strings.Split(v, ",")
		}
		return nil
	}
	return option{
		name: joinKey(prefix, keyOf(f)), doc: f.Tag.Get("doc"),
		enum: append(split("enum"), registered(split("names"))...),
		min:  f.Tag.Get("min"), max: f.Tag.Get("max"),
		path: f.Tag.Get("path") == "true", glob: f.Tag.Get("path") == "glob",
		alone:  f.Tag.Get("alone") == "true",
		secret: f.Tag.Get("secret") == "true", required: f.Tag.Get("required") == "true",
		expression: f.Tag.Get("expr") == "true" ||
			reflect.PointerTo(f.Type).Implements(reflect.TypeFor[expression]()),
	}
}

// registered replaces the words @window and @dispatch of a struct tag by the names of all window
// algorithms and dispatch policies.
func registered(words []string) (names []string) {
	for _, w := range words {
		switch w {
		case "@window":
			names = append(names, windows.Names()...)
		case "@dispatch":
			names = append(names, dispatch.Names()...)
		default:
			names = append(names, w)
		}
	}
	return names
}

// keyOf returns the key of a struct field in a config. It returns "" if the field cannot be set in
// a config.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" || !f.IsExported() {
		return ""
	}
	return key
}

func joinKey(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// fieldsOf returns the fields of a struct that a config can set, as a map by key. keys has the keys
// in the order of the fields. Fields of embedded structs are included.
func fieldsOf(t reflect.Type) (keys []string, fields map[string]reflect.StructField) {
	fields = map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if key := keyOf(f); key != "" {
			keys = append(keys, key)
			fields[key] = f
		}
	}
	return keys, fields
}

// decode decodes a node into v, which contains the default. It records all mistakes that it finds,
// and returns false if there is one.
func (l *loader) decode(n *yaml.Node, v reflect.Value, o option) bool {
	t := v.Type()
	if isNull(n) && (t.Kind() != reflect.Struct || t == sizeType) {
		e := l.fail(n, "%s has no value", o.name)
		if !o.required {
			e.Hint = "remove the key to get the default"
		}
		return false
	}
	scalar := n.Kind == yaml.ScalarNode && !isNull(n)
	switch {
	case t == valueType:
		return decodeValue(l, n, v, o)
	case t == durationType || t == sizeType:
		return l.decodeScalar(n, v, o)
	case reflect.PointerTo(t).Implements(textType) && (scalar || !hasOptions(t) && !isList(t)):
		return l.decodeScalar(n, v, o)
	case t.Kind() == reflect.Pointer:
		fresh := reflect.New(t.Elem())
		if !v.IsNil() {
			fresh.Elem().Set(v.Elem())
		}
		v.Set(fresh)
		return l.decode(n, fresh.Elem(), o)
	case t.Kind() == reflect.Struct:
		if f, ok := listField(t); ok && n.Kind == yaml.SequenceNode {
			item := optionOf("", f)
			item.name = o.name
			return l.decode(n, v.FieldByIndex(f.Index), item)
		}
		return l.decodeStruct(n, v, o)
	case isPairs(t) && (n.Kind == yaml.MappingNode || !isTexts(t)):
		return l.decodePairs(n, v, o)
	case t.Kind() == reflect.Slice:
		return l.decodeList(n, v, o)
	case t.Kind() == reflect.Map:
		return l.decodeMap(n, v, o)
	}
	return l.decodeScalar(n, v, o)
}

func (l *loader) decodeStruct(n *yaml.Node, v reflect.Value, o option) bool {
	if n.Kind != yaml.MappingNode && !isNull(n) {
		e := l.fail(n, "%s takes options as a mapping, but this is %s", o.name,
			article(kindName(n)))
		if keys, _ := fieldsOf(v.Type()); len(keys) > 0 {
			e.Hint = fmt.Sprintf("write {%s: ...}; the options are %s", keys[0], list(keys))
		}
		return false
	}
	keys, fields := fieldsOf(v.Type())
	before := len(l.errs)
	given := map[string]*yaml.Node{} // by known key: the value, or the key if the value is wrong
	meant := map[string]bool{}       // known keys that were probably misspelled as unknown ones
	for key, value := range entries(n) {
		f, ok := fields[key.Value]
		if !ok {
			if mayBeSecret(key.Value, keys, fields) {
				l.hideUnknown(key.Value)
			}
			l.unknownOption(key, o.name, keys)
			meant[Nearest(key.Value, keys)] = true
			continue
		}
		given[key.Value] = key
		if l.decode(value, v.FieldByIndex(f.Index), optionOf(o.name, f)) {
			given[key.Value] = value
		}
	}
	for _, key := range keys {
		f := fields[key]
		fo := optionOf(o.name, f)
		if at := v.FieldByIndex(f.Index); fo.path && given[key] == nil &&
			at.Kind() == reflect.String {
			// A relative default such as "." is also relative to the config's directory.
			at.SetString(l.resolve(at.String()))
		}
		if !fo.required || !isEmpty(v.FieldByIndex(f.Index)) || given[key] == nil && meant[key] {
			continue
		}
		switch at := given[key]; {
		case at == nil:
			e := l.fail(n, "%s is missing", fo.name)
			if fo.doc != "" {
				e.Hint = key + ": " + fo.doc
			}
			if fo.enum != nil {
				e.Hint += "; want " + choice(fo.enum)
			}
		case len(l.errs) == before:
			l.fail(at, "%s is empty", fo.name)
		}
	}
	return len(l.errs) == before
}

// listField returns the field of a struct that is tagged `yaml:",list"`, and false if there is
// none. Instead of a mapping for the struct, a config may have a list. The list is then the value
// of this field.
func listField(t reflect.Type) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Tag.Get("yaml") == ",list" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// isList reports whether t is a struct that may be written as a list in a config.
func isList(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	_, ok := listField(t)
	return ok
}

// hasItems reports whether v is a struct that may be written as a list, and the list has items.
func hasItems(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	f, ok := listField(v.Type())
	return ok && v.FieldByIndex(f.Index).Len() > 0
}

// hasOptions reports whether t is a struct with fields that a mapping in a config can set.
func hasOptions(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	keys, _ := fieldsOf(t)
	return len(keys) > 0
}

func isEmpty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// secretName matches names that programs commonly give to options with secrets.
var secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|bearer|auth|cred|key`)

// mayBeSecret reports whether the value of an unknown option may be a secret, according to its name
// or because the most similar option is secret.
func mayBeSecret(name string, keys []string, fields map[string]reflect.StructField) bool {
	nearest := Nearest(name, keys)
	return secretName.MatchString(name) ||
		nearest != "" && fields[nearest].Tag.Get("secret") == "true"
}

func (l *loader) unknownOption(key *yaml.Node, of string, keys []string) {
	if len(keys) == 0 {
		l.fail(key, "%s has no option %q; it has no options", of, key.Value)
		return
	}
	e := l.fail(key, "%s has no option %q", of, key.Value)
	e.Hint = unknownKey(key.Value, keys)
}

func (l *loader) decodeList(n *yaml.Node, v reflect.Value, o option) bool {
	if n.Kind != yaml.SequenceNode {
		e := l.fail(n, "%s wants a list, but this is %s", o.name, article(kindName(n)))
		if n.Kind == yaml.ScalarNode && !o.secret {
			e.Hint = fmt.Sprintf("write [%s]", quoted(n.Value))
		}
		return false
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	ok := true
	for i, c := range n.Content {
		item := o
		item.name = fmt.Sprintf("%s[%d]", o.name, i)
		ok = l.decode(c, out.Index(i), item) && ok
	}
	v.Set(out)
	return ok
}

func (l *loader) decodeMap(n *yaml.Node, v reflect.Value, o option) bool {
	out := reflect.MakeMapWithSize(v.Type(), len(n.Content)/2)
	v.Set(out)
	return l.decodeNamed(n, v.Type().Elem(), o, o, func(key *yaml.Node, value reflect.Value) {
		out.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), value)
	})
}

// decodeNamed decodes a mapping with any names as keys. All values have the Go type t and the
// properties in item, such as bounds and whether they are secret. decodeNamed passes each key and
// its decoded value to put.
func (l *loader) decodeNamed(n *yaml.Node, t reflect.Type, o, item option,
	put func(key *yaml.Node, value reflect.Value)) bool {
	if n.Kind != yaml.MappingNode {
		l.fail(n, "%s wants a mapping of names to values, but this is %s", o.name,
			article(kindName(n)))
		return false
	}
	ok := true
	for i := 0; i+1 < len(n.Content); i += 2 {
		if l.cutAtComma(n, i/2, o) {
			return false
		}
		key, value := n.Content[i], reflect.New(t).Elem()
		if strings.Contains(key.Value, "${") {
			l.fail(key, "variables are replaced in values only, not in keys")
			ok = false
			continue
		}
		item.name = joinKey(o.name, key.Value)
		ok = l.decode(n.Content[i+1], value, item) && ok
		put(key, value)
	}
	return ok
}

// resolve converts a path relative to the config's directory to a path that the process can open.
func (l *loader) resolve(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.dir, path)
}

// isRelativeGlob reports whether a glob is a path, which may be relative to the config's directory.
// A glob without a slash is compared with names. A glob that begins with **/ matches in all
// directories. A slash at the end is a mistake that the component reports.
func isRelativeGlob(glob string) bool {
	glob = filepath.ToSlash(glob)
	return strings.Contains(glob, "/") && !strings.HasSuffix(glob, "/") &&
		!strings.HasPrefix(glob, "**/")
}

// article returns the name of a kind of node with its article, for example "a list" or "text".
func article(kind string) string {
	if kind == "mapping" || kind == "list" {
		return "a " + kind
	}
	return kind
}
