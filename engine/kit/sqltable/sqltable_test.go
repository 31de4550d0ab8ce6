package sqltable

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

var plain = &Dialect{Schemas: true, MaxName: 63, MaxColumns: 4, Reserved: []string{"ctid"},
	TypeOf: func(string) Type { return Other }}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a": `"a"`, `a"b`: `"a""b"`,
		`";DROP TABLE x;--`: `""";DROP TABLE x;--"`, "Groß": `"Groß"`} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", strings.Repeat("x", 64), "a\x00b", "\xff"} {
		if plain.Usable(bad) || plain.CheckName(bad) == nil {
			t.Errorf("name %q passes", bad)
		}
	}
	if plain.Usable("ctid") || !plain.Usable("CTID") || !plain.Usable(strings.Repeat("x", 63)) {
		t.Error("reserved or longest name")
	}
	for in, want := range map[string]string{
		"t": `"t"`, "s.t": `"s"."t"`, `"a.b".t`: `"a.b"."t"`, `s."a""b"`: `"s"."a""b"`,
		`"a.b"`: `"a.b"`,
	} {
		n, err := ParseName(in, true)
		if err != nil || n.String() != want {
			t.Errorf("ParseName(%q) = %s, %v; want %s", in, n, err, want)
		}
	}
	for _, bad := range []string{"a.b.c", `"a`, `"a"b`} {
		if n, err := ParseName(bad, true); err == nil {
			t.Errorf("ParseName(%q) = %s, want an error", bad, n)
		}
	}
	if n, err := ParseName("a.b", false); err != nil || n.Table != "a.b" {
		t.Errorf("without schemas: %v, %v", n, err)
	}
}

func TestColumnOption(t *testing.T) {
	for in, want := range map[string]Column{
		"a": {Name: "a"}, "a: integer": {Name: "a", Type: Integer},
		"a b: JSON":         {Name: "a b", Type: JSON},
		"a: numeric(10, 2)": {Name: "a", Type: Other, Decl: "numeric(10, 2)"},
		"a: text[]":         {Name: "a", Type: Other, Decl: "text[]"},
	} {
		var c ColumnOption
		err := c.UnmarshalText([]byte(in))
		got, err2 := c.Column()
		if err != nil || err2 != nil || got != want {
			t.Errorf("%q is %v, %v %v; want %v", in, got, err, err2, want)
		}
		if text, err := c.MarshalText(); err != nil || string(text) != in {
			t.Errorf("%q is written as %q, %v", in, text, err)
		}
	}
	for _, bad := range []string{"a: int); DROP TABLE x; --", "a: 'x'", "a: 1",
		"a: " + strings.Repeat("x", 61)} {
		var c ColumnOption
		if err := c.UnmarshalText([]byte(bad)); err != nil {
			continue
		}
		if got, err := c.Column(); err == nil {
			t.Errorf("%q is taken as %v", bad, got)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(o *Options)
		key  string // key of the error; "" means none
	}{
		{"default", func(*Options) {}, ""},
		{"no table", func(o *Options) { o.Table = "" }, "table"},
		{"the ledger", func(o *Options) { o.Table = "Penstock_spans" }, "table"},
		{"long", func(o *Options) { o.Table = strings.Repeat("t", 64) }, "table"},
		{"mode", func(o *Options) { o.Mode = "replace" }, "mode"},
		{"policy", func(o *Options) { o.OnNewField = "drop" }, "on_new_field"},
		{"upsert without key", func(o *Options) { o.Mode = Upsert }, "key"},
		{"key without upsert", func(o *Options) { o.Key = []string{"a"} }, "key"},
		{"key twice", func(o *Options) { o.Mode, o.Key = Upsert, []string{"a", "a"} }, "key"},
		{"key not listed", func(o *Options) {
			o.Mode, o.Key, o.Columns = Upsert, []string{"a"}, []ColumnOption{{Name: "b"}}
		}, "key"},
		{"JSON column", func(o *Options) { o.Mode, o.Key = Upsert, []string{"_extra"} }, "key"},
		{"reserved key", func(o *Options) { o.Mode, o.Key = Upsert, []string{"ctid"} }, "key"},
		{"upsert", func(o *Options) { o.Mode, o.Key = Upsert, []string{"a"} }, ""},
		{"column twice", func(o *Options) {
			o.Columns = []ColumnOption{{Name: "b"}, {Name: "b"}}
		}, "columns[1]"},
		{"column type", func(o *Options) {
			o.Columns = []ColumnOption{{Name: "b", Type: "?"}}
		}, "columns[0]"},
		{"reserved column", func(o *Options) {
			o.Columns = []ColumnOption{{Name: "ctid"}}
		}, "columns[0]"},
		{"JSON column listed", func(o *Options) {
			o.OnNewField, o.Columns = "json_column", []ColumnOption{{Name: "_extra"}}
		}, "columns[0]"},
		{"ledger", func(o *Options) { o.Ledger = "a b" }, "ledger"},
	} {
		o := DefaultOptions()
		o.Table = "t"
		c.set(&o)
		err := o.Validate(plain)
		if e, ok := err.(*stream.OptionError); err == nil && c.key != "" ||
			err != nil && (!ok || e.Key != c.key) {
			t.Errorf("%s: %v, want an error at %q", c.name, err, c.key)
		}
	}
}

// records returns a batch of records with one field.
func records(name string, kinds []stream.Kind, texts []string) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Names = []string{name}
	for i, text := range texts {
		b.Fields = append(b.Fields, stream.Field{Kind: kinds[i], Off: uint32(len(b.Data)),
			Len: uint32(len(text))})
		b.Records = append(b.Records, stream.Record{Off: uint32(len(b.Data)),
			Len: uint32(len(text)), Field: uint32(i), NumFields: 1})
		b.Data = append(append(b.Data, text...), '\n')
	}
	return b
}

