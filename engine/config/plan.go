package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// Plan returns the effective config as YAML. It has every pipeline and route with its options,
// including defaults, but without options that have no effect. Paths are resolved, and secrets are
// masked. Apart from the masked secrets, it is a valid config.
func (c *Config) Plan() []byte {
	root := mapping()
	add(root, "state", c.statePlan())
	add(root, "admin", c.Admin.plan())
	if c.Telemetry.On() {
		add(root, "telemetry", describe(reflect.ValueOf(c.Telemetry), false))
	}
	pipelines := mapping()
	for i := range c.Pipelines {
		add(pipelines, c.Pipelines[i].Name, c.Pipelines[i].plan())
	}
	add(root, "pipelines", pipelines)
	escapeVariables(root)
	if len(c.Tests) > 0 {
		tests := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range c.Tests {
			tests.Content = append(tests.Content, c.Tests[i].plan())
		}
		escapeVariables(tests, "input", "expect")
		add(root, "tests", tests)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		// Cannot happen: the tree contains only text, and the output is in memory.
		panic(fmt.Sprintf("config: BUG: writing the plan: %v", err))
	}
	return out.Bytes()
}

// escapeVariables writes each ${ in a value as $${, because the reader of a config replaces
// variables. It leaves out the values of the given keys, where the reader replaces no variables.
func escapeVariables(n *yaml.Node, except ...string) {
	switch n.Kind {
	case yaml.MappingNode:
		for key, value := range entries(n) {
			if !slices.Contains(except, key.Value) {
				escapeVariables(value, except...)
			}
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			escapeVariables(item, except...)
		}
	default:
		n.Value = strings.ReplaceAll(n.Value, "${", "$${")
	}
}

// RoutePlan is the part of a plan that describes one route. It marshals to a JSON object.
type RoutePlan struct {
	Pipeline, Route string
	root            *yaml.Node
}

// RoutePlans returns the plans of the routes of all pipelines, in the order of the config.
func (c *Config) RoutePlans() []RoutePlan {
	var out []RoutePlan
	for p, r := range c.Routes() {
		root := mapping("pipeline", p.Name, "route", r.Name)
		add(root, "source", p.Source.plan())
		root.Content = append(root.Content, r.plan().Content...)
		out = append(out, RoutePlan{p.Name, r.Name, root})
	}
	return out
}

// MarshalJSON returns the plan as an object with its keys in the order of the config.
func (r RoutePlan) MarshalJSON() ([]byte, error) { return appendJSON(nil, r.root), nil }

func (p *Pipeline) plan() *yaml.Node {
	n := mapping()
	add(n, "source", p.Source.plan())
	if len(p.Routes) == 1 && p.Routes[0].Name == MainRoute {
		n.Content = append(n.Content, p.Routes[0].plan().Content...)
		return n
	}
	routes := mapping()
	for i := range p.Routes {
		add(routes, p.Routes[i].Name, p.Routes[i].plan())
	}
	add(n, "routes", routes)
	return n
}

func (r *Route) plan() *yaml.Node {
	n := mapping()
	if len(r.Processors) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, p := range r.Processors {
			list.Content = append(list.Content, p.plan())
		}
		add(n, "processors", list)
	}
	add(n, "sink", r.Sink.plan())
	for _, l := range r.Flow.limits() {
		add(n, l.key, describe(reflect.ValueOf(*l.Limit), false))
	}
	unused := r.unused()
	for _, part := range r.parts() {
		value := describe(part.value, false)
		for _, key := range unused[part.key] {
			remove(value, key)
		}
		add(n, part.key, value)
	}
	return n
}

// unused returns, by part of the route, the keys that have no effect because of the values of other
// keys. A plan omits them.
func (r *Route) unused() map[string][]string {
	out := map[string][]string{"flow": {limitKey, workerLimitKey}} // they are keys of the route
	for _, o := range r.withoutEffect() {
		out[o.part] = append(out[o.part], o.keys...)
	}
	return out
}

