//penstock:pure

// Package json finds the members of a JSON object, and their kinds, without decoding them. Numbers,
// nested values and the order of keys stay unchanged.
//
// It is strict (RFC 8259): numbers have no leading zeros, strings have no raw control characters,
// the text is UTF-8, and only white space follows the object. Arrays and objects are nested at most
// [MaxDepth] levels deep. Only decoding allocates memory. Package ndjson writes JSON.
package json

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

// MaxDepth is the maximum nesting of arrays and objects.
const MaxDepth = 1000

// Value is the range and kind of one value in the scanned bytes.
type Value struct {
	// Kind is the kind of the value. It is Text for a string, and the range of the value then
	// excludes the quotes. It is JSON for an array or object, otherwise Number, Bool or Null. A
	// string with an unpaired surrogate is an exception, because it cannot be written in UTF-8: its
	// kind is JSON, and its range includes the quotes.
	Kind stream.Kind
	// Escaped means that a Text has escapes. [AppendUnescaped] decodes them.
	Escaped  bool
	Off, Len int // Len is 0 for null
}

// Scanner finds the members of an object, one after another. The zero value is ready for Start, and
// a Scanner can be used for many objects.
type Scanner struct {
	Key   Value // key of the current member; its kind is Text
	Value Value

	data     []byte
	pos, end int
	begun    bool
	what     string // the error
	at       int
	open     [MaxDepth/64 + 1]uint64 // one bit for each open level: 1 for an object, 0 for an array
}

// Start begins to scan the object data[off:off+n]. All ranges of values are relative to data, which
// the scanner does not change.
func (s *Scanner) Start(data []byte, off, n int) {
	s.data, s.pos, s.end, s.begun = data, off, off+n, false
	s.what = ""
}

// Next advances to the next member. It returns false at the end of the object or after an error.
// Wrong returns the error.
func (s *Scanner) Next() bool {
	i := s.space(s.pos)
	if !s.begun {
		s.begun = true
		// skip a byte order mark, which some editors write
		if i == s.pos && i+3 <= s.end && string(s.data[i:i+3]) == "\uFEFF" {
			i = s.space(i + 3)
		}
		if i == s.end {
			return s.fail("the input is empty, want a JSON object", i)
		}
		if s.data[i] != '{' {
			return s.notObject(i)
		}
		if i = s.space(i + 1); i < s.end && s.data[i] == '}' {
			return s.finish(i + 1)
		}
	} else {
		if i < s.end && s.data[i] == '}' {
			return s.finish(i + 1)
		}
		if i == s.end || s.data[i] != ',' {
			return s.fail("a comma or } is missing", i)
		}
		i = s.space(i + 1)
	}
	if i = s.member(i, &s.Key); i < 0 {
		return false
	}
	if s.Key.Kind != stream.Text {
		return s.fail("a key with one half of a surrogate pair", s.Key.Off)
	}
	s.pos = s.value(i, &s.Value)
	return s.pos >= 0
}

// NextIs is like Next, but faster, for a caller that expects a certain key. The argument key is
// this key with its quotes. If the next member has it, NextIs sets Value, but not Key, and returns
// true. If it returns false, it has not advanced, and the caller must call Next.
func (s *Scanner) NextIs(key []byte) bool {
	before := byte('{')
	if s.begun {
		before = ','
	}
	i := s.space(s.pos)
	if i == s.end || s.data[i] != before {
		return false
	}
	i = s.space(i + 1)
	end := i + len(key)
	if end > s.end || string(s.data[i:end]) != string(key) {
		return false
	}
	if i = s.space(end); i == s.end || s.data[i] != ':' {
		return false
	}
	if i = s.value(s.space(i+1), &s.Value); i < 0 {
		return false // Next returns the error
	}
	s.begun, s.pos = true, i
	return true
}

// Wrong returns the error that made Next return false, and its offset in data. The error is "" if
// the object has ended without an error.
func (s *Scanner) Wrong() (what string, at int) { return s.what, s.at }

