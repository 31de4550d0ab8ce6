package table

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestNumberOrder compares the order of encoded numbers with exact arithmetic.
func TestNumberOrder(t *testing.T) {
	const seed = 9
	rnd := rand.New(rand.NewPCG(seed, 0))
	texts := []string{
		"0", "-0", "0.000", "1", "-1", "10", "100", "1.10", "1.1", "-1.1", "0.1", "0.01", "-0.01",
		"9.99", "99.9", "1e10", "1E+10",
		"10000000000", "-1e-7", "123456789012345678901234567890",
		"0.000000000000000000000000000001", "12e-1", "1.2", "-120e-2",
	}
	for range 200 {
		digits := strconv.FormatUint(rnd.Uint64N(1<<uint(1+rnd.IntN(62))), 10)
		at := rnd.IntN(len(digits) + 1)
		text := digits[:at] + "." + digits[at:]
		text = strings.TrimSuffix(text, ".")
		if strings.HasPrefix(text, ".") {
			text = "0" + text
		}
		if rnd.IntN(2) == 0 {
			text = "-" + text
		}
		texts = append(texts, text)
	}
	value := func(s string) *big.Rat {
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatalf("%q is no number", s)
		}
		return r
	}
	for _, a := range texts {
		for _, b := range texts {
			got := bytes.Compare(appendNumber(nil, a), appendNumber(nil, b))
			if want := value(a).Cmp(value(b)); got != want {
				t.Fatalf("%s is encoded as %d of %s, want %d", a, got, b, want)
			}
		}
		digits, rest, ok := cutNumber(string(appendNumber(nil, a)) + "rest")
		if !ok || rest != "rest" || value(digits).Cmp(value(a)) != 0 {
			t.Errorf("%s comes back as %s, %q, %v", a, digits, rest, ok)
		}
	}
	ladder := []string{"-Infinity", "-1e100", "0", "1e100", "Infinity", "NaN"}
	for i := 1; i < len(ladder); i++ {
		if bytes.Compare(appendNumber(nil, ladder[i-1]), appendNumber(nil, ladder[i])) >= 0 {
			t.Errorf("%s does not come before %s", ladder[i-1], ladder[i])
		}
	}
}

// TestFloatOrder checks PostgreSQL's order, with NaN last.
func TestFloatOrder(t *testing.T) {
	ladder := []float64{
		math.Inf(-1), -math.MaxFloat64, -1.5, -1, -math.SmallestNonzeroFloat64, 0,
		math.SmallestNonzeroFloat64, 1, 1.5, 1e300,
		math.Inf(1), math.NaN(),
	}
	for i := 1; i < len(ladder); i++ {
		if bytes.Compare(appendFloat(nil, ladder[i-1]), appendFloat(nil, ladder[i])) >= 0 {
			t.Errorf("%v does not come before %v", ladder[i-1], ladder[i])
		}
	}
	if !bytes.Equal(appendFloat(nil, 0), appendFloat(nil, math.Copysign(0, -1))) {
		t.Error("-0 is not 0")
	}
	negative := math.Copysign(math.NaN(), -1)
	if !bytes.Equal(appendFloat(nil, math.NaN()), appendFloat(nil, negative)) {
		t.Error("a NaN with a sign has another place")
	}
}

