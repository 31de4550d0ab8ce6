package drop_test

import (
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/processor/drop"
	"github.com/penstock-io/penstock/stream"
)

func TestDrop(t *testing.T) {
	in := []string{`{"a":1,"b":2,"c":3}`, `{"c":4}`, `{}`, `plain`}
	for _, c := range []struct {
		names, want []string
	}{
		{[]string{"b"}, []string{`{"a":1,"c":3}`, `{"c":4}`, `{}`, `{"message":"plain"}`}},
		{[]string{"c", "a"}, []string{`{"b":2}`, `{}`, `{}`, `{"message":"plain"}`}},
		{[]string{"message"}, []string{`{"a":1,"b":2,"c":3}`, `{"c":4}`, `{}`, `{}`}},
		{[]string{"nothing"}, []string{`{"a":1,"b":2,"c":3}`, `{"c":4}`, `{}`,
			`{"message":"plain"}`}},
	} {
		b := connectortest.Records(t, in...)
		if err := drop.New(c.names).Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := connectortest.Outcomes(b); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.names, got, c.want)
		}
	}
}

func TestDropShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{{Name: "a"}, {Name: "b"}}}
	out, err := (&drop.Options{"a"}).Shape(in.Clone())
	if err != nil || len(out.Fields) != 1 || out.Fields[0].Name != "b" {
		t.Errorf("shape %+v, %v", out, err)
	}
	if _, err = (&drop.Options{"a", "a"}).Shape(in.Clone()); err == nil ||
		err.Error() != "[1]: a is named twice" {
		t.Errorf("twice: %v", err)
	}
	if _, err = (&drop.Options{"c"}).Shape(in.Clone()); err == nil ||
		err.Error() != `[0]: there is no field "c"` {
		t.Errorf("unknown: %v", err)
	}
}
