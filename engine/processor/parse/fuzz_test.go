package parse_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// FuzzQuick checks that the fields, the error and the JSON of a line do not depend on its position
// in the data of the batch. This position determines whether the line is parsed eight bytes at a
// time or byte by byte.
func FuzzQuick(f *testing.F) {
	for _, s := range []string{
		sample(1),
		`h - bob [17/May/2015:10:05:03 +0000] "GET /a b HTTP/1.1" 200 12345678 "-" "x"`,
		`"h - - [17/May/2015:10:05:03 +0000] "-" 408 - "-" "-"`,
		`1.2.3.4 - - [17/May/2015:10:05:03 +0000] "POST  HTTP/1.1" 007 0012 "\"" "` +
			"\x7f\xc3\xbc" + `"`,
		`h i u [17/May/2015:10:05:03 +0000] "GET / HTTP/2.0" 200 1`,
		`h i u [17/May/2015:10:05:03 +0000] "GET HTTP/2.0" 20 1234567`,
		`h i u [17/May/2015:10:05:03 +0000] "get / HTTP/ .0" 204 0 "" ""`,
		`h i u [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 7 "r" "a" "b"`,
		`h i u [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 7 "r" "a`,
		`h i u [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 7 "r" "`,
		`h i u [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" ` + "\xff\xfe\xba 7 " + `"r" "a"`,
		`h i u [17/May/2015:10:05:03 +0000] "G` + "\xc1\xdb" + ` / HTTP/1.1" 204 ` + "1\xb0 " +
			`"r" "a"`,
	} {
		f.Add(strings.TrimSuffix(s, "\n"))
	}
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.ReplaceAll(line, "\n", " ")
		for _, format := range []string{"combined", "common"} {
			p := processor(t, parse.Options{Format: format})
			alone, among := streamtest.Text(line+"\n"),
				streamtest.Text(line+"\n"+line+"\n"+strings.Repeat(" ", 64)+"\n")
			for _, b := range []*stream.Batch{alone, among} {
				if err := p.Process(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			if alone.Records[0].State == stream.Dead {
				if want, got := alone.Reason(0), among.Reason(1); got == nil ||
					got.Error() != want.Error() {
					t.Errorf("%s of %q: %v, want %v", format, line, got, want)
				}
				continue
			}
			if among.Records[1].State != stream.Kept {
				t.Fatalf("%s of %q: %v", format, line, among.Reason(1))
			}
			want := append(ndjson.AppendRecord(nil, alone, 0), '\n')
			if got := ndjson.Append(nil, among); string(got) != string(want)+string(want) {
				t.Errorf("%s of %q is\n%s and not twice\n%s", format, line, got, want)
			}
		}
	})
}

// FuzzParse checks that each line leads either to an error, or to a record. The record must have
// the fields of its format, and it must be possible to encode it as JSON.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`1.2.3.4 - - [t] "GET / HTTP/1.1" 200 1 "-" "a"`,
		`h - a b [17/May/2015:10:05:03 +0000] "\x16\"" - - "" "`,
		`{"a":1,"a":"\ud800","b":{"c":[]}}`,
		"x y: 01 z", "x y: -1.5e3 z", "", "\xff \" [",
	} {
		f.Add([]byte(s))
	}
	types := map[string]string{"b": "number", "c": "bool"}
	options := []parse.Options{
		{Format: "combined"}, {Format: "common"}, {Format: "json"},
		{Format: "dissect", Pattern: "%{a->} %{}: %{b} %{c}", Types: types}, {Format: "regex",
			Pattern: `(?P<a>\w+) (?P<b>[-0-9.e]*)(?P<c>t\w+)?`, Types: types},
	}
	fields := []uint32{11, 9, 0, 3, 3}
	f.Fuzz(func(t *testing.T, line []byte) {
		for i, o := range options {
			b := streamtest.Text(string(line) + "\n")
			if err := processor(t, o).Process(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for k := range b.Records {
				if b.Records[k].State != stream.Kept {
					continue
				}
				if n := b.Records[k].NumFields; fields[i] != 0 && n != fields[i] {
					t.Errorf("%s of %q: %d fields", o.Format, b.Text(k), n)
				}
				if out := ndjson.AppendRecord(nil, b, k); !json.Valid(out) {
					t.Errorf("%s of %q: %s is no JSON", o.Format, b.Text(k), out)
				}
			}
		}
	})
}