func TestInfer(t *testing.T) {
	const text, number, boolean, null, nested = stream.Text, stream.Number, stream.Bool,
		stream.Null, stream.JSON
	for _, c := range []struct {
		kinds []stream.Kind
		texts []string
		want  Type
	}{
		{[]stream.Kind{number, null, number}, []string{"1", "", "-9223372036854775808"}, Integer},
		{[]stream.Kind{number, number}, []string{"1", "9223372036854775808"}, Number},
		{[]stream.Kind{number}, []string{"1e3"}, Number},
		{[]stream.Kind{boolean, null}, []string{"true", ""}, Bool},
		{[]stream.Kind{boolean, number}, []string{"true", "1"}, Text},
		{[]stream.Kind{null}, []string{""}, Text},
		{[]stream.Kind{text, number}, []string{"1", "1"}, Text},
		{[]stream.Kind{nested, number}, []string{"[]", "1"}, JSON},
	} {
		got := Infer(plain, records("f", c.kinds, c.texts))
		if len(got) != 1 || got[0].Type != c.want {
			t.Errorf("%v %q: %v, want type %d", c.kinds, c.texts, got, c.want)
		}
	}
}

// TestIsNumber compares isNumber with encoding/json, and its size limit with math/big.
func TestIsNumber(t *testing.T) {
	for _, s := range []string{
		"0", "-0", "1", "1.", ".5", "1.5", "1e5", "1E+5", "1e-5", "1e", "e5", "+1", "--1", "1x", "",
		"-", "0x10", "NaN",
		"Infinity", "1_000",
		"1e99999999999", "1e20", "1e-20", "12345678901234567890123",
		"0.12345678901234567890123", " 1",
	} {
		var n json.Number
		want := json.Unmarshal([]byte(s), &n) == nil && s == strings.TrimSpace(s)
		if got := isNumber([]byte(s), 0); got != want {
			t.Errorf("isNumber(%q) = %v, want %v", s, got, want)
		}
		if !want || len(s) > 10 && strings.Contains(s, "e9") {
			continue
		}
		r, _ := new(big.Rat).SetString(s)
		limit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(20), nil))
		if isNumber([]byte(s), 20) && r.Abs(r).Cmp(limit) >= 0 {
			t.Errorf("isNumber(%q, 20): it has more than 20 digits before the point", s)
		}
	}
	if isNumber([]byte("1e99999999999"), 20) || isNumber([]byte("1e-21"), 20) ||
		!isNumber([]byte("1e19"), 20) {
		t.Error("the limit of digits is not held")
	}
}

func FuzzFits(f *testing.F) {
	for _, s := range []string{"0", "-1", "9223372036854775808", "1e400", "1.5", "true", "-",
		"1e-", "00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		integer, number := isInteger([]byte(s)), isNumber([]byte(s), 0)
		if integer && !number {
			t.Errorf("%q is an integer and no number", s)
		}
		if n, ok := new(big.Int).SetString(s, 10); integer && (!ok || !n.IsInt64()) {
			t.Errorf("%q is taken for an integer of 64 bits", s)
		}
		var n json.Number
		bare := json.Valid([]byte(s)) && strings.TrimSpace(s) == s && s[0] != '"' && s != "null"
		if bare && json.Unmarshal([]byte(s), &n) == nil && !number {
			t.Errorf("%q is a JSON number and not taken", s)
		}
	})
}

