package ndjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// addField adds one field to a record. Call it for all fields of one record before those of the
// next record.
func addField(b *stream.Batch, record int, name string, kind stream.Kind, value string) {
	r := &b.Records[record]
	if r.NumFields == 0 {
		r.Field = uint32(len(b.Fields))
	}
	r.NumFields++
	off := uint32(len(b.Data))
	b.Data = append(b.Data, value...)
	b.Names = append(b.Names, name)
	b.Fields = append(b.Fields,
		stream.Field{Name: uint32(len(b.Names) - 1), Kind: kind, Off: off, Len: uint32(len(value))})
	b.Parsed()
}

func TestAppend(t *testing.T) {
	b := streamtest.Text("plain\r\nparsed\ndropped\nburied\nlast\n")
	b.Split()
	addField(b, 1, "z", stream.Number, "1e400")
	addField(b, 1, "a\"b", stream.Text, "tab\there")
	addField(b, 1, "yes", stream.Bool, "true")
	addField(b, 1, "none", stream.Null, "")
	addField(b, 1, "deep", stream.JSON, "{\"z\":1,\n \"a\":[0.10]}")
	addField(b, 1, "z", stream.Number, "")
	b.Drop(2)
	b.DeadLetter(3, bytes.ErrTooLarge)
	got := string(ndjson.Append([]byte("before "), b))
	want := `before {"message":"plain"}
{"z":1e400,"a\"b":"tab\there","yes":true,"none":null,"deep":{"z":1,  "a":[0.10]},"z":null}
{"message":"last"}
`
	if got != want {
		t.Errorf("Append = %s\nwant %s", got, want)
	}
}

func TestAppendString(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", `""`},
		{"plain text", `"plain text"`},
		{`quote " and \`, `"quote \" and \\"`},
		{"\x00\x1b\x7f\r\n\t", `"\u0000\u001b\u007f\r\n\t"`},
		{"grün 😀", `"grün 😀"`},
		{"\xff", `"�"`},
		{"a\xc3", `"a�"`},
		{"\xed\xa0\x80", `"���"`},
		{"\xe2\x80\xa8 and \xe2\x80\xa9", `"\u2028 and \u2029"`},
		{"\xe2\x80", `"��"`},
		{"�", `"�"`},
		{"<b>&", `"<b>&"`},
	} {
		if got := string(ndjson.AppendString(nil, c.in)); got != c.want {
			t.Errorf("AppendString(%q) = %s, want %s", c.in, got, c.want)
		}
		if got := string(ndjson.AppendString([]byte{}, []byte(c.in))); got != c.want {
			t.Errorf("AppendString of the bytes %q = %s, want %s", c.in, got, c.want)
		}
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	b := streamtest.Text(strings.Repeat("a line with \xff and \" and grün in it\n", 1000))
	b.Split()
	dst := ndjson.Append(nil, b)
	if n := testing.AllocsPerRun(20, func() { dst = ndjson.Append(dst[:0], b) }); n != 0 {
		t.Errorf("Append of 1,000 records allocates %v times, want 0", n)
	}
	for i := range b.Records {
		addField(b, i, "name", stream.Text, "value")
	}
	dst = ndjson.Append(dst, b)
	if n := testing.AllocsPerRun(20, func() { dst = ndjson.Append(dst[:0], b) }); n != 0 {
		t.Errorf("Append of 1,000 parsed records allocates %v times, want 0", n)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\xff\xfe", "\u2028", "\x00\"\\", "\xf0\x9f\x98", "😀"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		line := ndjson.AppendString(nil, s)
		var got string
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q is no JSON: %v", line, err)
		}
		want := string([]rune(string(s))) // each bad byte becomes U+FFFD
		if got != want {
			t.Errorf("AppendString(%q) reads back as %q, want %q", s, got, want)
		}
		for _, c := range line {
			if c < ' ' || c == 0x7F {
				t.Errorf("AppendString(%q) leaves the control character %#x", s, c)
			}
		}
		if !utf8.Valid(line) {
			t.Errorf("AppendString(%q) = %q is not UTF-8", s, line)
		}
	})
}

func FuzzAppend(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\xff\n"), "name", []byte("value"))
	f.Add([]byte("\n\n"), "\"", []byte{0})
	f.Fuzz(func(t *testing.T, text []byte, name string, value []byte) {
		text = append(text, '\n')
		b := streamtest.Text(string(text))
		b.Split()
		addField(b, 0, name, stream.Text, string(value))
		lines := bytes.SplitAfter(ndjson.Append(nil, b), []byte("\n"))
		if len(lines) != len(b.Records)+1 || len(lines[len(b.Records)]) != 0 {
			t.Fatalf("%d records became %d lines", len(b.Records), len(lines)-1)
		}
		for i := range b.Records {
			var got map[string]string
			if err := json.Unmarshal(lines[i], &got); err != nil {
				t.Fatalf("line %q: %v", lines[i], err)
			}
			key, want := "message", string([]rune(string(b.Text(i))))
			if i == 0 {
				key, want = string([]rune(name)), string([]rune(string(value)))
			}
			if len(got) != 1 || got[key] != want {
				t.Errorf("line %q reads back as %q, want %q: %q", lines[i], got, key, want)
			}
		}
	})
}

func BenchmarkAppend(bench *testing.B) {
	line := `203.0.113.9 - - [21/Nov/2026:11:52:49 +0000] "GET /index.html HTTP/1.1" 200 5316 "https://example.com/" "Mozilla/5.0"` + "\n"
	b := streamtest.Text(strings.Repeat(line, 2000))
	b.Split()
	dst := ndjson.Append(nil, b)
	bench.SetBytes(int64(len(b.Data)))
	bench.ReportAllocs()
	for bench.Loop() {
		dst = ndjson.Append(dst[:0], b)
	}
}
