package parse_test

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/stream/streamtest"
)

func TestPatterns(t *testing.T) {
	types := map[string]string{"n": "integer", "f": "number", "ok": "bool"}
	for _, c := range []struct {
		format, pattern string
		types           map[string]string
		line, want      string
	}{
		{"dissect", `%{a} [%{b}] %{c}`, nil, `x [y z] rest of it`,
			`{"a":"x","b":"y z","c":"rest of it"}`},
		{"dissect", `<%{a}>, %{}: %{b}.`, nil, `<x>, no: y.`, `{"a":"x","b":"y"}`},
		{"dissect", `%{a->} %{b}`, nil, `x     y`, `{"a":"x","b":"y"}`},
		{"dissect", `%{a} %{b}`, nil, `x  y`, `{"a":"x","b":" y"}`},
		{"dissect", `%{a} %{b}`, nil, ` `, `{"a":"","b":""}`},
		{"dissect", `%{n}/%{f}/%{ok}`, types, `-12/1.50e3/true`, `{"n":-12,"f":1.50e3,"ok":true}`},
		{"dissect", `%{n}/%{f}/%{ok}`, types, `-//-`, `{"n":null,"f":null,"ok":null}`},
		{"dissect", `%{n}/%{f}/%{ok}`, types, `1.5/1/true`,
			"dead: parse dissect: byte 1: n is not a whole number of at most 18 digits"},
		{"dissect", `%{n}/%{f}/%{ok}`, types, `1/01/true`,
			"dead: parse dissect: byte 3: f is not a number"},
		{"dissect", `%{n}/%{f}/%{ok}`, types, `1/1/True`,
			"dead: parse dissect: byte 5: ok is neither true nor false"},
		{"dissect", `<%{a}> %{b}`, nil, `x> y`,
			"dead: parse dissect: byte 1: the text does not begin like the pattern"},
		{"dissect", `%{a}> %{b}`, nil, `ü y`,
			"dead: parse dissect: byte 1: at this point the pattern wants > "},
		{"dissect", `%{a}>`, nil, `x>y`,
			"dead: parse dissect: byte 3: text after the end of the pattern"},
		{"dissect", `%{a} %{b}`, nil, "x y\r", `{"a":"x","b":"y"}`},

		{"regex", `^(?P<a>\w+)=(?P<b>\d+)?;`, nil, `x=12; more`, `{"a":"x","b":"12"}`},
		{"regex", `^(?P<a>\w+)=(?P<b>\d+)?;`, nil, `x=; more`, `{"a":"x","b":null}`},
		{"regex", `(?<n>\d+)ms`, map[string]string{"n": "integer"}, `took 17ms`, `{"n":17}`},
		{"regex", `(?<n>\d+)ms`, nil, `took 17s`,
			"dead: parse regex: the text does not match the pattern"},
		{"regex", `(?<n>[a-z]+)ms`, map[string]string{"n": "integer"}, `took ams`,
			"dead: parse regex: byte 6: n is not a whole number of at most 18 digits"},
		{"regex", `(?i)MS(?<n>\d+)`, nil, `ms17`, `{"n":"17"}`},
		{"regex", `(a(?<n>x)b)?c`, nil, `zzc`, `{"n":null}`},
	} {
		o := parse.Options{Format: c.format, Pattern: c.pattern, Types: c.types}
		if got := parsed(t, o, c.line); got != c.want {
			t.Errorf("%s %s: %s\n got %s\nwant %s", c.format, c.pattern, c.line, got, c.want)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	for _, c := range []struct {
		o    parse.Options
		want string
	}{
		{parse.Options{Format: "dissect"},
			"format: dissect needs a pattern with the names of the fields"},
		{parse.Options{Format: "combined", Pattern: "x"},
			"pattern: is for dissect and regex; combined has fixed fields"},
		{parse.Options{Format: "json", Types: map[string]string{"a": "bool"}},
			"types: is for dissect and regex; json has fixed types"},
		{parse.Options{Format: "dissect", Pattern: "x"},
			"pattern: has no %{field}, so there would be no field"},
		{parse.Options{Format: "dissect", Pattern: "%{}x"},
			"pattern: has no name in its %{}, so there would be no field"},
		{parse.Options{Format: "dissect", Pattern: "%{a"}, "pattern: %{ is not closed"},
		{parse.Options{Format: "dissect", Pattern: "%{a %{b}"}, "pattern: %{ is not closed"},
		{parse.Options{Format: "dissect", Pattern: "%{a}%{b}"},
			"pattern: %{a} and the next field need text between them"},
		{parse.Options{Format: "dissect", Pattern: "%{a->}"},
			"pattern: %{a->} needs the repeated text after it"},
		{parse.Options{Format: "dissect", Pattern: "%{a} %{a}"}, `pattern: names two fields "a"`},
		{parse.Options{Format: "dissect", Pattern: "%{a:int}"},
			"pattern: %{a:int}: there are %{name}, %{} and %{name->}, and `types` for numbers"},
		{parse.Options{Format: "dissect", Pattern: "%{a}", Types: map[string]string{"b": "bool"}},
			"types.b: the pattern has no field with this name"},
		{parse.Options{Format: "regex", Pattern: "("},
			"pattern: is not a regular expression of Go: error parsing regexp: " +
				"missing closing ): `(`"},
		{parse.Options{Format: "regex", Pattern: "(a)"},
			"pattern: has no named group, so there would be no field; " +
				"write (?P<name>...)"},
		{parse.Options{Format: "xml"}, `format: there is no "xml"`},
	} {
		if err := c.o.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
	}
}

func TestDissectAllocatesNothing(t *testing.T) {
	b := streamtest.Text(strings.Repeat("2026-01-05 06:00:00 INFO worker-1: took 17 ms\n", 1000))
	o := parse.Options{Format: "dissect", Pattern: "%{date} %{time} %{level} %{who}: took %{ms} ms",
		Types: map[string]string{"ms": "integer"}}
	p := processor(t, o)
	allocatesNothing(t, p, b)
	if b.Kept() != 1000 || b.Records[0].NumFields != 5 {
		t.Errorf("%d kept, %d fields", b.Kept(), b.Records[0].NumFields)
	}
}
