package framing_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/framing"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

const javaLog = `2026-11-21 10:00:00 ERROR checkout failed
java.lang.IllegalStateException: no stock
	at shop.Cart.take(Cart.java:41)
	at shop.Main.main(Main.java:7)
Caused by: java.io.IOException: closed
	at shop.Stock.read(Stock.java:3)
	... 2 more
2026-11-21 10:00:01 INFO next
`

const pythonLog = `10:00:00 ERROR while parsing
Traceback (most recent call last):
  File "a.py", line 3, in <module>
    int("x")
ValueError: invalid literal

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 5, in <module>
    raise KeyError
KeyError
10:00:01 INFO next
10:00:02 INFO after
`

const goLog = `2026/11/21 10:00:00 serving
panic: runtime error: index out of range [3] with length 2

goroutine 1 [running]:
main.pick(...)
	/src/main.go:8
main.main()
	/src/main.go:4 +0x1d
exit status 2
2026/11/21 10:00:01 serving
`

func options(by string, set func(*framing.Options)) framing.Options {
	o := framing.Defaults()
	o.By = by
	if set != nil {
		set(&o)
	}
	return o
}

// between returns the part of text from one text up to another.
func between(text, from, to string) string {
	return text[strings.Index(text, from):strings.Index(text, to)]
}

var cases = []struct {
	name string
	o    framing.Options
	text string
	want []string
}{
	{"NUL", options("delimiter", func(o *framing.Options) {
		o.Delimiter = "\x00"
	}), "a\nb\x00\x00c", []string{"a\nb", "", "c"}},
	{"two bytes", options("delimiter", func(o *framing.Options) {
		o.Delimiter = "||"
	}), "a|b||c||", []string{"a|b", "c"}},
	{"csv", options("csv", nil), "a,\"b\nc\"\"\n\",d\r\ne,f\n\"g",
		[]string{"a,\"b\nc\"\"\n\",d", "e,f", "\"g"}},
	{"csv with stray quotes", options("csv", nil),
		"5\" disk,1\n\"5\"\" disk\n\",x\"\na;\"b\nc\",\"\"\"d\n\"",
		[]string{"5\" disk,1", "\"5\"\" disk\n\",x\"", "a;\"b\nc\",\"\"\"d\n\""}},
	{"csv with a byte order mark", options("csv", nil), "\ufeff\"a\n!\",b\n1,2",
		[]string{"\ufeff\"a\n!\",b", "1,2"}},
	{"start", options("multiline", func(o *framing.Options) {
		o.Start = `^\d`
	}), "x\n1 a\n b\n2 c\n3", []string{"x", "1 a\n b", "2 " +
		"c", "3"}},
	{"continue", options("multiline", func(o *framing.Options) {
		o.Continue = `^\s`
	}), "a\n b\n\tc\nd\n", []string{"a\n b\n\tc", "d"}},
	{"end", options("multiline", func(o *framing.Options) {
		o.End = `;$`
	}), "a\nb;\nc;\nd\n", []string{"a\nb;", "c;", "d"}},
	{"max lines", options("multiline", func(o *framing.Options) {
		o.Continue, o.MaxLines = `.`, 2
	}), "a\nb\nc\n", []string{"a\nb", "c"}},
	{"CRLF", options("multiline", func(o *framing.Options) {
		o.Continue = `^ `
	}), "a\r\n b\r\nc\r\n", []string{"a\r\n b", "c"}},
	{"java", options("multiline", func(o *framing.Options) { o.Preset = "java" }), javaLog,
		[]string{between(javaLog, "2026", "\n2026-11-21 10:00:01"),
			"2026-11-21 10:00:01 INFO next"}},
	{"python", options("multiline", func(o *framing.Options) { o.Preset = "python" }), pythonLog,
		[]string{pythonLog[:strings.Index(pythonLog, "\n10:00:01")], "10:00:01 INFO next",
			"10:00:02 INFO after"}},
	{"go", options("multiline", func(o *framing.Options) { o.Preset = "go" }), goLog,
		[]string{"2026/11/21 10:00:00 serving", between(goLog, "panic", "\n2026/11/21 10:00:01"),
			"2026/11/21 10:00:01 serving"}},
	{"json lines", options("json", nil), "{\"a\":\"}\\\"\"}\n{\n\"b\": [1, {}]}\n",
		[]string{`{"a":"}\""}`, "{\n\"b\": [1, {}]}"}},
	{"json in a row", options("json", nil),
		`{"a":1}{"b":2} 12 "x" [1,[2]] null`,
		[]string{`{"a":1}`, `{"b":2}`, "12", `"x"`, "[1,[2]]", "null"}},
	{"json array", options("json", nil), " [\n {\"a\":[{}]},\n {\"b\":2}\n]\n",
		[]string{`{"a":[{}]}`, `{"b":2}`}},
	{"json empty array", options("json", nil), "[ ]\n", nil},
	{"json cut off", options("json", nil), `{"a":1}{"b":`, []string{`{"a":1}`, `{"b":`}},
}