func (s *Scanner) fail(what string, at int) bool {
	s.what, s.at = what, at
	return false
}

// failed is like fail, but returns -1. It is for functions that return an offset.
func (s *Scanner) failed(what string, at int) int {
	s.fail(what, at)
	return -1
}

func (s *Scanner) finish(i int) bool {
	s.pos = i
	if i = s.space(i); i < s.end {
		return s.fail("text after the object", i)
	}
	return false
}

func (s *Scanner) notObject(i int) bool {
	if s.value(i, &s.Value) < 0 {
		return false
	}
	return s.fail("want a JSON object, {...}, but this is another value", i)
}

// space returns the offset of the first byte at or after i that is not white space, or the end.
func (s *Scanner) space(i int) int {
	for i < s.end {
		if c := s.data[i]; c > ' ' || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return i
		}
		i++
	}
	return i
}

// value scans the value at i. It returns its end, or -1 after an error.
func (s *Scanner) value(i int, v *Value) int {
	if i >= s.end {
		return s.failed("a value is missing", s.end)
	}
	switch c := s.data[i]; {
	case c == '"':
		return s.text(i, v)
	case c == '{' || c == '[':
		end := s.nested(i)
		*v = Value{Kind: stream.JSON, Off: i, Len: end - i}
		return end
	case c == '-' || c-'0' <= 9:
		end := s.number(i)
		*v = Value{Kind: stream.Number, Off: i, Len: end - i}
		return end
	case s.word(i, "true"):
		*v = Value{Kind: stream.Bool, Off: i, Len: 4}
		return i + 4
	case s.word(i, "false"):
		*v = Value{Kind: stream.Bool, Off: i, Len: 5}
		return i + 5
	case s.word(i, "null"):
		*v = Value{Kind: stream.Null, Off: i}
		return i + 4
	}
	return s.failed("no JSON value begins with this character", i)
}

func (s *Scanner) word(i int, w string) bool {
	return i+len(w) <= s.end && string(s.data[i:i+len(w)]) == w
}

// number scans a number: -?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?
func (s *Scanner) number(i int) int {
	start := i
	if s.data[i] == '-' {
		i++
	}
	from := i
	if i = s.digits(i); i == from {
		return s.failed("a number without digits", start)
	}
	if s.data[from] == '0' && i > from+1 {
		return s.failed("a number with leading zeros", start)
	}
	if i < s.end && s.data[i] == '.' {
		from = i + 1
		if i = s.digits(from); i == from {
			return s.failed("a number without digits after its point", start)
		}
	}
	if i < s.end && s.data[i]|0x20 == 'e' {
		i++
		if i < s.end && (s.data[i] == '+' || s.data[i] == '-') {
			i++
		}
		from = i
		if i = s.digits(from); i == from {
			return s.failed("a number without digits in its exponent", start)
		}
	}
	return i
}

// IsNumber reports whether text is a number in the syntax of JSON.
func IsNumber(text []byte) bool {
	s := Scanner{data: text, end: len(text)}
	return len(text) > 0 && s.number(0) == len(text)
}