// TestAnyOrder checks SQLite's order: integers and reals by their exact values, then texts, then
// blobs.
func TestAnyOrder(t *testing.T) {
	whole := func(n int64) keyValue { return keyValue{kind: keyInteger, n: n} }
	part := func(f float64) keyValue { return keyValue{kind: keyFloat, f: f} }
	text := func(s string) keyValue { return keyValue{kind: keyBytes, s: s} }
	blob := func(s string) keyValue { return keyValue{kind: keyBytes, s: s, blob: true} }
	ladder := []keyValue{
		part(math.Inf(-1)), part(-1e300), whole(math.MinInt64), whole(-2), part(-1.5), whole(0),
		part(0.5), whole(1),
		whole(1 << 53), whole(1<<53 + 1), part(1<<53 + 2), whole(1<<60 - 1), part(1 << 60),
		whole(1<<60 + 1), whole(math.MaxInt64),
		part(1 << 63), part(1e300), part(math.Inf(1)), text(""), text("\x00"), text("\x00a"),
		text("a"), text("a\x00"), text("ab"),
		text("b"), blob(""), blob("\x00"), blob("\xff"),
	}
	for i := range ladder {
		enc := appendAny(nil, ladder[i])
		if i > 0 && bytes.Compare(appendAny(nil, ladder[i-1]), enc) >= 0 {
			t.Errorf("%+v does not come before %+v", ladder[i-1], ladder[i])
		}
		// a real with a whole value is decoded as the equal integer
		back, rest, ok := decodeAny(string(enc) + "x")
		if !ok || rest != "x" || !bytes.Equal(appendAny(nil, back), enc) {
			t.Errorf("%+v comes back as %+v, %q, %v", ladder[i], back, rest, ok)
		}
	}
}

// FuzzKeyset checks that the order of encodings is that of the values, column by column, and that
// they decode to the same values.
func FuzzKeyset(f *testing.F) {
	f.Add(int64(1), "a", int64(1), "b")
	f.Add(int64(-1), "a\x00", int64(1), "a")
	f.Add(int64(math.MinInt64), "", int64(math.MaxInt64), "\x00\x00")
	f.Add(int64(7), "\x00\x01", int64(7), "\x00\xff")
	k := newKeyset([]string{"s", "n"}, []keyKind{keyBytes, keyInteger})
	f.Fuzz(func(t *testing.T, n1 int64, s1 string, n2 int64, s2 string) {
		encode := func(n int64, s string) string {
			b := k.append(k.begin(nil), 0, keyValue{s: s})
			return string(k.append(b, 1, keyValue{n: n}))
		}
		a, b := encode(n1, s1), encode(n2, s2)
		want := strings.Compare(s1, s2)
		if want == 0 {
			want = compareInts(n1, n2)
		}
		if got := strings.Compare(a, b); got != want {
			t.Fatalf("(%q, %d) against (%q, %d): %d, want %d", s1, n1, s2, n2, got, want)
		}
		values, err := k.decode(a)
		if err != nil || values[0].s != s1 || values[1].n != n1 {
			t.Fatalf("(%q, %d) comes back as %+v, %v", s1, n1, values, err)
		}
	})
}

func compareInts(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// FuzzDecodeKey checks that decoding any input ends with values or an error.
func FuzzDecodeKey(f *testing.F) {
	k := newKeyset([]string{"a", "b", "c"}, []keyKind{keyAny, keyNumber, keyFloat})
	key := k.append(k.begin(nil), 0, keyValue{kind: keyBytes, s: "x"})
	key = k.append(k.append(key, 1, keyValue{s: "-1.5"}), 2, keyValue{f: 2})
	f.Add(string(key))
	f.Add("")
	f.Add(string(key[:7]))
	f.Fuzz(func(t *testing.T, s string) {
		values, err := k.decode(s)
		if err != nil {
			return
		}
		again := k.begin(nil)
		for i, v := range values {
			again = k.append(again, i, v)
		}
		if back, err := k.decode(string(again)); err != nil || len(back) != len(values) {
			t.Fatalf("%q decodes to %+v, which is encoded as %q: %v", s, values, again, err)
		}
	})
}

func TestKeysetTellsOrders(t *testing.T) {
	a := newKeyset([]string{"a", "b"}, []keyKind{keyInteger, keyInteger})
	b := newKeyset([]string{"b", "a"}, []keyKind{keyInteger, keyInteger})
	c := newKeyset([]string{"a", "b"}, []keyKind{keyInteger, keyBytes})
	key := string(a.append(a.append(a.begin(nil), 0, keyValue{n: 5}), 1, keyValue{n: -6}))
	if !a.fits(key) || b.fits(key) || c.fits(key) {
		t.Error("a key of one order is taken for one of another")
	}
	if got, want := a.show(key), "a 5, b -6"; got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
}
