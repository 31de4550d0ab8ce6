package config

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// use reads a component: `NAME: {options}`, `NAME:`, or just `NAME`. If there is an error, use
// records it and returns false. The last argument is the part of the config that has the component,
// as named in messages. Example: pipeline "orders".
func (l *loader) use(n *yaml.Node, role stream.Role, what string) (Use, bool) {
	key, options := n, (*yaml.Node)(nil)
	switch {
	case n.Kind == yaml.MappingNode && len(n.Content) == 2:
		key, options = n.Content[0], n.Content[1]
	case n.Kind == yaml.ScalarNode && !isNull(n):
	case n.Kind == yaml.MappingNode && len(n.Content) > 2:
		return Use{}, l.several(n, role, what)
	default:
		l.fail(n, "%s: %s wants a component, but this is %s", what, role,
			emptyOr(n, yaml.MappingNode)).Hint = l.example(role)
		return Use{}, false
	}
	u := Use{Where: l.place(key)}
	c, ok := l.component(role, key.Value)
	if !ok {
		l.unknownComponent(key, role, what)
		return u, false
	}
	c = variant(l.options.Components, c, options)
	u.Component = c
	if c.Options == nil {
		if options != nil && !isNull(options) &&
			(options.Kind != yaml.MappingNode || len(options.Content) > 0) {
			l.fail(options, "%s %s takes no options", role, c.Name)
			return u, false
		}
		return u, true
	}
	u.Options = c.Options()
	composite, ok := u.Options.(stream.Composite)
	if ok && !readMembers(l, composite, key, options, role) {
		return u, false
	}
	if !l.optionsOf(u, key, options) || !claimExclusive(l, u, key) {
		return u, false
	}
	remarksOf(l, u, key, options)
	l.set.right[u.Options] = func(err error) { l.refused(err, c.Name, key, options) }
	return u, true
}

// claimExclusive reserves the resources that a component needs for itself. If another component has
// reserved one of them already, claimExclusive records an error.
func claimExclusive(l *loader, u Use, key *yaml.Node) bool {
	user, ok := u.Options.(stream.ExclusiveUser)
	if !ok {
		return true
	}
	name := fmt.Sprintf("%s %s", u.Component.Role, u.Component.Name)
	for _, resource := range user.Exclusive() {
		id := "exclusive " + resource
		if first, taken := l.set.claims[id]; taken {
			l.fail(key, "%s: %s is used by %s %s; only one component can have it",
				name, resource, first.what, inLine(l, first.where))
			return false
		}
		l.set.claims[id] = claim{name, l.place(key)}
	}
	return true
}

// refused adds an error that a component has returned for its options.
func (l *loader) refused(err error, name string, key, options *yaml.Node) {
	for _, e := range flatten(err) {
		l.invalid(e, name, key, options)
	}
}

// several adds an error for a mapping with several keys where one component is expected.
func (l *loader) several(n *yaml.Node, role stream.Role, what string) bool {
	var known []string
	for i := 0; i < len(n.Content); i += 2 {
		if _, ok := l.component(role, n.Content[i].Value); ok {
			known = append(known, n.Content[i].Value)
		}
	}
	switch {
	case len(known) == 0:
		l.fail(n, "%s: %s wants the name of a component before its options", what,
			role).Hint = l.example(role)
	case len(known) == 1:
		for i := 0; i < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Value != known[0] {
				l.fail(key, "%s: %q stands beside %s; indent it if it is an option of it, or "+
					"remove it: only one %s is allowed",
					what, key.Value, known[0], role)
			}
		}
	case role == stream.SinkRole:
		l.fail(n, "%s: a sink names one component, but this names %d: "+
			"%s", what, len(known), list(known)).
			Hint = "to deliver to all of them, write `routes:` with a sink in each route"
	case role == stream.SourceRole:
		l.fail(n, "%s: a source names one component, but this names %d: %s; write a pipeline "+
			"for each", what,
			len(known), list(known))
	default:
		l.fail(n, "%s: a processor names one component, but this names %d: %s; write each on a "+
			"line that starts with `- `", what, len(known), list(known))
	}
	return false
}

func (l *loader) component(role stream.Role, name string) (stream.Component, bool) {
	for _, c := range l.options.Components {
		if c.Role == role && c.Name == name {
			return c, true
		}
	}
	return stream.Component{}, false
}

// variant returns the variant of c that the options select. A variant has the role and name of c,
// and a key in its field When. It is selected if the options contain this key. If no variant is
// selected, the result is c.
func variant(all []stream.Component, c stream.Component, options *yaml.Node) stream.Component {
	if options == nil || options.Kind != yaml.MappingNode {
		return c
	}
	for _, other := range all {
		same := other.Role == c.Role && other.Name == c.Name
		if same && other.When != "" && valueOf(options, other.When) != nil {
			return other
		}
	}
	return c
}

func (l *loader) names(role stream.Role) []string {
	var out []string
	for _, c := range l.options.Components {
		if c.Role == role && !slices.Contains(out, c.Name) {
			out = append(out, c.Name)
		}
	}
	return out
}

func (l *loader) unknownComponent(key *yaml.Node, role stream.Role, what string) {
	for _, other := range []stream.Role{stream.SourceRole, stream.ProcessorRole, stream.SinkRole} {
		if _, ok := l.component(other, key.Value); ok && other != role {
			l.fail(key, "%s: %s is a %s, not a %s", what, key.Value, other,
				role).Hint = l.example(role)
			return
		}
	}
	e := l.fail(key, "%s: this build has no %s %q", what, role, key.Value)
	if e.Hint = didYouMean(key.Value, l.names(role)); e.Hint == "" {
		e.Hint = fmt.Sprintf("it has no %s at all", role)
	}
}