func (u Use) plan() *yaml.Node {
	n := mapping()
	options := mapping()
	if _, ok := u.Options.(stream.Composite); ok {
		options = &yaml.Node{Kind: yaml.SequenceNode}
		for _, m := range u.ends() {
			options.Content = append(options.Content, m.plan())
		}
	} else if u.Options != nil {
		options = describe(reflect.ValueOf(u.Options).Elem(), false)
	}
	add(n, u.Component.Name, options)
	return n
}

// describe returns an option as YAML. It masks a secret that is set.
func describe(v reflect.Value, secret bool) *yaml.Node {
	t := v.Type()
	switch {
	case t == durationType:
		return text(short(time.Duration(v.Int())), secret)
	case t == sizeType:
		return text(stream.Size(v.Int()).String(), secret)
	case t.Kind() == reflect.Pointer:
		return describe(v.Elem(), secret)
	case !hasItems(v) && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		out, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err == nil && (len(out) > 0 || !hasOptions(t)) { // no text form: a mapping
			return text(string(out), secret)
		}
	}
	if isPairs(t) {
		return describePairs(v, secret)
	}
	switch t.Kind() {
	case reflect.Struct:
		if f, ok := listField(t); ok && hasItems(v) {
			return describe(v.FieldByIndex(f.Index), secret)
		}
		return describeStruct(v, secret)
	case reflect.Slice:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			list.Content = append(list.Content, describe(v.Index(i), secret))
		}
		return list
	case reflect.Map:
		n := mapping()
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			return bytes.Compare([]byte(a.String()), []byte(b.String()))
		})
		for _, k := range keys {
			add(n, k.String(), describe(v.MapIndex(k), secret))
		}
		return n
	case reflect.String:
		return text(v.String(), secret)
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Float32, reflect.Float64:
		return number("!!float", strconv.FormatFloat(v.Float(), 'g', -1, t.Bits()), secret)
	}
	return number("!!int", fmt.Sprint(v.Interface()), secret)
}

// Text returns the value of an option as a plan writes it.
func Text(v any) string { return describe(reflect.ValueOf(v), false).Value }

func describeStruct(v reflect.Value, secret bool) *yaml.Node {
	n := mapping()
	keys, fields := fieldsOf(v.Type())
	for _, key := range keys {
		f := fields[key]
		value := v.FieldByIndex(f.Index)
		if value.Kind() == reflect.Pointer && value.IsNil() {
			continue
		}
		o := optionOf("", f)
		if o.enum != nil && value.IsZero() { // an empty choice means that the key is not set
			continue
		}
		add(n, key, describe(value, secret || o.secret))
	}
	return n
}

func text(s string, secret bool) *yaml.Node {
	if secret && s != "" {
		s = stream.Masked
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: maskURLs(s)}
}

func number(tag, s string, secret bool) *yaml.Node {
	if secret {
		return text(stream.Masked, false)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s}
}

// mapping returns a YAML mapping of keys and texts.
func mapping(pairs ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(pairs); i += 2 {
		add(n, pairs[i], text(pairs[i+1], false))
	}
	return n
}

func add(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
		value)
}

func remove(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// appendJSON appends a tree returned by describe as JSON. It keeps the order of the keys.
func appendJSON(dst []byte, n *yaml.Node) []byte {
	switch {
	case n.Kind == yaml.MappingNode:
		dst = append(dst, '{')
		for key, value := range entries(n) {
			if key != n.Content[0] {
				dst = append(dst, ',')
			}
			dst = appendJSON(append(appendJSON(dst, key), ':'), value)
		}
		return append(dst, '}')
	case n.Kind == yaml.SequenceNode:
		dst = append(dst, '[')
		for i, c := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, c)
		}
		return append(dst, ']')
	case n.Tag == "!!str":
		quoted, err := json.Marshal(n.Value)
		if err != nil {
			panic(fmt.Sprintf("config: BUG: text as JSON: %v", err))
		}
		return append(dst, quoted...)
	}
	return append(dst, n.Value...)
}