// fill reads a text in growing steps into batches of a few bytes, and returns its records and their
// ids. If restart is set, a new reader continues at the end of a random batch, as after a kill.
func fill(t *testing.T, o framing.Options, text string,
	rng *rand.Rand) (records []string, ids []int64) {
	t.Helper()
	f, err := o.New(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	part := &stream.Partition{ID: "p", Name: "p"}
	filler := lines.Filler{Rules: lines.Rules{MaxRecord: 1 << 20, Framing: f}}
	limits := stream.BatchLimits{Bytes: 1 + rng.IntN(40), Records: 1 + rng.IntN(4)}
	var c lines.Cursor
	size := 0
	for rounds := 0; ; rounds++ {
		if rounds > 10_000 {
			t.Fatal("no end")
		}
		b := stream.NewBatch(limits)
		before := c.Next
		res, err := filler.Fill(b, &c, lines.File{
			ReaderAt: strings.NewReader(text), Part: part, Size: int64(size),
			Sealed: size == len(text),
		})
		if err != nil {
			t.Fatal(err)
		}
		filler.Complete(b)
		b.Split()
		if len(b.Records) != b.Origins {
			t.Fatalf("%d records, %d origins", len(b.Records), b.Origins)
		}
		for i := range b.Records {
			records, ids = append(records, string(b.Text(i))), append(ids, b.Records[i].Origin.Num)
			if r := b.Records[i].Origin.Num; r <= before || r > c.Next {
				t.Fatalf("record %q ends at %d, the batch covers %d to %d", b.Text(i), r, before,
					c.Next)
			}
		}
		if rng.IntN(3) == 0 { // a new reader goes on where this batch ended
			c = lines.Resume(stream.Mark{Watermark: stream.Position{Num: c.Next}})
		}
		if res == lines.Drained {
			if size == len(text) {
				break
			}
			size += 1 + rng.IntN(len(text)-size)
		}
	}
	if c.Next != int64(len(text)) {
		t.Fatalf("read up to %d of %d", c.Next, len(text))
	}
	return records, ids
}

// TestFramings checks that the records do not depend on two things: the part of the file that is
// available at each read, and the ends of batches.
func TestFramings(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var first []int64
			for seed := range uint64(200) {
				got, ids := fill(t, c.o, c.text, rand.New(rand.NewPCG(seed, 1)))
				if !slices.Equal(got, c.want) {
					t.Fatalf("seed %d: records\n%q\nwant\n%q", seed, got, c.want)
				}
				if first == nil {
					first = ids
				}
				if !slices.Equal(ids, first) {
					t.Fatalf("seed %d: records end at %v, before at %v", seed, ids, first)
				}
			}
		})
	}
}

