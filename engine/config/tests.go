package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Test is a unit test of the processors of a route. In a config, it is an element of the list
// `tests`. `penstock test` runs these tests.
type Test struct {
	// Name is shown in the results. It must not be empty.
	Name string `yaml:"name" required:"true" doc:"shown in results"`
	// Pipeline is the name of the pipeline. It may be omitted if the config has one pipeline.
	Pipeline string `yaml:"pipeline" doc:"may be left out in a config with one pipeline"`
	// Route is the name of the route. It may be omitted if the pipeline has one route.
	Route string `yaml:"route" doc:"may be left out in a pipeline with one route"`
	// Input has at least one record in the form in which the source reads it. A text is a line, and
	// any other value is a line of JSON.
	Input []Value `yaml:"input" required:"true" doc:"records: a text is a line, any other value a line of JSON"`
	// Expect has the records that the sink must get, in order. A text is an unparsed record. A
	// mapping has the fields of a parsed record.
	Expect []Value `yaml:"expect" doc:"records that reach the sink, in order: mappings of fields, or texts of unparsed records"`
	// Dead has a text for each expected dead letter, in order. The reason of the letter must
	// contain this text.
	Dead []string `yaml:"dead" doc:"a part of the reason of each dead letter, in order"`

	Where Place // of the test; zero if built in Go
}

// Value is a value in a test: text, a number, true, false, null, a list or a mapping. Variables
// such as ${NAME} are not replaced in it. The zero value is null.
type Value struct {
	v    any
	node *yaml.Node // nil if built in Go
}

// ValueOf returns the Value of v. Package encoding/json must be able to marshal v.
func ValueOf(v any) Value { return Value{v: v} }

// Text returns the text, and false if the value is not text.
func (v Value) Text() (text string, ok bool) {
	text, ok = v.v.(string)
	return text, ok
}

// JSON returns the value as JSON on one line, with the keys of mappings in alphabetical order.
func (v Value) JSON() string {
	text, err := json.Marshal(v.v)
	if err != nil {
		return "null" // cannot happen: all values can be marshaled
	}
	return string(text)
}

var valueType = reflect.TypeFor[Value]()

func decodeValue(l *loader, n *yaml.Node, v reflect.Value, o option) bool {
	var value any
	err := n.Decode(&value)
	if err == nil {
		_, err = json.Marshal(value)
	}
	if err != nil {
		l.fail(n, "%s cannot be written as JSON: %v", o.name, err)
		return false
	}
	v.Set(reflect.ValueOf(Value{value, n}))
	return true
}

// loadTests decodes the key `tests` and adds the tests to f.
func loadTests(l *loader, n *yaml.Node, f *Config) {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "tests wants a list, but this is %s", article(kindName(n)))
		return
	}
	for i, c := range n.Content {
		var t Test
		if !l.decode(c, reflect.ValueOf(&t).Elem(), option{name: fmt.Sprintf("tests[%d]", i)}) {
			continue
		}
		t.Where = l.place(c)
		if len(l.errs) == 0 { // otherwise pipelines may be missing
			if err := t.check(f); err != nil {
				l.fail(c, "%v", err)
				continue
			}
		}
		f.Tests = append(f.Tests, t)
	}
}

// Route returns the pipeline and the route with the given names. An empty name means the only
// pipeline or route. An error lists the names that exist.
func (c *Config) Route(pipeline, route string) (*Pipeline, *Route, error) {
	var names []string
	for i := range c.Pipelines {
		p := &c.Pipelines[i]
		names = append(names, p.Name)
		if p.Name != pipeline && (pipeline != "" || len(c.Pipelines) > 1) {
			continue
		}
		var routes []string
		for j := range p.Routes {
			r := &p.Routes[j]
			routes = append(routes, r.Name)
			if r.Name == route || route == "" && len(p.Routes) == 1 {
				return p, r, nil
			}
		}
		return nil, nil, noSuch("route", route, "pipeline "+p.Name, routes)
	}
	return nil, nil, noSuch("pipeline", pipeline, "the config", names)
}

func noSuch(kind, name, of string, names []string) error {
	if name == "" {
		return fmt.Errorf("%s has %d %ss: name one, %s", of, len(names), kind, choice(names))
	}
	message := fmt.Sprintf("%s has no %s %q; it has %s", of, kind, name, strings.Join(names, ", "))
	if near := Nearest(name, names); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("%s", message)
}

// check returns an error if the test does not fit c.
func (t *Test) check(c *Config) error {
	if _, _, err := c.Route(t.Pipeline, t.Route); err != nil {
		return fmt.Errorf("test %q: %w", t.Name, err)
	}
	if len(t.Input) == 0 {
		return fmt.Errorf("test %q has no input", t.Name)
	}
	if max(len(t.Input), len(t.Expect), len(t.Dead)) > maxTestRecords {
		return fmt.Errorf("test %q has more than %d records", t.Name, maxTestRecords)
	}
	return nil
}

// maxTestRecords is the maximum number of records of a test.
const maxTestRecords = 10_000

// plan returns the test as YAML, with the records as they are in the file.
func (t *Test) plan() *yaml.Node {
	m := mapping("name", t.Name)
	for _, named := range []struct{ key, value string }{{"pipeline", t.Pipeline},
		{"route", t.Route}} {
		if named.value != "" {
			add(m, named.key, text(named.value, false))
		}
	}
	list := func(key string, values []Value) {
		seq := &yaml.Node{Kind: yaml.SequenceNode}
		for _, v := range values {
			n := v.node
			if n == nil {
				n = new(yaml.Node)
				if err := n.Encode(v.v); err != nil {
					continue
				}
			}
			seq.Content = append(seq.Content, n)
		}
		add(m, key, seq)
	}
	list("input", t.Input)
	list("expect", t.Expect)
	dead := make([]Value, len(t.Dead))
	for i, reason := range t.Dead {
		dead[i] = ValueOf(reason)
	}
	list("dead", dead)
	return m
}
