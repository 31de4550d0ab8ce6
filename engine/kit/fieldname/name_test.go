package fieldname_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, flat string
		path       []string
		wrong      string
	}{
		{"user", "user", nil, ""},
		{"user.email", "user.email", []string{"user", "email"}, ""},
		{"a.b.c", "a.b.c", []string{"a", "b", "c"}, ""},
		{`"user.email"`, "user.email", nil, ""},
		{`"a\"b.c"`, `a"b.c`, nil, ""},
		{"a..b", "a..b", nil, ""},
		{".a", ".a", nil, ""},
		{"a.", "a.", nil, ""},
		{"user-agent", "user-agent", nil, ""},
		{"", "", nil, "a field name cannot be empty"},
		{`""`, "", nil, "begins with a quote"},
		{`"a.b`, "", nil, "begins with a quote"},
		{strings.Repeat("a.", 100) + "a", "", nil, "more than 100 parts"},
	} {
		n, err := fieldname.Parse(c.text)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%q: %v, want ... %s", c.text, err, c.wrong)
			}
			continue
		}
		if err != nil || n.Flat != c.flat || !slices.Equal(n.Path, c.path) {
			t.Errorf("%q: %+v, %v", c.text, n, err)
		}
	}
}

func TestObject(t *testing.T) {
	remove := func(path ...string) func(*fieldname.Object) error {
		return func(o *fieldname.Object) error { _, err := o.Remove(path); return err }
	}
	set := func(value string, path ...string) func(*fieldname.Object) error {
		return func(o *fieldname.Object) error { return o.Set(path, []byte(value)) }
	}
	rename := func(key string, path ...string) func(*fieldname.Object) error {
		return func(o *fieldname.Object) error { _, err := o.Rename(path, key); return err }
	}
	for _, c := range []struct {
		in    string
		steps []func(*fieldname.Object) error
		want  string
	}{
		{`{"a":1,"b":2}`, []func(*fieldname.Object) error{remove("a")}, `{"b":2}`},
		{`{"a":{"b":1,"c":[ 1, 2 ]},"a":{"b":2}}`,
			[]func(*fieldname.Object) error{remove("a", "b")}, `{"a":{"c":[ 1, 2 ]},"a":{}}`},
		{`{"\u0061":{"\u0062":1}, "c":null}`, []func(*fieldname.Object) error{remove("a", "b")},
			`{"\u0061":{},"c":null}`},
		{`{"a":[{"b":1}]}`, []func(*fieldname.Object) error{remove("a", "b")}, `{"a":[{"b":1}]}`},
		{`{"a":1,"b":2,"a":3}`, []func(*fieldname.Object) error{set(`"x"`, "a")},
			`{"a":"x","b":2}`},
		{`{}`, []func(*fieldname.Object) error{set("1", "a", "b", "c")}, `{"a":{"b":{"c":1}}}`},
		{`{"a":null}`, []func(*fieldname.Object) error{set("1", "a", "b")}, `{"a":{"b":1}}`},
		{`{"a":{"b":1},"a":{"c":2}}`, []func(*fieldname.Object) error{set("3", "a", "b")},
			`{"a":{"c":2,"b":3}}`},
		{`{"a":"x"}`, []func(*fieldname.Object) error{set("1", "a", "b")}, "a is not an object, " +
			"so member b cannot be set"},
		{
			`{"x":{"a":1,"b":"two"}}`,
			[]func(*fieldname.Object) error{rename("b", "x", "a"), rename("a", "x", "b")},
			`{"x":{"b":1,"a":"two"}}`,
		},
		{`{"x":{"a":1,"b":2}}`, []func(*fieldname.Object) error{rename("b", "x", "a")},
			`{"x":{"b":1}}`},
		{`{"a":1`, nil, "the object cannot be read: a comma or } is missing"},
	} {
		o, err := fieldname.Open([]byte(c.in))
		for _, step := range c.steps {
			if err == nil {
				err = step(o)
			}
		}
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			o.Settle()
			got = string(o.Append(nil))
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestFind(t *testing.T) {
	known := stream.Schema{Fields: []stream.SchemaField{
		{Name: "user", Type: stream.JSONType}, {Name: "a.b", Type: stream.TextType},
		{Name: "text", Type: stream.TextType},
	}}
	for text, want := range map[string]struct {
		at     int
		nested bool
		wrong  bool
	}{
		"user": {0, false, false}, "user.email": {0, true, false}, "a.b": {1, false, false},
		"text.x":   {2, true, true},
		"nosuch.x": {-1, true, false}, "nosuch": {-1, false, false},
		`"user.email"`: {-1, false, false},
	} {
		at, nested, err := fieldname.Lenient(text).Find(known)
		if at != want.at || nested != want.nested || (err != nil) != want.wrong {
			t.Errorf("%s: %d, %v, %v", text, at, nested, err)
		}
	}
}
