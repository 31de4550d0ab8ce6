package framing_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/kit/framing"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// file is a file of an encoding, with a naive model of its content.
type file struct {
	o    framing.Options
	t    framing.Text
	data []byte
}

// got is the output of a file.
type got struct {
	texts []string
	ids   []int64
	dead  int
	err   error
	next  int64
}

// read reads a file in growing steps into batches of a few bytes. Sometimes a new reader resumes at
// a batch's end, or reads only a part of the records again.
func (f file) read(t *testing.T, rng *rand.Rand) (g got) {
	t.Helper()
	framed, byHead, err := f.o.In(f.t, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	filler := lines.Filler{Rules: lines.Rules{MaxRecord: 1 << 20, Framing: framed}}
	limits := stream.BatchLimits{Bytes: 1 + rng.IntN(60), Records: 1 + rng.IntN(4)}
	var c lines.Cursor
	size := min(len(f.data), 2)
	for {
		b := stream.NewBatch(limits)
		before := c.Next
		in := lines.File{
			ReaderAt: bytes.NewReader(f.data), Part: &stream.Partition{ID: "p", Name: "p"},
			Size:   int64(size),
			Sealed: size == len(f.data),
		}
		if byHead != nil {
			in.Framing = byHead(f.data[:size])
		}
		res, err := filler.Fill(b, &c, in)
		if err != nil {
			g.err = err
			return g
		}
		if head, tail, ok := filler.Seen(before, c.Next); ok &&
			(!bytes.HasPrefix(f.data[before:], head) ||
				!bytes.HasSuffix(f.data[:c.Next], tail)) {
			t.Fatalf("from %d to %d %q and %q were seen", before, c.Next, head, tail)
		}
		filler.Complete(b)
		b.Split()
		g.take(t, b, before, c.Next)
		if rng.IntN(3) == 0 {
			c = lines.Resume(stream.Mark{Watermark: stream.Position{Num: c.Next}})
		}
		if res == lines.Drained {
			if size == len(f.data) {
				g.next = c.Next
				return g
			}
			size += 1 + rng.IntN(len(f.data)-size)
		}
	}
}

func (g *got) take(t *testing.T, b *stream.Batch, before, next int64) {
	t.Helper()
	origins := 0
	for i := range b.Records {
		r := &b.Records[i]
		if r.Sub == 0 {
			origins++
		}
		if at := r.Origin.Num; at <= before || at > next {
			t.Fatalf("record %q ends at %d, the batch covers %d to %d", b.Text(i), at, before, next)
		}
		if r.State == stream.Dead {
			g.dead++
			if _, ok := errors.AsType[*lines.TextError](b.Reason(i)); !ok {
				t.Fatalf("dead-lettered because of %v", b.Reason(i))
			}
			continue
		}
		g.texts, g.ids = append(g.texts, string(b.Text(i))), append(g.ids, r.Origin.Num)
	}
	if origins != b.Origins {
		t.Fatalf("%d origins, want %d", b.Origins, origins)
	}
	if raw := b.RawBytes() - int64(b.Added); raw != next-before {
		t.Fatalf("%d bytes are counted, %d were read", raw, next-before)
	}
}

// wide writes text in UTF-16.
func wide(text string, little bool) []byte {
	var out []byte
	for _, u := range utf16.Encode([]rune(text)) {
		if little {
			out = append(out, byte(u), byte(u>>8))
		} else {
			out = append(out, byte(u>>8), byte(u))
		}
	}
	return out
}

func in(encoding, decodeError string) framing.Text {
	return framing.Text{Encoding: encoding, DecodeError: decodeError}
}

func TestEncodings(t *testing.T) {
	const text = "häuser €5\r\n\n\u0a0a\u0d0a ਊ𝄞 x\nlast 𝄞"
	wanted := []string{"häuser €5", "", "\u0a0a\u0d0a ਊ𝄞 x", "last 𝄞"}
	line := framing.Defaults()
	start := options("multiline", func(o *framing.Options) { o.Start = `^ä` })
	for _, c := range []struct {
		name string
		file
		want []string
		dead int
	}{
		{"utf-16le", file{line, in("utf-16le", "keep"), wide(text, true)}, wanted, 0},
		{"utf-16be", file{line, in("utf-16be", "keep"), wide(text, false)}, wanted, 0},
		{"a mark, little", file{line, in("utf-16", "keep"), wide("\ufeff"+text, true)}, wanted, 0},
		{"a mark, big", file{line, in("utf-16", "keep"), wide("\ufeff"+text, false)}, wanted, 0},
		{"no mark", file{line, in("utf-16", "keep"), wide(text, false)}, wanted, 0},
		{"a mark alone", file{line, in("utf-16", "keep"), wide("\ufeff", true)}, nil, 0},
		{"an odd byte", file{line, in("utf-16le", "keep"), append(wide("a\nb", true), 'x')},
			[]string{"a", "b\ufffd"}, 0},
		{"an odd byte, dropped",
			file{line, in("utf-16le", "drop"), append(wide("a\nb", true), 'x')}, []string{"a", "b"},
			0},
		{"an odd byte, dead",
			file{line, in("utf-16le", "dead_letter"), append(wide("a\nb", true), 'x')},
			[]string{"a"}, 1},
		{"half a pair", file{line, in("utf-16be", "replace"),
			append(append(wide("a", false), 0xd8, 0), wide("b\nc", false)...)},
			[]string{"a\ufffdb", "c"}, 0},
		{"latin-1", file{line, in("latin-1", "keep"), []byte("h\xe4user\r\n\x80\xff")},
			[]string{"häuser", "\u0080ÿ"}, 0},
		{"windows-1252", file{line, in("windows-1252", "keep"), []byte("h\xe4user \x80\n\x81")},
			[]string{"häuser €", "\ufffd"}, 0},
		{"windows-1252, dropped", file{line, in("windows-1252", "drop"), []byte("a\x81b\nc")},
			[]string{"ab", "c"}, 0},
		{"utf-8, replaced", file{line, in("utf-8", "replace"),
			[]byte("a\xffb\xe2\x82\n\xe2\x82\xac")}, []string{"a\ufffdb\ufffd\ufffd", "€"}, 0},
		{"utf-8, dropped", file{line, in("utf-8", "drop"), []byte("a\xffb\n€")},
			[]string{"ab", "€"}, 0},
		{"utf-8, dead", file{line, in("utf-8", "dead_letter"), []byte("one\na\xffb\n€\n\xff\n")},
			[]string{"one", "€"}, 2},
		{"utf-8, kept", file{line, in("utf-8", "keep"), []byte("a\xffb\n€")},
			[]string{"a\xffb", "€"}, 0},
		{"json in utf-16", file{options("json", nil), in("utf-16le", "keep"),
			wide(`[{"ä":"}"}, {"b":1}]`, true)}, []string{`{"ä":"}"}`, `{"b":1}`}, 0},
		{"csv in latin-1",
			file{options("csv", nil), in("latin-1", "keep"), []byte("a,\"\xe4\nc\"\nd")},
			[]string{"a,\"ä\nc\"", "d"}, 0},
		{"a delimiter", file{options("delimiter", func(o *framing.Options) { o.Delimiter = "€" }),
			in("windows-1252", "keep"), []byte("a\x80\xe4\x80")},
			[]string{"a", "ä"}, 0},
		{"a delimiter in utf-16", file{options("delimiter", func(o *framing.Options) {
			o.Delimiter = "€"
		}), in("utf-16be", "keep"),
			wide("a€ä\n€", false)}, []string{"a", "ä\n"}, 0},
		{"an expression in latin-1",
			file{start, in("latin-1", "keep"), []byte("x\n\xe41\n2\n\xe43")},
			[]string{"x", "ä1\n2", "ä3"}, 0},
		{"an expression in utf-16",
			file{start, in("utf-16", "keep"), wide("\ufeffä1\n2\nä3", true)},
			[]string{"ä1\n2", "ä3"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ids []int64
			for seed := range uint64(100) {
				g := c.read(t, rand.New(rand.NewPCG(seed, 3)))
				if g.err != nil || !slices.Equal(g.texts, c.want) || g.dead != c.dead ||
					g.next != int64(len(c.data)) {
					t.Fatalf("seed %d: %q, %d dead, up to %d of %d, %v; want %q", seed, g.texts,
						g.dead, g.next, len(c.data), g.err, c.want)
				}
				if ids == nil {
					ids = g.ids
				}
				if !slices.Equal(ids, g.ids) {
					t.Fatalf("seed %d: records end at %v, before at %v", seed, g.ids, ids)
				}
			}
		})
	}
}

// TestDecodeErrorFails checks that a source with decode_error: fail delivers the records before
// invalid bytes, and then reports their position.
func TestDecodeErrorFails(t *testing.T) {
	f := file{framing.Defaults(), in("utf-8", "fail"), []byte("one\ntwo\nthr\xffee\nfour\n")}
	for seed := range uint64(50) {
		g := f.read(t, rand.New(rand.NewPCG(seed, 4)))
		const want = `"p" at offset 8: bytes 3 to 6 of the record (ff 65 65) are no utf-8 text; ` +
			"correct encoding, or choose decode_error: replace"
		if !slices.Equal(g.texts, []string{"one", "two"}) || g.err == nil || g.err.Error() != want {
			t.Fatalf("%q, %v", g.texts, g.err)
		}
	}
}

// TestLongText checks that a record that is too long is cut between characters, and that no text is
// lost.
func TestLongText(t *testing.T) {
	want := strings.Repeat("𝄞ä", 5000)
	for _, c := range []struct {
		encoding string
		data     []byte
	}{{"utf-16le", wide(want, true)}, {"utf-16be", wide(want, false)}, {"utf-8", []byte(want)}} {
		for most := 1; most < 200; most += 7 {
			framed, _, err := framing.Defaults().In(in(c.encoding, "replace"), most)
			if err != nil {
				t.Fatal(err)
			}
			filler := lines.Filler{Rules: lines.Rules{MaxRecord: most, Framing: framed}}
			var text strings.Builder
			var cur lines.Cursor
			for cur.Next < int64(len(c.data)) {
				b := stream.NewBatch(stream.BatchLimits{})
				if _, err := filler.Fill(b, &cur, lines.File{
					ReaderAt: bytes.NewReader(c.data), Part: &stream.Partition{ID: "p"},
					Size: int64(len(c.data)), Sealed: true,
				}); err != nil {
					t.Fatal(err)
				}
				filler.Complete(b)
				for i := range b.Records {
					text.Write(b.Text(i))
				}
			}
			if text.String() != want {
				t.Fatalf("%s, max_record %d: the pieces are not what was cut", c.encoding, most)
			}
		}
	}
}

func TestTextOptions(t *testing.T) {
	for _, c := range []struct {
		encoding, decodeError, preset, long, want string
	}{
		{"ebcdic", "keep", "", "cut",
			`encoding: is "ebcdic", want utf-8, utf-16le, utf-16be, utf-16, latin-1 or windows-1252`},
		{"utf-8", "ignore", "", "cut",
			`decode_error: is "ignore", want keep, replace, drop, dead_letter or fail`},
		{"latin-1", "keep", "docker", "cut", "encoding: is latin-1, but logs of containers " +
			"(preset: docker) are UTF-8"},
		{"latin-1", "keep", "", "dead_letter", "encoding: is latin-1, where long records can " +
			"only be cut; write long_record: cut"},
		{"utf-8", "drop", "", "dead_letter", "decode_error: is drop, where long records can only " +
			"be cut; write long_record: cut"},
		{"utf-8", "keep", "cri", "dead_letter", ""}, {"utf-16", "fail", "", "cut", ""},
	} {
		err := in(c.encoding, c.decodeError).Validate(framing.Options{Preset: c.preset}, c.long)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	o := options("delimiter", func(o *framing.Options) { o.Delimiter = "ж" })
	if _, _, err := o.In(in("latin-1", "keep"), 1); err == nil ||
		err.Error() != "framing.delimiter: has 'ж', which the encoding does not have" {
		t.Error(err)
	}
}

// model is a naive reader: all of the file is decoded at once, then split.
func model(encoding string, data []byte) []string {
	var text []rune
	bad := func(b byte) rune { return utf8.RuneError }
	switch encoding {
	case "utf-8":
		text = []rune(string(data))
	case "latin-1":
		for _, b := range data {
			text = append(text, rune(b))
		}
	default:
		units := make([]uint16, 0, len(data)/2)
		for i := 0; i+1 < len(data); i += 2 {
			if encoding == "utf-16le" {
				units = append(units, uint16(data[i])|uint16(data[i+1])<<8)
			} else {
				units = append(units, uint16(data[i+1])|uint16(data[i])<<8)
			}
		}
		text = utf16.Decode(units)
		if len(data)%2 == 1 {
			text = append(text, bad(0))
		}
	}
	list := strings.Split(string(text), "\n")
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	for i := range list {
		if encoding != "utf-8" && encoding != "latin-1" {
			if list[i] == "\ufeff" && i == len(list)-1 && !strings.HasSuffix(string(text), "\n") {
				list = list[:i]
				break
			}
			list[i] = strings.TrimPrefix(list[i], "\ufeff")
		}
		if i < len(list)-1 || strings.HasSuffix(string(text), "\n") {
			list[i] = strings.TrimSuffix(list[i], "\r")
		}
	}
	return list
}

// FuzzEncodings compares the records of a file of arbitrary bytes with those of a naive reader
// (model), which decodes the whole file before it splits it.
func FuzzEncodings(f *testing.F) {
	names := []string{"utf-8", "utf-16le", "utf-16be", "latin-1"}
	f.Add(uint8(0), []byte("a\xff\r\n\nb"), uint64(1))
	f.Add(uint8(1), wide("\ufeffa𝄞\r\n\nb\u0a0a", true), uint64(2))
	f.Add(uint8(2), append(wide("a\n\xd8b", false), 0xd8, 0, 0), uint64(3))
	f.Add(uint8(3), []byte("\xe4\n\x80\r"), uint64(4))
	f.Fuzz(func(t *testing.T, which uint8, data []byte, seed uint64) {
		name := names[int(which)%len(names)]
		got := file{framing.Defaults(), in(name, "replace"), data}.read(t,
			rand.New(rand.NewPCG(seed, 1)))
		if want := model(name, data); got.err != nil || !slices.Equal(got.texts, want) {
			t.Fatalf("%s: %q, want %q, %v", name, got.texts, want, got.err)
		}
	})
}
