package set_test

import (
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/processor/set"
	"github.com/penstock-io/penstock/stream"
)

func TestSetNested(t *testing.T) {
	both := `{"user":{"email":"in","id":7},"user.email":"flat"}`
	mask, flat := []string{"user.email", `"*"`}, []string{`"user.email"`, "1"}
	several := []string{"a.b", `"x\n"`, "a.c", "true", "a.d", "nil"}
	for _, c := range []struct {
		in   string
		set  []string
		want string
	}{
		{both, mask, `{"user":{"email":"in","id":7},"user.email":"*"}`},
		{`{"user":{"email":"in","email":"twice"}}`, mask, `{"user":{"email":"*"}}`},
		{`{"user":null}`, mask, `{"user":{"email":"*"}}`},
		{`{}`, mask, `{"user":{"email":"*"}}`},
		{`{"user":"text"}`, mask, `dead: set user.email: user is not an object, so ` +
			`member email cannot be set`},
		{`{"user":[1]}`, mask, `dead: set user.email: user is not an object, so ` +
			`member email cannot be set`},
		{`plain`, mask, `{"message":"plain","user":{"email":"*"}}`},
		{both, flat, `{"user":{"email":"in","id":7},"user.email":1}`},
		{`{"user":{"email":"in"}}`, flat, `{"user":{"email":"in"},"user.email":1}`},
		{`{"user":"text"}`, flat, `{"user":"text","user.email":1}`},
		{`{}`, several, `{"a":{"b":"x\n","c":true,"d":null}}`},
		{`{"a":{"z":1}}`, several, `{"a":{"z":1,"b":"x\n","c":true,"d":null}}`},
		{both, []string{"e", `$env["user.email"]`}, both[:len(both)-1] + `,"e":"flat"}`},
		{both, []string{"e", `user.email`}, both[:len(both)-1] + `,"e":"in"}`},
	} {
		p, err := set.New(*options(c.set...), connectortest.NewHost(t))
		if err != nil {
			t.Fatal(err)
		}
		b := connectortest.Records(t, c.in)
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := connectortest.Outcomes(b); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s %q:\n got %q\nwant %q", c.in, c.set, got, c.want)
		}
	}
}

// TestSetNestedPass checks that a record in which a path cannot be set is passed on unchanged.
func TestSetNestedPass(t *testing.T) {
	o := options("x", "1", "user.email", `"*"`)
	if _, err := o.Shape(stream.Schema{Open: true, OnError: "pass"}); err != nil {
		t.Fatal(err)
	}
	p, err := set.New(*o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Records(t, `{"user":7}`, `{"y":1}`)
	if err := p.Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"user":7}`, `{"y":1,"x":1,"user":{"email":"*"}}`}
	if got := connectortest.Outcomes(b); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSetNestedShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{
		{Name: "path", Type: stream.TextType}, {Name: "a.b", Type: stream.TextType},
	}}
	out, err := options("x.y", "1", "x.z", "2", "a.b", "3").Shape(in)
	want := []stream.SchemaField{
		{Name: "path", Type: "text"}, {Name: "a.b", Type: "integer"}, {Name: "x", Type: "json"},
	}
	if err != nil || !slices.Equal(out.Fields, want) {
		t.Errorf("shape %+v, %v", out, err)
	}
	_, err = options("path.x", "1").Shape(in)
	if err == nil || err.Error() != "path.x: path is a text, which has no member x" {
		t.Errorf("a text in the way: %v", err)
	}
}
