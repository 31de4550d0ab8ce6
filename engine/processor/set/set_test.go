package set_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/processor/set"
	"github.com/penstock-io/penstock/stream"
)

func options(pairs ...string) *set.Options {
	var o set.Options
	for i := 0; i < len(pairs); i += 2 {
		o = append(o, set.Assignment{Field: pairs[i], Value: expr.Text(pairs[i+1])})
	}
	return &o
}

func TestSet(t *testing.T) {
	in := []string{`{"a":1.50,"b":"x"}`, `{"b":null,"a":2}`, `{}`, `plain`}
	for _, c := range []struct {
		set  []string
		want []string
	}{
		{[]string{"c", "a"}, []string{`{"a":1.50,"b":"x","c":1.50}`, `{"b":null,"a":2,"c":2}`,
			`{"c":null}`,
			`{"message":"plain","c":null}`}},
		{[]string{"a", "b", "b", "a"}, []string{`{"a":"x","b":1.50}`, `{"b":2,"a":null}`,
			`{"a":null,"b":null}`,
			`{"message":"plain","a":null,"b":null}`}},
		{[]string{"z", `"1"`, "y", "2"},
			[]string{`{"a":1.50,"b":"x","z":"1","y":2}`, `{"b":null,"a":2,"z":"1","y":2}`,
				`{"z":"1","y":2}`,
				`{"message":"plain","z":"1","y":2}`}},
		{[]string{"message", `"new"`}, []string{`{"a":1.50,"b":"x","message":"new"}`,
			`{"b":null,"a":2,"message":"new"}`,
			`{"message":"new"}`,
			`{"message":"new"}`}},
		{[]string{"n", "meta.offset"}, []string{`{"a":1.50,"b":"x","n":0}`,
			`{"b":null,"a":2,"n":19}`, `{"n":36}`,
			`{"message":"plain","n":39}`}},
		{[]string{"n", "a + 1"}, []string{`{"a":1.50,"b":"x","n":2.5}`, `{"b":null,"a":2,"n":3}`,
			`dead: set n: + stands between null and a number`,
			`dead: set n: + stands between null and a number`}},
	} {
		o := options(c.set...)
		p, err := set.New(*o, connectortest.NewHost(t))
		if err != nil {
			t.Fatal(err)
		}
		b := connectortest.Records(t, in...)
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := connectortest.Outcomes(b); !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.set, got, c.want)
		}
	}
}

func TestSetOnError(t *testing.T) {
	for onError, want := range map[string]string{"pass": `{"a":"x"}`, "drop": "dropped"} {
		o := options("b", "1", "c", "a * 2")
		if _, err := o.Shape(stream.Schema{Open: true, OnError: onError}); err != nil {
			t.Fatal(err)
		}
		p, err := set.New(*o, connectortest.NewHost(t))
		if err != nil {
			t.Fatal(err)
		}
		b := connectortest.Records(t, `{"a":"x"}`)
		if err := p.Process(t.Context(), b); err != nil || connectortest.Outcomes(b)[0] != want {
			t.Errorf("on_error %s: %q, %v", onError, connectortest.Outcomes(b), err)
		}
	}
}

func TestSetShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{{Name: "a", Type: stream.IntegerType},
		{Name: "b", Type: stream.TextType}}}
	out, err := options("c", "a + 1", "a", `b + "x"`, "d", "b == nil", "e", "a / 2", "f",
		"a").Shape(in)
	want := []stream.SchemaField{{Name: "a", Type: "text"}, {Name: "b", Type: "text"},
		{Name: "c", Type: "integer"},
		{Name: "d", Type: "bool"},
		{Name: "e", Type: "number"}, {Name: "f", Type: "integer"}}
	if err != nil || !slices.Equal(out.Fields, want) {
		t.Errorf("shape %+v, %v", out, err)
	}
	if _, err := options("c", "x", "d", "b + 1").Shape(in); err == nil ||
		len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Errorf("two wrong values: %v", err)
	}
	if err := options().Validate(); err == nil {
		t.Error("setting nothing is fine")
	}
}

func TestSetAllocatesNothing(t *testing.T) {
	p, err := set.New(*options("x", "a", "y", `"constant"`, "a", "b"), connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	var in []string
	for i := range 1000 {
		in = append(in, fmt.Sprintf(`{"a":%d,"b":"x"}`, i))
	}
	b := connectortest.Records(t, in...)
	records, fields := slices.Clone(b.Records), len(b.Fields)
	run := func() {
		copy(b.Records, records)
		b.Fields = b.Fields[:fields]
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("1,000 records allocate %v times", n)
	}
}
