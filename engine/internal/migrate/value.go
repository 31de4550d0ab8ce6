//penstock:pure

package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v4"
)

// Value is a setting of another program's configuration, or a group or list of settings. It records
// which settings the conversion has read, so that the unread ones can be reported. A nil *Value
// stands for a missing setting.
type Value struct {
	Line int    // 0 if unknown
	Key  string // path from the top, such as output.elasticsearch.hosts

	text   string
	items  []*Value // items of a list
	keys   []string // keys of a group, in order
	fields map[string]*Value
	read   bool
}

// NewGroup returns a group without settings.
func NewGroup(key string, line int) *Value {
	return &Value{Key: key, Line: line, fields: make(map[string]*Value)}
}

// NewText returns a setting with a text.
func NewText(key string, line int, text string) *Value {
	return &Value{Key: key, Line: line, text: text}
}

// Set sets a setting of a group.
func (v *Value) Set(name string, field *Value) {
	if _, ok := v.fields[name]; !ok {
		v.keys = append(v.keys, name)
	}
	v.fields[name] = field
}

// Get returns the setting at a path of names and marks it as read. It returns nil if there is none.
func (v *Value) Get(path ...string) *Value {
	for _, name := range path {
		if v == nil {
			return nil
		}
		v.read = true
		v = v.fields[name]
	}
	if v != nil {
		v.read = true
	}
	return v
}

// Text returns the text at a path. It returns "" if there is none.
func (v *Value) Text(path ...string) string {
	if v = v.Get(path...); v == nil {
		return ""
	}
	return v.text
}

// IsTrue reports whether the text at a path means true in YAML 1.1 or in Fluent Bit.
func (v *Value) IsTrue(path ...string) bool {
	return slices.Contains([]string{"true", "on", "yes", "1"}, strings.ToLower(v.Text(path...)))
}

// Positive returns the whole number at a path. It returns 0 if there is none, or if it is negative.
func (v *Value) Positive(path ...string) int {
	n, err := strconv.Atoi(v.Text(path...))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// List returns the items at a path. A text or group that is not a list is returned as a list of one
// item, unless it is empty.
func (v *Value) List(path ...string) []*Value {
	v = v.Get(path...)
	switch {
	case v == nil:
		return nil
	case v.items != nil:
		for _, item := range v.items {
			item.read = true
		}
		return v.items
	case v.text != "" || len(v.keys) > 0:
		return []*Value{v}
	}
	return nil
}

// Texts returns the texts in the list at a path.
func (v *Value) Texts(path ...string) []string {
	var out []string
	for _, item := range v.List(path...) {
		if item.text != "" {
			out = append(out, item.text)
		}
	}
	return out
}

// Names returns the names of the settings of a group, in the order of the file. Those of a TOML
// document are sorted.
func (v *Value) Names() []string {
	if v == nil {
		return nil
	}
	return v.keys
}

// Ignore marks the settings with the given names, and everything in them, as read.
func (v *Value) Ignore(names ...string) {
	for _, name := range names {
		v.Get(name).IgnoreAll()
	}
}

// IgnoreAll marks v and all settings below it as read.
func (v *Value) IgnoreAll() {
	if v == nil {
		return
	}
	v.read = true
	for _, f := range v.fields {
		f.IgnoreAll()
	}
	for _, item := range v.items {
		item.IgnoreAll()
	}
}

// Unread returns the settings that the conversion has not read. For a group that was not read
// itself, Unread returns the group instead of its settings.
func (v *Value) Unread() []*Value {
	if v == nil {
		return nil
	}
	if !v.read {
		return []*Value{v}
	}
	var out []*Value
	for _, name := range v.keys {
		out = append(out, v.fields[name].Unread()...)
	}
	for _, item := range v.items {
		out = append(out, item.Unread()...)
	}
	return out
}

// Limits of the size of a configuration.
const (
	maxDepth  = 64
	maxValues = 100_000
)

// ParseYAML reads a YAML document. If dots is set, a name such as output.file stands for nested
// groups, as in Filebeat and the other Elastic Beats.
func ParseYAML(text string, dots bool) (*Value, error) {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		return nil, err
	}
	if len(n.Content) == 0 {
		n.Content = []*yaml.Node{{Kind: yaml.MappingNode}} // an empty document
	}
	if n.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: the top level is not a mapping", n.Content[0].Line)
	}
	return settings(n.Content[0], dots)
}