func (s *Scanner) digits(i int) int {
	for i < s.end && s.data[i]-'0' <= 9 {
		i++
	}
	return i
}

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// text scans the string with its opening quote at i. It returns the offset after its closing quote,
// or -1 after an error.
func (s *Scanner) text(i int, v *Value) int {
	data, open := s.data, i
	escaped, half := false, false
	for i++; ; {
		if i+8 <= len(data) {
			w := binary.LittleEndian.Uint64(data[i:])
			quote, slash := w^(ones*'"'), w^(ones*'\\')
			// See functions control and quoting in package ndjson.
			hit := (w | (w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
			if hit == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hit) / 8
		}
		if i >= s.end {
			return s.failed("a string is not closed", open)
		}
		switch c := data[i]; {
		case c == '"':
			*v = Value{Kind: stream.Text, Escaped: escaped, Off: open + 1, Len: i - open - 1}
			if half {
				*v = Value{Kind: stream.JSON, Off: open, Len: i + 1 - open}
			}
			return i + 1
		case c == '\\':
			n, alone := s.escape(i)
			if n < 0 {
				return n
			}
			escaped, half = true, half || alone
			i += n
		case c < ' ':
			return s.failed("a control character in a string, which must be escaped", i)
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(data[i:s.end])
			if r == utf8.RuneError && n == 1 {
				return s.failed("a byte that is not UTF-8", i)
			}
			i += n
		}
	}
}

// escape checks the escape sequence at i, and returns its length in bytes, or -1 after an error.
// The two escapes of a surrogate pair count as one. alone reports whether the escape is an unpaired
// surrogate.
func (s *Scanner) escape(i int) (n int, alone bool) {
	if i+1 >= s.end {
		return s.failed("a string is not closed", i), false
	}
	switch s.data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, false
	case 'u':
		u := unit(s.data[i:s.end])
		if u < 0 {
			return s.failed(`\u without four hexadecimal digits`, i), false
		}
		if u < 0xD800 || u > 0xDFFF {
			return 6, false
		}
		if low := unit(s.data[i+6 : s.end]); u < 0xDC00 && low >= 0xDC00 && low <= 0xDFFF {
			return 12, false
		}
		return 6, true
	}
	return s.failed("a backslash before a character that cannot be escaped", i), false
}

// unit returns the value of an escape such as \u1234 at the start of b, or -1 if there is none.
func unit(b []byte) int {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	u := 0
	for _, c := range b[2:6] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		u = u<<4 | int(c)
	}
	return u
}

// nested checks the array or object at i. It returns the offset after its end, or -1 after an
// error. It is not recursive: for each open level, one bit in s.open tells whether it is an object.
func (s *Scanner) nested(i int) int {
	var v Value
	depth := 0
	for {
		// A value begins at i.
		c := byte(0)
		if i < s.end {
			c = s.data[i]
		}
		if c == '{' || c == '[' {
			if depth == MaxDepth-1 {
				return s.failed("more than 1000 levels of arrays and objects", i)
			}
			s.push(depth, c == '{')
			depth++
			i = s.space(i + 1)
			if i < s.end && s.data[i] == c+2 { // the codes of ] and } are those of [ and { plus 2
				i++
				depth--
			} else if c == '{' {
				if i = s.member(i, &v); i < 0 {
					return i
				}
				continue
			} else {
				continue
			}
		} else if i = s.value(i, &v); i < 0 {
			return i
		}
		// A value has just ended.
		for {
			if depth == 0 {
				return i
			}
			object := s.isObject(depth - 1)
			i = s.space(i)
			switch {
			case i == s.end:
				return s.failed("an array or object is not closed", i)
			case s.data[i] == '}' && object, s.data[i] == ']' && !object:
				i++
				depth--
				continue
			case s.data[i] != ',':
				return s.failed("a comma or closing bracket is missing", i)
			}
			i = s.space(i + 1)
			break
		}
		if s.isObject(depth - 1) {
			if i = s.member(i, &v); i < 0 {
				return i
			}
		}
	}
}

// member scans the key at i. It returns the start of its value, or -1 after an error.
func (s *Scanner) member(i int, key *Value) int {
	if i >= s.end || s.data[i] != '"' {
		return s.failed("a key in double quotes is missing", i)
	}
	if i = s.text(i, key); i < 0 {
		return i
	}
	if i = s.space(i); i == s.end || s.data[i] != ':' {
		return s.failed("a colon is missing after the key", i)
	}
	return s.space(i + 1)
}

func (s *Scanner) push(level int, object bool) {
	bit := uint64(1) << (level % 64)
	if object {
		s.open[level/64] |= bit
	} else {
		s.open[level/64] &^= bit
	}
}

func (s *Scanner) isObject(level int) bool { return s.open[level/64]>>(level%64)&1 == 1 }