// TestRaw checks that a raw sink writes each record with a line end, regardless of the delimiters
// in the file.
func TestRaw(t *testing.T) {
	for name, want := range map[string]string{"NUL": "a\nb\n\nc\n",
		"json array": "{\"a\":[{}]}\n{\"b\":2}\n", "continue": "a\n " +
			"b\n\tc\nd\n"} {
		i := slices.IndexFunc(cases, func(c struct {
			name string
			o    framing.Options
			text string
			want []string
		}) bool {
			return c.name == name
		})
		f, err := cases[i].o.New(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		filler := lines.Filler{Rules: lines.Rules{MaxRecord: 1 << 20, Framing: f}}
		b := stream.NewBatch(stream.BatchLimits{})
		text := cases[i].text
		file := lines.File{ReaderAt: strings.NewReader(text), Part: &stream.Partition{ID: "p"},
			Size: int64(len(text)), Sealed: true}
		if _, err := filler.Fill(b, &lines.Cursor{}, file); err != nil {
			t.Fatal(err)
		}
		filler.Complete(b)
		if got := string(b.AppendRaw(nil)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestLongRecords checks that a record that is too long is cut without a loss.
func TestLongRecords(t *testing.T) {
	f, err := options("delimiter", func(o *framing.Options) { o.Delimiter = "\x00" }).New(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 25_000) + "\x00y\x00"
	filler := lines.Filler{Rules: lines.Rules{MaxRecord: 10_000, Framing: f}}
	b := stream.NewBatch(stream.BatchLimits{})
	file := lines.File{ReaderAt: strings.NewReader(text), Part: &stream.Partition{ID: "p"},
		Size: int64(len(text)), Sealed: true}
	if _, err := filler.Fill(b, &lines.Cursor{}, file); err != nil {
		t.Fatal(err)
	}
	filler.Complete(b)
	var sizes []int
	for i := range b.Records {
		sizes = append(sizes, len(b.Text(i)))
	}
	if !slices.Equal(sizes, []int{10_000, 10_000, 5_000, 1}) {
		t.Errorf("records of %v bytes", sizes)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		by   string
		set  func(*framing.Options)
		want string
	}{
		{"word", nil, `by: is "word", want line, delimiter, multiline, csv or json`},
		{"delimiter", nil, "delimiter: is missing: by: delimiter needs what stands behind each " +
			"record"},
		{"delimiter", func(o *framing.Options) {
			o.Delimiter = strings.Repeat("x", 65)
		}, "delimiter: has 65 bytes, at most 64"},
		{"csv", func(o *framing.Options) {
			o.Start = "x"
		}, "start: has no meaning with by: csv; write by: multiline, or take it out"},
		{"csv", func(o *framing.Options) {
			o.MaxLines = 5
		}, "max_lines: has no meaning with by: csv; write by: multiline, or take it out"},
		{"line", func(o *framing.Options) {
			o.Wait = time.Second
		}, "wait: has no meaning with by: line; write by: multiline, or take it out"},
		{"multiline", nil, "by: is multiline: say which lines belong together, by preset, start, " +
			"continue or end"},
		{"multiline", func(o *framing.Options) {
			o.Preset = "rust"
		}, `preset: is "rust", want java, python, go, docker or cri`},
		{"multiline", func(o *framing.Options) {
			o.Start = "("
		}, "start: \"(\" is not a regular expression: missing closing ): `(`"},
		{"multiline", func(o *framing.Options) {
			o.Start, o.MaxLines = "x", 0
		}, "max_lines: is 0, want 1 or more"},
		{"multiline", func(o *framing.Options) { o.Start, o.Wait = "x", 0 },
			"wait: is 0s, want more than 0: the last record of a file would never be whole"},
		{"multiline", func(o *framing.Options) { o.Start, o.End = "x", "y" },
			"by: is multiline, and more than one of preset, start, continue and end is given; " +
				"one says which lines belong together"},
	} {
		if err := options(c.by, c.set).Validate("cut"); err == nil ||
			err.Error() != "framing."+c.want {
			t.Errorf("%v, want framing.%s", err, c.want)
		}
	}
	want := "framing.by: is csv, whose long records can only be cut; write long_record: cut"
	if err := options("csv", nil).Validate("dead_letter"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if f, err := framing.Defaults().New(1 << 20); f != nil || err != nil {
		t.Errorf("lines: %v, %v", f, err)
	}
}

// FuzzFramings checks that the frames of any file follow each other without gaps and cover the file
// completely. A record must be found only when all its bytes are available.
func FuzzFramings(f *testing.F) {
	for i, c := range cases {
		f.Add(uint8(i), []byte(c.text))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		fr, err := cases[int(which)%len(cases)].o.New(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		var ends []int
		for at := 0; at < len(data); {
			frame := fr.Next(data[at:], true)
			if frame.Size <= 0 || frame.From < 0 || frame.From > frame.To ||
				frame.To > frame.Size || at+frame.Size > len(data) {
				t.Fatalf("at %d of %q: %+v", at, data, frame)
			}
			if early := fr.Next(data[at:at+frame.Size-1], false); early.Size > 0 && !early.None &&
				!frame.None {
				t.Fatalf("at %d of %q: %+v, and %+v without its last byte", at, data, frame, early)
			}
			at += frame.Size
			ends = append(ends, at)
		}
		if n := len(ends); n > 0 && ends[n-1] != len(data) {
			t.Fatalf("ends %v of %d bytes", ends, len(data))
		}
	})
}
