package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/flow/ledger"
)

type mark struct {
	watermark ledger.Position
	above     []ledger.Range
}

func at(n int64) ledger.Position { return ledger.Position{Num: n} }

func upTo(from, to int64) ledger.Range { return ledger.Range{From: at(from), To: at(to)} }

var goldens = []struct {
	name string
	mark mark
	text string
}{
	{"nothing settled", mark{}, "penstock-mark 1\nwatermark 0\ncrc32c 5ff75c8f\n"},
	{
		"ranges", mark{at(100), []ledger.Range{upTo(120, 180), upTo(200, 201)}},
		"penstock-mark 1\nwatermark 100\nsettled 120 180\nsettled 200 201\ncrc32c d8137da2\n",
	},
	{
		"keys",
		mark{
			ledger.Position{Num: -3, Key: "a\x00\xff\n \"é"},
			[]ledger.Range{{From: ledger.Position{Num: -3, Key: "b"}, To: at(math.MaxInt64)}},
		},
		"penstock-mark 1\nwatermark -3 \"a\\x00\\xff\\n \\\"\\u00e9\"\nsettled -3 \"b\" " +
			"9223372036854775807\ncrc32c d56b0ec6\n",
	},
}

// TestGolden checks that the bytes of version 1 never change.
func TestGolden(t *testing.T) {
	for _, g := range goldens {
		text, err := Encode(g.mark.watermark, g.mark.above)
		if err != nil || string(text) != g.text {
			t.Errorf("%s: Encode = %q, %v; want %q", g.name, text, err, g.text)
		}
		for newest := version; newest < 4; newest++ { // a later program reads them, too
			watermark, above, err := decode([]byte(g.text), newest)
			if err != nil || watermark != g.mark.watermark || !slices.Equal(above, g.mark.above) {
				t.Errorf("%s: decode for %d = %v %v, %v", g.name, newest, watermark, above, err)
			}
		}
	}
}

// TestNewer checks that the text of a later version is distinguished from damage, regardless of the
// text after its first line.
func TestNewer(t *testing.T) {
	for _, text := range []string{
		string(appendMark(nil, 2, at(7), nil)), "penstock-mark 2\nanything", "penstock-mark 17\n",
	} {
		_, _, err := Decode([]byte(text))
		if !errors.Is(err, errNewer) ||
			!strings.Contains(err.Error(), "this program reads up to 1") {
			t.Errorf("Decode(%q): %v", text, err)
		}
	}
	if watermark, _, err := decode(appendMark(nil, 2, at(7), nil), 2); err != nil ||
		watermark != at(7) {
		t.Errorf("a program of version 2: %v, %v", watermark, err)
	}
}

// TestEveryDamageIsFound checks that Decode refuses an encoding with any bit flipped, truncated at
// any length, or with text appended.
func TestEveryDamageIsFound(t *testing.T) {
	for _, g := range goldens {
		text := []byte(g.text)
		for i := range text {
			for bit := range 8 {
				damaged := bytes.Clone(text)
				damaged[i] ^= 1 << bit
				if _, _, err := Decode(damaged); err == nil {
					t.Errorf("%s: bit %d of byte %d may turn over", g.name, bit, i)
				}
			}
			if _, _, err := Decode(text[:i]); err == nil {
				t.Errorf("%s: it may end after %d bytes", g.name, i)
			}
		}
		for _, more := range []string{"\n", "\x00", g.text} {
			if _, _, err := Decode(append(bytes.Clone(text), more...)); err == nil {
				t.Errorf("%s: %q may follow", g.name, more)
			}
		}
	}
}

