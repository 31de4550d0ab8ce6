package parse_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// sampleJSON returns varied log lines.
func sampleJSON(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `{"time":"2026-01-05T06:00:%02d.%06dZ","level":"info","service":"shop","trace":{"id":"%032x","sampled":true},`+
			`"request":{"method":"GET","path":"/items/%d?sort=price","headers":{"user-agent":"Mozilla/5.0 (X11; Linux x86_64)",`+
			`"accept-language":["de","en;q=0.8"]},"client":{"address":"10.1.2.%d","user":null}},"response":{"status":%d,"bytes":%d,`+
			`"duration_ms":%d.%03d},"cart":{"items":[{"sku":"P-%d","quantity":3,"note":"say `+
			`\"hello\""}],"coupons":[]}}`+"\n",
			i%60, i, i*i, i, i%256, 200+i%5*100, i*37, i%900, i%1000, i)
	}
	return s.String()
}

func TestJSON(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"numbers and order", `{"z":0.10,"a":9223372036854775808,"m":1e400,"b":-0}`,
			`{"z":0.10,"a":9223372036854775808,"m":1e400,"b":-0}`},
		{"nested as written", `{"a": {"y":1.0, "x":[1,  2]} , "b":[ ]}`,
			`{"a":{"y":1.0, "x":[1,  2]},"b":[ ]}`},
		{"kinds", `{"a":null,"b":true,"c":false,"d":"","":"x"}`,
			`{"a":null,"b":true,"c":false,"d":"","":"x"}`},
		{"escapes", `{"a":"\u00e9\/\n\ud83d\ude00\"\\"}`, `{"a":"é/\n😀\"\\"}`},
		{"an escaped key", `{"\u0061b":1,"ab":2}`, `{"ab":2}`},
		{"half a pair stays as written", `{"a":"x\ud83d"}`, `{"a":"x\ud83d"}`},
		{"NUL", `{"a":"\u0000"}`, `{"a":"\u0000"}`},
		{"a key twice: first place, last value", `{"a":1,"b":2,"a":"3"}`, `{"a":"3","b":2}`},
		{"a nested key twice stays", `{"a":{"b":1,"b":2}}`, `{"a":{"b":1,"b":2}}`},
		{"empty", `{}`, `{}`},
		{"CRLF", "{\"a\":1}\r", `{"a":1}`},
		{"mark", "\ufeff{\"a\":1}", `{"a":1}`},
		{"blank", ``, "dead: parse json: byte 1: the input is empty, want a JSON object"},
		{"array", `[{"a":1}]`, "dead: parse json: byte 1: want a JSON object, {...}, " +
			"but this is another value"},
		{"two", `{"a":1} {"a":2}`, "dead: parse json: byte 9: text after the object"},
		{"octal", `{"a":01}`, "dead: parse json: byte 6: a number with leading zeros"},
		{"raw tab", "{\"a\":\"\t\"}", "dead: parse json: byte 7: " +
			"a control character in a string, which must be escaped"},
		{"Latin-1", "{\"a\":\"\xfc\"}", "dead: parse json: byte 7: a byte that is not UTF-8"},
		{"cut off", `{"a":"b`, "dead: parse json: byte 6: a string is not closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parsed(t, parse.Options{Format: "json"}, c.line); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
			}
		})
	}
}

func TestJSONManyRecords(t *testing.T) {
	in := "{\"a\":1,\"b\":2}\n{\"b\":3,\"c\":4,\"a\":5}\n{\"a\":6,\"b\":7,\"b\":8}\n{}\n{\"c\":9}\n"
	want := "{\"a\":1,\"b\":2}\n{\"b\":3,\"c\":4,\"a\":5}\n{\"a\":6,\"b\":8}\n{}\n{\"c\":9}\n"
	p := processor(t, parse.Options{Format: "json"})
	for range 3 { // state kept between batches must not matter
		b := streamtest.Text(in)
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := string(ndjson.Append(nil, b)); got != want || len(b.Names) != 3 {
			t.Errorf("got %s, names %q", got, b.Names)
		}
	}
	b := streamtest.Text("{\"z\":1}\n")
	if err := p.Process(t.Context(), b); err != nil || len(b.Names) != 1 {
		t.Errorf("names of an earlier batch in a later one: %q, %v", b.Names, err)
	}
}

// TestJSONManyNames checks records with more and more different keys. They must need only bounded
// memory and cause no errors.
func TestJSONManyNames(t *testing.T) {
	p := processor(t, parse.Options{Format: "json"})
	for batch := range 3 {
		var in strings.Builder
		for i := range 12_000 {
			fmt.Fprintf(&in, "{\"k%d-%d\":%d}\n", batch, i, i)
		}
		b := streamtest.Text(in.String())
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := string(ndjson.Append(nil, b)); got != in.String() {
			t.Fatalf("batch %d came out changed", batch)
		}
	}
}

func TestJSONOfAField(t *testing.T) {
	p := processor(t, parse.Options{Format: "json"})
	inner := processor(t, parse.Options{Format: "json", Field: "payload"})
	for in, want := range map[string]string{
		`{"a":1,"payload":"{\"x\":1.50,\"a\":2}","b":3}`: `{"a":2,"x":1.50,"b":3}`,
		`{"payload":{"deep":{"y":[1]}},"b":3}`:           `{"deep":{"y":[1]},"b":3}`,
		`{"payload":"{\"payload\":\"\\u00e9\\n\"}"}`:     `{"payload":"é\n"}`,
		`{"b":3}`:       "dead: parse json: the record has no field payload",
		`{"payload":3}`: "dead: parse json: the field payload is not text",
		`{"payload":"{\"x\":01}"}`: "dead: parse json: byte 6: " +
			"a number with leading zeros",
		`{"payload":"{}"}`:                  `{}`,
		`{"payload":"{\"x\":\"\\ud800\"}"}`: `{"x":"\ud800"}`,
	} {
		b := streamtest.Text(in + "\n")
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := inner.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		got := string(ndjson.AppendRecord(nil, b, 0))
		if b.Records[0].State == stream.Dead {
			got = "dead: " + b.Reason(0).Error()
		}
		if got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func TestJSONAllocatesNothing(t *testing.T) {
	b := streamtest.Text(sampleJSON(1000))
	p := processor(t, parse.Options{Format: "json"})
	allocatesNothing(t, p, b)
}
