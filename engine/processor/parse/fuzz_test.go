package parse_test

import (
	"encoding/json"
	"testing"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/parse"
)

// FuzzParse: whatever a line holds, it becomes a record that is JSON, with the fields of its format, or an error.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`1.2.3.4 - - [t] "GET / HTTP/1.1" 200 1 "-" "a"`, `h - a b [17/May/2015:10:05:03 +0000] "\x16\"" - - "" "`,
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
			b := lines(string(line) + "\n")
			if err := processor(t, o).Process(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for k := range b.Records {
				if b.Records[k].State != penstock.Kept {
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
