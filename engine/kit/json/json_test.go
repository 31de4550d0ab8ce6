package json_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

var kinds = map[stream.Kind]string{
	stream.Text: "text", stream.Number: "number", stream.Bool: "bool", stream.Null: "null",
	stream.JSON: "json",
}

// scanned lists the members of an object, or the error in it.
func scanned(text string) string {
	var s json.Scanner
	var out []string
	data := []byte("before" + text + "\nbehind")
	for s.Start(data, 6, len(text)); s.Next(); {
		cut := func(v json.Value) []byte {
			raw := data[v.Off : v.Off+v.Len]
			if v.Escaped {
				raw = json.AppendUnescaped(nil, raw)
			}
			return raw
		}
		out = append(out, fmt.Sprintf("%q %s %q", cut(s.Key), kinds[s.Value.Kind], cut(s.Value)))
	}
	if what, at := s.Wrong(); what != "" {
		return fmt.Sprintf("%d: %s", at-6, what)
	}
	return strings.Join(out, "; ")
}

func TestScanner(t *testing.T) {
	deep := func(n int) string {
		return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	for _, c := range []struct{ in, want string }{
		{`{}`, ``},
		{" \t{ } \r", ``},
		{"\ufeff{\"a\":1}", `"a" number "1"`},
		{`{"b":1,"a":-0.10e+5,"c":1E400,"d":9223372036854775808,"e":0}`,
			`"b" number "1"; "a" number "-0.10e+5"; "c" number "1E400"; "d" number "9223372036854775808"; "e" number "0"`},
		{`{"t":true,"f":false,"n":null}`, `"t" bool "true"; "f" bool "false"; "n" null ""`},
		{`{"s":"","u":"grün 😀","e":"a\"\\\/\b\f\n\r\t\u00e9\ud83d\uDE00"}`,
			`"s" text ""; "u" text "grün 😀"; "e" text "a\"\\/\b\f\n\r\té😀"`},
		{`{"a":[1, {"b" : [ ] , "c":{ } },"]}"] ,"d":{"x":[[]]}}`,
			`"a" json "[1, {\"b\" : [ ] , \"c\":{ } },\"]}\"]"; "d" json "{\"x\":[[]]}"`},
		{`{"\u0061\n":1}`, `"a\n" number "1"`},
		{`{"a":1,"a":2}`, `"a" number "1"; "a" number "2"`},
		{"{\t\"a\" : 1 , \"b\"\n:2 }", `"a" number "1"; "b" number "2"`},
		{`{"a":1,"a":x}`, "11: no JSON value begins with this character"},
		{`{"h":"\ud800"}`, `"h" json "\"\\ud800\""`},
		{`{"h":"\udc00\ud800x"}`, `"h" json "\"\\udc00\\ud800x\""`},
		{`{"n":"\u0000"}`, `"n" text "\x00"`},
		{`{"d":"` + "\x7f" + `"}`, `"d" text "\x7f"`},
		{deep(json.MaxDepth - 1),
			`"a" json "` + deep(json.MaxDepth - 1)[5:5+2*json.MaxDepth-2] + `"`},
		{deep(json.MaxDepth), "1004: more than 1000 levels of arrays and objects"},

		{``, "0: the input is empty, want a JSON object"},
		{`  `, "2: the input is empty, want a JSON object"},
		{`[1]`, "0: want a JSON object, {...}, but this is another value"},
		{`"x"`, "0: want a JSON object, {...}, but this is another value"},
		{`GET /`, "0: no JSON value begins with this character"},
		{`{`, "1: a key in double quotes is missing"},
		{`{a:1}`, "1: a key in double quotes is missing"},
		{`{'a':1}`, "1: a key in double quotes is missing"},
		{`{"a"}`, "4: a colon is missing after the key"},
		{`{"a":}`, "5: no JSON value begins with this character"},
		{`{"a":`, "5: a value is missing"},
		{`{"a":1`, "6: a comma or } is missing"},
		{`{"a":1,}`, "7: a key in double quotes is missing"},
		{`{"a":1 "b":2}`, "7: a comma or } is missing"},
		{`{"a":1}}`, "7: text after the object"},
		{`{"a":1}{"a":2}`, "7: text after the object"},
		{`{"a":01}`, "5: a number with leading zeros"},
		{`{"a":-}`, "5: a number without digits"},
		{`{"a":1.}`, "5: a number without digits after its point"},
		{`{"a":1e}`, "5: a number without digits in its exponent"},
		{`{"a":.5}`, "5: no JSON value begins with this character"},
		{`{"a":+1}`, "5: no JSON value begins with this character"},
		{`{"a":NaN}`, "5: no JSON value begins with this character"},
		{`{"a":nul}`, "5: no JSON value begins with this character"},
		{`{"a":truex}`, "9: a comma or } is missing"},
		{`{"a":"x`, "5: a string is not closed"},
		{`{"a":"x\"}`, "5: a string is not closed"},
		{`{"a":"x\`, "7: a string is not closed"},
		{"{\"a\":\"x\ty\"}", "7: a control character in a string, which must be escaped"},
		{"{\"a\":\"\xff\"}", "6: a byte that is not UTF-8"},
		{"{\"a\":\"\xed\xa0\x80\"}", "6: a byte that is not UTF-8"},
		{"{\"a\":\"\xc3", "6: a byte that is not UTF-8"},
		{`{"a":"\x"}`, "6: a backslash before a character that cannot be escaped"},
		{`{"a":"\u12g4"}`, `6: \u without four hexadecimal digits`},
		{`{"\ud800":1}`, "1: a key with one half of a surrogate pair"},
		{`{"a":[1,]}`, "8: no JSON value begins with this character"},
		{`{"a":[1}`, "7: a comma or closing bracket is missing"},
		{`{"a":{"b":1]}`, "11: a comma or closing bracket is missing"},
		{`{"a":{"b" 1}}`, "10: a colon is missing after the key"},
		{`{"a":{1:1}}`, "6: a key in double quotes is missing"},
		{`{"a":[01]}`, "6: a number with leading zeros"},
		{"{\"a\":[\"\xff\"]}", "7: a byte that is not UTF-8"},
		{`{"a":[`, "6: a value is missing"},
		{`{"a":[1`, "7: an array or object is not closed"},
	} {
		if got := scanned(c.in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
		checkNextIs(t, c.in)
	}
}

// checkNextIs checks that NextIs returns true for the key of each member that Next finds. For any
// other key, NextIs must return false and leave the scanner as it was.
func checkNextIs(t *testing.T, text string) {
	t.Helper()
	var s, guessed json.Scanner
	data := []byte("before" + text + "\nbehind")
	s.Start(data, 6, len(text))
	guessed.Start(data, 6, len(text))
	key := []byte(`"a"`)
	for s.Next() {
		key = data[s.Key.Off-1 : s.Key.Off+s.Key.Len+1]
		longer := append(bytes.Clone(key), '"')
		if guessed.NextIs(longer) || guessed.NextIs(key[1:]) {
			t.Errorf("%s: a member of another key than %s was found", text, key)
		}
		// The scanner accepts a byte order mark only in Next.
		if !guessed.NextIs(key) && (!strings.HasPrefix(text, "\ufeff") || !guessed.Next()) {
			t.Fatalf("%s: the member %s was not found", text, key)
		}
		if guessed.Value != s.Value {
			t.Errorf("%s: the value of %s is %+v, want %+v", text, key, guessed.Value, s.Value)
		}
	}
	if guessed.NextIs(key) || guessed.Next() {
		t.Errorf("%s: a member was found after the last one", text)
	}
	what, at := s.Wrong()
	if got, gotAt := guessed.Wrong(); got != what || gotAt != at {
		t.Errorf("%s: %s at %d, want %s at %d", text, got, gotAt-6, what, at-6)
	}
}

func TestLongString(t *testing.T) {
	long := strings.Repeat("grün 0123456789 ", 10<<20/17)
	if got := scanned(`{"a":"` + long + `"}`); got != fmt.Sprintf(`"a" text %q`, long) {
		t.Errorf("a string of %d bytes became one of %d", len(long), len(got))
	}
}

func TestMember(t *testing.T) {
	var s json.Scanner
	raw := []byte(`{"a":1,"b":{"c":[1]},"\u0061":"x\ny","d":null}`)
	for key, want := range map[string]any{"a": "x\ny", "b": map[string]any{"c": []any{1}},
		"d": nil} {
		v, ok := s.Member(raw, key)
		got, err := json.Decode(raw, v)
		if !ok || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v (%v, %v), want %#v", key, got, ok, err, want)
		}
	}
	if _, ok := s.Member(raw, "e"); ok {
		t.Error("a member that is not there was found")
	}
	if _, ok := s.Member([]byte("[1]"), "e"); ok {
		t.Error("a member of an array was found")
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]any{
		"1": 1, "-9223372036854775808": -1 << 63, "9223372036854775808": float64(1 << 63),
		"0.1": 0.1, "1e2": 100.0, "1e-400": 0.0,
	} {
		if got, err := json.Number([]byte(text)); err != nil || got != want {
			t.Errorf("Number(%s) = %v, %v; want %v", text, got, err, want)
		}
	}
	if v, err := json.Number([]byte("1e400")); err == nil {
		t.Errorf("1e400 is %v", v)
	}
}

func TestScanningAllocatesNothing(t *testing.T) {
	data := []byte(`{"a":1,"b":"text","c":[1,{"d":"\n"}],"e":{"f":null}}`)
	var s json.Scanner
	n := testing.AllocsPerRun(100, func() {
		for s.Start(data, 0, len(data)); s.Next(); {
		}
		s.Member(data, "e")
	})
	if n != 0 {
		t.Errorf("scanning allocates %v times", n)
	}
}

// FuzzScanner compares the scanner with the standard library. Both accept the same texts, except
// for invalid UTF-8, deep nesting, and keys with an unpaired surrogate.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1,"b":[1,2,{"c":null}],"d":"\ud83d\ude00"}`, `{"a":01}`, `{"a":"\ud800"}`,
		"{\"\xff\":1}",
		`{"a":-1.5e-7,"a":true}`, ` {"":""}x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) ||
			bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > json.MaxDepth {
			return
		}
		checkNextIs(t, string(text))
		var s json.Scanner
		got := map[string]any{}
		data := append([]byte("{"), text...)
		data = append(data, "\"\n}"...)
		halfKey := false
		for s.Start(data, 1, len(text)); s.Next(); {
			key := json.AppendUnescaped(nil, data[s.Key.Off:s.Key.Off+s.Key.Len])
			v, err := json.Decode(data, s.Value)
			if err != nil {
				return
			}
			got[string(key)] = v
		}
		what, at := s.Wrong()
		halfKey = strings.HasPrefix(what, "a key with one half")
		d := stdjson.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want map[string]any
		err := d.Decode(&want)
		valid := err == nil && stdjson.Valid(text) && utf8.Valid(text) && want != nil
		if valid != (what == "") && !halfKey {
			t.Fatalf("%q: %s at %d; the standard library says %v", text, what, at-1, err)
		}
		if what == "" && !same(got, want) {
			t.Errorf("%q is %#v, want %#v", text, got, want)
		}
	})
}

// same reports whether a result of this package equals that of the standard library, which has
// decoded numbers as text.
func same(got, want any) bool {
	switch w := want.(type) {
	case stdjson.Number:
		n, err := json.Number([]byte(w))
		return err == nil && got == n
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for k := range w {
			if !same(g[k], w[k]) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !same(g[i], w[i]) {
				return false
			}
		}
		return true
	}
	return got == want
}

// TestIsNumber compares IsNumber with encoding/json for all short texts.
func TestIsNumber(t *testing.T) {
	const alphabet = "-+.eE019x"
	var check func(text []byte)
	check = func(text []byte) {
		want := stdjson.Valid(text)
		if got := json.IsNumber(text); got != want {
			t.Errorf("IsNumber(%q) = %v, want %v", text, got, want)
		}
		if len(text) == 5 {
			return
		}
		for i := range len(alphabet) {
			check(append(text[:len(text):len(text)], alphabet[i]))
		}
	}
	check(nil)
}