// sealed returns lines with a valid checksum as the last line.
func sealed(lines string) []byte {
	return append(append([]byte(lines), sumLine([]byte(lines))...), '\n')
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"", "does not begin"},
		{"penstock-mark 0\nwatermark 1\n", "does not begin"},
		{"penstock-mark one\nwatermark 1\n", "does not begin"},
		{"penstock-mark 1\n", "its lines"},
		{"penstock-mark 1\nwatermark 01\n", "its lines"},
		{"penstock-mark 1\nwatermark 1 \n", "its lines"},
		{"penstock-mark 1\nwatermark 1\nwatermark 2\n", "its lines"},
		{"penstock-mark 1\nsettled 2 3\nwatermark 1\n", "its lines"},
		{"penstock-mark 1\nwatermark 1 \"\"\n", "its lines"},
		{"penstock-mark 1\nwatermark 1 \"a\n", "its lines"},
		{"penstock-mark 1\nwatermark 1\nsettled 3\n", "its lines"},
		{"penstock-mark 1\nwatermark 1\nsettled 3 4 5\n", "its lines"},
		{"penstock-mark 1\nwatermark 1\nsettled 3\t4\n", "its lines"},
		{"penstock-mark 1\nwatermark 99999999999999999999\n", "its lines"},
		{"penstock-mark 1\nwatermark 5\nsettled 5 6\n", "begins at or before 5"},
		{"penstock-mark 1\nwatermark 5\nsettled 7 9\nsettled 9 12\n", "begins at or before 9"},
		{"penstock-mark 1\nwatermark 5\nsettled 7 7\n", "is empty"},
	} {
		if _, _, err := Decode(sealed(c.lines)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("Decode(%q): %v, want %q", c.lines, err, c.want)
		}
	}
	if _, _, err := Decode(make([]byte, maxSize+1)); err != errSize {
		t.Errorf("Decode of too much: %v", err)
	}
	for _, above := range [][]ledger.Range{{upTo(5, 6)}, {upTo(7, 7)}, {upTo(9, 8)},
		{upTo(7, 9), upTo(8, 10)}, {upTo(9, 10), upTo(7, 8)}} {
		if text, err := Encode(at(5), above); err == nil {
			t.Errorf("Encode takes %v above 5: %q", above, text)
		}
	}
	if _, err := Encode(ledger.Position{Key: strings.Repeat("\xff", maxSize/4)},
		nil); !errors.Is(err, errSize) {
		t.Errorf("Encode of too much: %v", err)
	}
}

// anyMark returns a random mark of up to n ranges.
func anyMark(rnd *rand.Rand, n int) mark {
	key := func() string {
		if rnd.IntN(2) == 0 {
			return ""
		}
		b := make([]byte, rnd.IntN(6))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return string(b)
	}
	num := rnd.Int64N(100) - 50
	next := func() ledger.Position {
		num += 1 + rnd.Int64N(1000)
		return ledger.Position{Num: num, Key: key()}
	}
	m := mark{watermark: ledger.Position{Num: num, Key: key()}}
	for range rnd.IntN(n + 1) {
		m.above = append(m.above, ledger.Range{From: next(), To: next()})
	}
	return m
}

// TestAnyMark checks that any progress of a ledger is decoded unchanged, and that a ledger accepts
// the result.
func TestAnyMark(t *testing.T) {
	const seed = 20261122
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range 2000 {
		m := anyMark(rnd, 8)
		text, err := Encode(m.watermark, m.above)
		if err != nil {
			t.Fatalf("seed %d, mark %d: Encode(%v): %v", seed, i, m, err)
		}
		watermark, above, err := Decode(text)
		if err != nil || watermark != m.watermark || !slices.Equal(above, m.above) {
			t.Fatalf("seed %d, mark %d: %q gives %v %v, %v; want %v", seed, i, text, watermark,
				above, err, m)
		}
		l, err := ledger.New(watermark, above)
		if err != nil {
			t.Fatal(err)
		}
		if w, a := l.Progress(); w != watermark || !slices.Equal(a, above) {
			t.Fatalf("the ledger makes %v %v of %v", w, a, m)
		}
	}
}

// FuzzDecode checks that accepted text is the encoding of its result. Half of the inputs get a
// valid checksum, so that Decode also parses the lines before it.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens {
		f.Add([]byte(g.text), false)
		f.Add([]byte(g.text[:strings.LastIndex(g.text, "crc32c")]), true)
	}
	f.Add([]byte("penstock-mark 2\nwatermark 5\n"), true)
	f.Add([]byte("penstock-mark 1\nwatermark 5 \"\\u00e9\"\nsettled 7 \"\" 9\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, seal bool) {
		if seal {
			text = sealed(string(text))
		}
		watermark, above, err := Decode(text)
		if err != nil {
			if watermark != (ledger.Position{}) || above != nil {
				t.Fatalf("Decode(%q) gives %v %v with its error", text, watermark, above)
			}
			return
		}
		again, err := Encode(watermark, above)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%q was taken, but its mark %v %v is %q, %v", text, watermark, above,
				again, err)
		}
		if _, err := ledger.New(watermark, above); err != nil {
			t.Fatal(err)
		}
	})
}

// ExampleEncode stores a mark where no file is possible, for example in a database column.
func ExampleEncode() {
	text, err := Encode(ledger.Position{Num: 100},
		[]ledger.Range{{From: ledger.Position{Num: 120}, To: ledger.Position{Num: 180}}})
	fmt.Print(string(text), err, "\n")
	fmt.Println(Decode(text))
	// Output:
	// penstock-mark 1
	// watermark 100
	// settled 120 180
	// crc32c 8024c145
	// <nil>
	// 100 [(120, 180]] <nil>
}