// example returns a hint that shows the form of a component.
func (l *loader) example(role stream.Role) string {
	names := l.names(role)
	if len(names) == 0 {
		return fmt.Sprintf("this build has no %s at all", role)
	}
	if role == stream.ProcessorRole {
		return fmt.Sprintf("write processors: [{NAME: {options}}], where NAME is %s", choice(names))
	}
	return fmt.Sprintf("write %s: {NAME: {options}}, where NAME is %s", role, choice(names))
}

// optionsOf decodes options into u.Options and calls its Validate method.
func (l *loader) optionsOf(u Use, key, options *yaml.Node) bool {
	v := reflect.ValueOf(u.Options).Elem()
	name := u.Component.Name
	if _, ok := u.Options.(stream.Composite); ok {
		return isValid(l, u, key, options)
	}
	if options == nil || isNull(options) {
		if v.Kind() != reflect.Struct {
			e := l.fail(key, "%s has no value", name)
			switch v.Kind() {
			case reflect.Map:
				e.Hint = fmt.Sprintf("write %s: {NAME: VALUE}", name)
			case reflect.Slice:
				if isPairs(v.Type()) {
					e.Hint = fmt.Sprintf("write %s: {NAME: VALUE}", name)
					break
				}
				e.Hint = fmt.Sprintf("write %s: [VALUE]", name)
			}
			return false
		}
		options = &yaml.Node{Kind: yaml.MappingNode, Line: key.Line, Column: key.Column}
	}
	o := option{name: name}
	_, o.expression = u.Options.(expression)
	return l.decode(options, v, o) && isValid(l, u, key, options)
}

// readMembers reads the list of members of a composite component.
func readMembers(l *loader, to stream.Composite, key, options *yaml.Node, role stream.Role) bool {
	if options == nil || options.Kind != yaml.SequenceNode || len(options.Content) == 0 {
		at := key
		if options != nil {
			at = options
		}
		l.fail(at, "%s wants a list of %ss, the preferred one first", key.Value, role).
			Hint = fmt.Sprintf("write %s: [{NAME: {options}}, {NAME: {options}}]", key.Value)
		return false
	}
	right := true
	for i, n := range options.Content {
		u, ok := l.use(n, role, fmt.Sprintf("%s[%d]", key.Value, i))
		right = right && ok
		to.Add(stream.Member{Component: u.Component, Options: u.Options})
	}
	return right
}

// isValid calls the Validate method of decoded options.
func isValid(l *loader, u Use, key, options *yaml.Node) bool {
	name := u.Component.Name
	validator, ok := u.Options.(interface{ Validate() error })
	if !ok {
		return true
	}
	err := validator.Validate()
	if err == nil {
		return true
	}
	l.refused(err, name, key, options)
	return false
}

// flatten returns the errors that are joined in err, also those of nested joins. If err is not a
// join, it is the only element.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

// invalid adds an error of Validate at the position of the value that the error names. If the
// config does not contain this value, invalid uses the position of the innermost enclosing key that
// the config contains.
func (l *loader) invalid(err error, name string, key, options *yaml.Node) {
	oe, ok := err.(*stream.OptionError)
	if !ok {
		l.fail(key, "%s: %v", name, err)
		return
	}
	at := key
	node := options
	if oe.Key == "" && options != nil && options.Kind == yaml.ScalarNode {
		at = options
	}
	if whole := valueOf(options, oe.Key); whole != nil { // the name contains dots
		at, node = whole, nil
	}
	for part := range strings.FieldsFuncSeq(oe.Key, func(r rune) bool {
		return strings.ContainsRune(".[]", r)
	}) {
		if node = within(node, part); node == nil {
			break
		}
		at = node
	}
	text := oe.Err.Error()
	if !strings.HasPrefix(text, "is ") { // "path is missing", but "path: not found"
		text = ": " + text
	} else {
		text = " " + text
	}
	switch {
	case strings.HasPrefix(oe.Key, "["): // the options are a list
		name += oe.Key
	case oe.Key != "":
		name = joinKey(name, oe.Key)
	}
	l.hidePart(at, oe.Secret)
	e := l.failAt(at.Line, at.Column+l.columnsTo(at, oe.At), "%s%s", name, text)
	if oe.Word != "" {
		e.Hint = didYouMean(oe.Word, oe.Known)
	}
}

// columnsTo returns the number of columns from the start of n to its character with index nth. It
// returns 0 if n is not text, or if the file has the text with escapes or on several lines.
func (l *loader) columnsTo(n *yaml.Node, nth int) int {
	if nth <= 0 || n.Kind != yaml.ScalarNode {
		return 0
	}
	_, rest := l.lineAt(n.Line, n.Column)
	quotes := 0
	if strings.HasPrefix(rest, "'") || strings.HasPrefix(rest, `"`) {
		quotes = 1
	}
	if !strings.HasPrefix(rest[min(quotes, len(rest)):], n.Value) {
		return 0
	}
	return quotes + nth
}

// within returns the value of a key in a mapping or the item at an index of a list. It returns nil
// if there is none.
func within(n *yaml.Node, part string) *yaml.Node {
	if i, err := strconv.Atoi(part); err == nil && n.Kind == yaml.SequenceNode && i >= 0 &&
		i < len(n.Content) {
		return n.Content[i]
	}
	return valueOf(n, part)
}

// valueOf returns the value of a key in a mapping, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for k, value := range entries(n) {
		if k.Value == key {
			return value
		}
	}
	return nil
}

// entries returns the keys and values of a mapping. Any other node, or nil, has none.
func entries(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}