// TestNeedsExtra checks that a refused record asks for the JSON column (NeedsExtra) only if this
// column could store the refused value. It could not store a NUL byte, and a missing key is a fault
// of the record. A parsed record without fields has no message that could be stored either.
func TestNeedsExtra(t *testing.T) {
	table := func(c ...Column) *Table {
		out := NewTable(&Dialect{NoNUL: true}, c, "_extra", JSONColumn)
		out.Required = []int{0}
		return out
	}
	text := Column{Name: "f", Type: Text}
	for _, c := range []struct {
		name, value string
		table       *Table
		fields      uint32
		refused     bool
		needsExtra  bool
	}{
		{"stored", "x", table(text), 1, false, false},
		{"NUL byte", "a\x00b", table(text), 1, true, false},
		{"no key", "", table(text), 0, true, false},
		{"no column", "x", table(Column{Name: "g", Type: Text}), 1, true, true},
	} {
		b := records("f", []stream.Kind{stream.Text}, []string{c.value})
		b.Records[0].NumFields, b.Records[0].Parsed = c.fields, true
		var r Rows
		r.Over(c.table, b)
		reason := r.Row(0)
		f := r.Refusal(0, reason)
		if (reason != "") != c.refused || f.NeedsExtra != c.needsExtra {
			t.Errorf("%s: %+v, want refused %v, NeedsExtra %v", c.name, f, c.refused, c.needsExtra)
		}
	}
}

// TestRowsAllocateNothing checks that converting a record allocates nothing once the buffers exist.
func TestRowsAllocateNothing(t *testing.T) {
	b := records("f", []stream.Kind{stream.Number, stream.Text}, []string{"200", "x"})
	table := NewTable(plain, []Column{{Name: "f", Type: Integer}, {Name: "_extra", Type: JSON}},
		"_extra", JSONColumn)
	var r Rows
	r.Over(table, b)
	n := testing.AllocsPerRun(100, func() {
		r.Over(table, b)
		for i := range b.Records {
			if reason := r.Row(i); reason != "" {
				t.Fatal(reason)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for two records", n)
	}
}

// TestAnswer checks that refusals are grouped by reason, that records of one origin stay together,
// and that all records of a batch are accounted for.
func TestAnswer(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = []byte("a\nb\nc\nd\n")
	b.Origins = 4
	b.Spans = []stream.Span{{
		Part: &stream.Partition{ID: "p"}, Bytes: 8,
		Range: stream.Range{To: stream.Position{Num: 8}},
	}}
	b.Split()
	err := Answer(b, []Refusal{
		{Record: 1, Reason: "one"}, {Record: 2, Reason: "two"}, {Record: 3, Reason: "one"}})
	split, ok := err.(*stream.Split)
	if !ok || len(split.Refused) != 1 || len(split.Rest) != 1 || split.Err.Error() != "one" {
		t.Fatalf("Answer: %v", err)
	}
	if got := string(split.Refused[0].Value.AppendRaw(nil)); got != "b\nd\n" {
		t.Errorf("refused %q", got)
	}
	if got := string(split.Rest[0].Value.AppendRaw(nil)); got != "a\nc\n" {
		t.Errorf("the rest is %q", got)
	}
	covered := int64(0)
	for _, p := range []*stream.Batch{split.Refused[0].Value, split.Rest[0].Value} {
		for _, s := range p.Spans {
			covered += s.To.Num - s.From.Num
		}
	}
	if covered != 8 {
		t.Errorf("the pieces cover %d of 8", covered)
	}
}

// TestClean compares the check of many bytes at once with a check byte by byte.
func TestClean(t *testing.T) {
	for _, d := range []Dialect{{}, {UTF8: true}, {NoNUL: true}, {UTF8: true, NoNUL: true}} {
		table := NewTable(&d, []Column{{Name: "c", Type: Text}}, "", Ignore)
		check := func(head int, bad string, tail int) {
			t.Helper()
			text := []byte(strings.Repeat("a", head) + bad + strings.Repeat("\x01", tail))
			want := (!d.UTF8 || utf8.Valid(text)) &&
				(!d.NoNUL || !strings.Contains(string(text), "\x00"))
			for _, ends := range [][]int{{len(text)}, {head / 2, head, len(text)},
				{head, head + len(bad), len(text), head}} {
				var r Rows
				r.Over(table, &stream.Batch{Data: text})
				for _, end := range ends {
					// clean checks in steps, so it may also have found an invalid byte after end.
					if got := r.clean(end); got != want && (want || end > head) {
						t.Fatalf("%+v, %d bytes before %q, %d behind: up to %d %v", d, head, bad,
							tail, end, got)
					}
				}
			}
		}
		for _, bad := range []string{"", "\x00", "\x01", "\x7f", "\x80", "\x81", "\xff", "ä",
			"\xc3", "\u20ac", "\x00\x01"} {
			for n := range 100 {
				for head := 0; head <= n; head += 1 + n/9 {
					check(head, bad, n-head)
				}
			}
			for head := ahead - 40; head < ahead+40; head++ {
				check(head, bad, ahead)
			}
		}
	}
}