// settings returns the settings in a YAML mapping.
func settings(n *yaml.Node, dots bool) (*Value, error) {
	top := NewGroup("", 0)
	top.read = true
	y := yamlReader{dots: dots}
	return top, y.group(top, n, 0)
}

type yamlReader struct {
	dots bool
	n    int
}

func (y *yamlReader) group(into *Value, n *yaml.Node, depth int) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		g, names := into, []string{n.Content[i].Value}
		if y.dots {
			names = strings.Split(n.Content[i].Value, ".")
		}
		last := len(names) - 1
		if depth+last > maxDepth {
			return tooLarge(n.Content[i].Line)
		}
		for _, name := range names[:last] {
			g = g.subgroup(name, n.Content[i].Line)
		}
		if err := y.field(g, names[last], n.Content[i+1], depth+last); err != nil {
			return err
		}
	}
	return nil
}

// subgroup returns the group with a name. If there is none, it creates it.
func (v *Value) subgroup(name string, line int) *Value {
	if f := v.fields[name]; f != nil && f.fields != nil {
		return f
	}
	f := NewGroup(join(v.Key, name), line)
	v.Set(name, f)
	return f
}

func (y *yamlReader) field(g *Value, name string, n *yaml.Node, depth int) error {
	if n.Kind == yaml.MappingNode {
		return y.group(g.subgroup(name, n.Line), n, depth+1)
	}
	f, err := y.value(join(g.Key, name), n, depth+1)
	if err != nil {
		return err
	}
	g.Set(name, f)
	return nil
}

func (y *yamlReader) value(key string, n *yaml.Node, depth int) (*Value, error) {
	if y.n++; y.n > maxValues || depth > maxDepth {
		return nil, tooLarge(n.Line)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return y.value(key, n.Alias, depth+1)
	case yaml.MappingNode:
		g := NewGroup(key, n.Line)
		return g, y.group(g, n, depth+1)
	case yaml.SequenceNode:
		items := make([]*Value, len(n.Content))
		for i, item := range n.Content {
			var err error
			if items[i], err = y.value(fmt.Sprintf("%s[%d]", key, i), item, depth+1); err != nil {
				return nil, err
			}
		}
		return NewList(key, n.Line, items...), nil
	}
	text := n.Value
	if n.Tag == "!!null" {
		text = ""
	}
	return NewText(key, n.Line, text), nil
}

func tooLarge(line int) error {
	return fmt.Errorf("line %d: more than %d values or %d levels", line, maxValues, maxDepth)
}

// tomlString matches a string or a comment at the beginning of a TOML text. A multi-line string may
// end with up to five quotes: the first two of them belong to the text.
var tomlString = regexp.MustCompile(`(?s)^(?:"""(?:\\.|[^\\])*?"{3,5}|'''.*?'{3,5}|` +
	`"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*)`)

// checkNesting returns an error if a TOML document may be nested so deeply that decoding it takes
// too much memory or time. It counts the open brackets, and the dots of each key. Brackets and dots
// in strings and comments do not count.
func checkNesting(text string) error {
	const most = 1000
	depth, dots, line := 0, 0, 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"', '\'', '#':
			if skipped := tomlString.FindString(text[i:]); skipped != "" {
				line += strings.Count(skipped, "\n")
				i += len(skipped) - 1
			}
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		case '.':
			dots++
		case ',':
			dots = 0 // the next key of an inline table
		case '\n':
			dots = 0
			line++
		}
		if depth > most || dots > most {
			return fmt.Errorf("line %d: more than %d open brackets, or dots in a key", line, most)
		}
	}
	return nil
}

// ParseTOML reads a TOML document. Its values have no line numbers.
func ParseTOML(text string) (*Value, error) {
	if err := checkNesting(text); err != nil {
		return nil, err
	}
	tree := make(map[string]any)
	if _, err := toml.Decode(text, &tree); err != nil {
		return nil, err
	}
	var n yaml.Node
	if err := n.Encode(tree); err != nil { // sorts the names, as their order is not known
		return nil, err
	}
	return settings(&n, false)
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// NewList returns a list.
func NewList(key string, line int, items ...*Value) *Value {
	return &Value{Key: key, Line: line, items: items}
}

// LowerNames returns a copy of a group with the names of its settings in lower case. The copy
// counts as read, and its settings do not. For nil LowerNames returns nil.
func (v *Value) LowerNames() *Value {
	if v == nil {
		return nil
	}
	g := NewGroup(v.Key, v.Line)
	g.read = true
	for _, name := range v.keys {
		g.Set(strings.ToLower(name), v.fields[name])
	}
	return g
}
