package where_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/processor/where"
	"github.com/penstock-io/penstock/stream"
)

var lines = []string{`{"a":1}`, `{"a":5}`, `{"a":"x"}`, `{"b":1}`, `no JSON`}

func run(t *testing.T, o where.Options, in stream.Schema) []string {
	t.Helper()
	if _, err := o.Shape(in); err != nil {
		t.Fatal(err)
	}
	p, err := where.New(o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Records(t, lines...)
	if err := p.Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return connectortest.Outcomes(b)
}

func TestWhere(t *testing.T) {
	text := "dead: where a > 3: a > 3: a is text, which cannot be ordered relative to a number"
	null := "dead: where a > 3: a > 3: a is null or missing, which cannot be " +
		"ordered relative to a number"
	for _, c := range []struct {
		own, parsers string
		want         []string
	}{
		{"", "dead_letter", []string{"dropped", `{"a":5}`, text, null, null}},
		{"", "", []string{"dropped", `{"a":5}`, text, null, null}},
		{"", "pass", []string{"dropped", `{"a":5}`, `{"a":"x"}`, `{"b":1}`,
			`{"message":"no JSON"}`}},
		{"", "drop", []string{"dropped", `{"a":5}`, "dropped", "dropped", "dropped"}},
		{"pass", "drop", []string{"dropped", `{"a":5}`, `{"a":"x"}`, `{"b":1}`,
			`{"message":"no JSON"}`}},
	} {
		got := run(t, where.Options{Expr: "a > 3", OnError: c.own},
			stream.Schema{Open: true, OnError: c.parsers})
		if !slices.Equal(got, c.want) {
			t.Errorf("on_error %q after %q: %q", c.own, c.parsers, got)
		}
	}
	got := run(t, where.Options{Expr: `message == "no JSON"`}, stream.UnparsedSchema())
	if want := []string{"dropped", "dropped", "dropped", "dropped",
		`{"message":"no JSON"}`}; !slices.Equal(got, want) {
		t.Errorf("message of unparsed records: %q", got)
	}
}

func TestWhereWithoutAConfig(t *testing.T) {
	if _, err := where.New(where.Options{Expr: "a >"}, connectortest.NewHost(t)); err == nil ||
		err.Error() != "expr: ends too early" {
		t.Errorf("New = %v", err)
	}
	o := where.Options{}
	if err := o.UnmarshalText([]byte("a > 3")); err != nil {
		t.Fatal(err)
	}
	p, err := where.New(o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Records(t, lines...)
	if err := p.Process(t.Context(), b); err != nil || b.Kept() != 1 {
		t.Errorf("%q, %v", connectortest.Outcomes(b), err)
	}
}

func TestWhereAllocatesNothing(t *testing.T) {
	p, err := where.New(where.Options{Expr: `status >= 400 and host != "x"`},
		connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	var in []string
	for i := range 1000 {
		in = append(in, fmt.Sprintf(`{"host":"h%d","status":%d}`, i, 200+i%400))
	}
	b := connectortest.Records(t, in...)
	if n := testing.AllocsPerRun(20, func() {
		for i := range b.Records {
			b.Records[i].State = stream.Kept
		}
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("1,000 records allocate %v times", n)
	}
	if b.Kept() != 400 {
		t.Errorf("%d kept", b.Kept())
	}
}

// TestOtherwise checks the condition of a route with `otherwise: true` beside two other routes. One
// of the other routes' conditions ends in a comment. This comment must not hide the conditions that
// are appended after it.
func TestOtherwise(t *testing.T) {
	condition := func(text string) any { return &where.Options{Expr: expr.Text(text)} }
	rest := new(where.Options).Otherwise([][]any{
		{condition("a == 5 // five")}, {condition("a == 1 or a == 7"), condition("b == nil")},
	}).(*where.Options)
	got := run(t, *rest, stream.Schema{Open: true, OnError: "dead_letter"})
	want := []string{"dropped", "dropped", `{"a":"x"}`, `{"b":1}`, `{"message":"no JSON"}`}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", rest.Expr, got, want)
	}
}
