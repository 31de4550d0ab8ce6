package rename_test

import (
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/processor/rename"
	"github.com/penstock-io/penstock/stream"
)

func TestRenameNested(t *testing.T) {
	both := `{"user":{"email":"in","id":7},"user.email":"flat","x":1}`
	for _, c := range []struct {
		in    string
		pairs []rename.Pair
		want  string
	}{
		{both, []rename.Pair{{Old: "user.email", New: "user.mail"}},
			`{"user":{"mail":"in","id":7},"user.mail":"flat","x":1}`},
		{both, []rename.Pair{{Old: "user.email", New: "mail"}},
			`{"user":{"id":7},"mail":"flat","x":1}`},
		{both, []rename.Pair{{Old: `"user.email"`, New: "mail"}},
			`{"user":{"email":"in","id":7},"mail":"flat","x":1}`},
		{both, []rename.Pair{{Old: "user.email", New: `"u.e"`}},
			`{"user":{"id":7},"u.e":"flat","x":1}`},
		{both, []rename.Pair{{Old: "x", New: "user.x"}},
			`{"user":{"email":"in","id":7,"x":1},"user.email":"flat"}`},
		{both, []rename.Pair{{Old: "x", New: "user.email"}},
			`{"user":{"email":"in","id":7},"user.email":1}`},
		{`{"user":{"a":"x\n","b":{"c":[1]}}}`,
			[]rename.Pair{{Old: "user.a", New: "a"}, {Old: "user.b.c", New: "c"}},
			`{"user":{"b":{}},"a":"x\n","c":[1]}`},
		{`{"u":{"a":1,"b":2}}`, []rename.Pair{{Old: "u.a", New: "u.b"}, {Old: "u.b", New: "u.a"}},
			`{"u":{"b":1,"a":2}}`},
		{`{"u":{"a":1,"b":2}}`, []rename.Pair{{Old: "u.a", New: "u.b"}}, `{"u":{"b":1}}`},
		{`{"u":{"a":1},"v":2}`, []rename.Pair{{Old: "u.a", New: "v"}, {Old: "v", New: "w.x"}},
			`{"u":{},"w":{"x":2},"v":1}`},
		{`{"u":{"a":1},"v":{"b":2}}`, []rename.Pair{{Old: "u.a", New: "v.a"}},
			`{"u":{},"v":{"b":2,"a":1}}`},
		{`{"a":1}`, []rename.Pair{{Old: "a", New: "b.c.d"}}, `{"b":{"c":{"d":1}}}`},
		{`{"a":1}`, []rename.Pair{{Old: "a", New: `"b.c"`}}, `{"b.c":1}`},
		{`{"a":1,"b":null}`, []rename.Pair{{Old: "a", New: "b.c"}}, `{"b":{"c":1}}`},
		{`{"a":1,"b":"text"}`, []rename.Pair{{Old: "a", New: "b.c"}},
			`dead: rename a: b is not an object, so member c cannot be set`},
		{`{"u":{"x":1}}`, []rename.Pair{{Old: "u.a", New: "b"}}, `{"u":{"x":1}}`},
		{`{"u":"text"}`, []rename.Pair{{Old: "u.a", New: "b"}}, `{"u":"text"}`},
		{`plain`, []rename.Pair{{Old: "message", New: "log.text"}}, `{"log":{"text":"plain"}}`},
		{`plain`, []rename.Pair{{Old: "u.a", New: "b"}}, `{"message":"plain"}`},
	} {
		b := connectortest.Records(t, c.in)
		if err := rename.New(c.pairs).Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := connectortest.Outcomes(b); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s %v:\n got %q\nwant %q", c.in, c.pairs, got, c.want)
		}
	}
}

func TestRenameNestedShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{
		{Name: "user", Type: stream.JSONType}, {Name: "path", Type: stream.TextType},
		{Name: "n", Type: stream.IntegerType},
	}}
	for _, c := range []struct {
		old, to, want string
	}{
		{"user.email", "mail", "[{user json} {path text} {n integer} {mail }]"},
		{"user.email", "user.mail", "[{user json} {path text} {n integer}]"},
		{"path", "user.path", "[{user json} {n integer}]"},
		{"path", "url.path", "[{user json} {n integer} {url json}]"},
		{"path", "n.x", "path: n is a number, which has no member x"},
		{"path.x", "x", "path.x: path is a text, which has no member x"},
		{"nosuch.x", "x", `nosuch.x: there is no field "nosuch.x"`},
		{"path", `"`, `path: " begins with a quote but is not a quoted name; ` +
			`write "\"a.b\"" for the field a.b`},
	} {
		if got := shaped(rename.Options{{Old: c.old, New: c.to}}, in); got != c.want {
			t.Errorf("%s: %s: %s, want %s", c.old, c.to, got, c.want)
		}
	}
}
