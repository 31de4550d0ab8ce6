package rename_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/processor/rename"
	"github.com/penstock-io/penstock/stream"
)

func TestRename(t *testing.T) {
	in := []string{`{"a":1,"b":2,"c":3}`, `{"c":4}`, `{}`, `plain`}
	for _, c := range []struct {
		pairs []rename.Pair
		want  []string
	}{
		{[]rename.Pair{{Old: "b", New: "x"}},
			[]string{`{"a":1,"x":2,"c":3}`, `{"c":4}`, `{}`, `{"message":"plain"}`}},
		{[]rename.Pair{{Old: "a", New: "c"}, {Old: "c", New: "a"}},
			[]string{`{"c":1,"b":2,"a":3}`, `{"a":4}`, `{}`,
				`{"message":"plain"}`}},
		{[]rename.Pair{{Old: "a", New: "c"}},
			[]string{`{"c":1,"b":2}`, `{"c":4}`, `{}`, `{"message":"plain"}`}},
		{[]rename.Pair{{Old: "message", New: "text"}},
			[]string{`{"a":1,"b":2,"c":3}`, `{"c":4}`, `{}`, `{"text":"plain"}`}},
	} {
		b := connectortest.Records(t, in...)
		if err := rename.New(c.pairs).Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := connectortest.Outcomes(b); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.pairs, got, c.want)
		}
	}
}

func TestRenameShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{{Name: "a"}, {Name: "b"}}}
	for _, c := range []struct {
		pairs rename.Options
		open  bool
		want  string
	}{
		{rename.Options{{Old: "a", New: "x"}}, false, "[x b]"},
		{rename.Options{{Old: "a", New: "b"}, {Old: "b", New: "a"}}, false, "[b a]"},
		{rename.Options{{Old: "a", New: "b"}}, false,
			"a: a field b already exists; drop or rename it first"},
		{rename.Options{{Old: "a", New: "b"}}, true, "[b]"},
		{rename.Options{{Old: "c", New: "d"}}, false, `c: there is no field "c"`},
		{rename.Options{{Old: "c", New: "d"}}, true, "[a b]"},
		{rename.Options{}, false, "has no field; write rename: {OLD: NEW}"},
		{rename.Options{{Old: "a", New: ""}}, false, "a: is empty; write the field's new name"},
		{rename.Options{{Old: "a", New: "a"}}, false, "a: the new name is the old one"},
		{rename.Options{{Old: "a", New: "x"}, {Old: "b", New: "x"}}, false,
			"b: two fields would be named x"},
	} {
		schema := in.Clone()
		schema.Open = c.open
		err := c.pairs.Validate()
		if err == nil {
			schema, err = c.pairs.Shape(schema)
		}
		got := fmt.Sprint(schema.Names())
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.pairs, got, c.want)
		}
	}
}

// shaped returns the fields after a rename, or the error.
func shaped(o rename.Options, in stream.Schema) string {
	err := o.Validate()
	if err == nil {
		in, err = o.Shape(in.Clone())
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(in.Fields)
}
