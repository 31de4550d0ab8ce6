//penstock:pure

package framing

import (
	"bytes"

	"github.com/penstock-io/penstock/engine/kit/lines"
)

// delimited ends a record after each delimiter.
type delimited string

// Exact implements lines.Framing.
func (d delimited) Exact() bool { return d == "\n" || d == "\r\n" }

// Next implements lines.Framing.
func (d delimited) Next(data []byte, last bool) lines.Frame {
	if i := bytes.Index(data, []byte(d)); i >= 0 {
		return lines.Frame{Size: i + len(d), To: i}
	}
	if last {
		return lines.Frame{Size: len(data), To: len(data)}
	}
	return lines.Frame{}
}

// delimitedLine ends a record after LF or CRLF.
type delimitedLine struct{}

// Exact implements lines.Framing.
func (delimitedLine) Exact() bool { return true }

// Next implements lines.Framing.
func (delimitedLine) Next(data []byte, last bool) lines.Frame {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return frameOf(data, i+1)
	}
	if last {
		return lines.Frame{Size: len(data), To: len(data)}
	}
	return lines.Frame{}
}

// csv ends a record at a line end that is not inside quotes. A quote inside a quoted field is
// doubled (RFC 4180). csv treats a doubled quote as the end of one quoted part and the start of
// another, which has the same effect. Outside of quotes, a quote after an ASCII letter or digit is
// text. An example is the first quote of `5" disk,"a, b"`.
type csv struct{}

func isWord(c byte) bool { return c-'0' <= 9 || c|0x20-'a' <= 'z'-'a' }

// Exact implements lines.Framing.
func (csv) Exact() bool { return true }

// Next implements lines.Framing.
func (csv) Next(data []byte, last bool) lines.Frame {
	quoted := false
	for at := 0; at < len(data); at++ {
		i := bytes.IndexAny(data[at:], "\"\n")
		if i < 0 {
			break
		}
		at += i
		switch {
		case data[at] == '"':
			quoted = !quoted && (at == 0 || !isWord(data[at-1]))
		case !quoted:
			return frameOf(data, at+1)
		}
	}
	if last {
		return frameOf(data, len(data))
	}
	return lines.Frame{}
}

// values finds consecutive JSON values, or the objects of an array. An array or object ends where
// its brackets are balanced, so it need not be valid JSON. The parser will report an invalid one.
type values struct{}

// Exact implements lines.Framing.
func (values) Exact() bool { return false }

// Next implements lines.Framing. A frame includes white space, commas and array brackets before its
// record, but never those after it. So the end of the frame does not depend on the number of bytes
// that are available after the record.
func (values) Next(data []byte, last bool) lines.Frame {
	from := punctuation(data)
	if from == len(data) {
		return lines.Frame{Size: from, None: true}
	}
	to := value(data, from)
	switch {
	case to < 0 && last:
		to = len(data)
	case to < 0, to == len(data) && !last && !closed(data[from]):
		return lines.Frame{}
	}
	return lines.Frame{Size: to, From: from, To: to}
}

// punctuation returns the number of bytes before the next value: white space, commas, and the
// brackets of an array that is empty or begins with an object. The opening bracket of any other
// array is the start of a record.
func punctuation(data []byte) int {
	at := 0
	for ; at < len(data); at++ {
		switch data[at] {
		case ' ', '\t', '\r', '\n', ',', ']':
		case '[':
			rest := bytes.TrimLeft(data[at+1:], " \t\r\n")
			if len(rest) == 0 || rest[0] != '{' && rest[0] != ']' {
				return at
			}
		default:
			return at
		}
	}
	return at
}

// closed reports whether a value that begins with c has an explicit end: a quote, brace or bracket.
// A number, for example, has none.
func closed(c byte) bool { return c == '{' || c == '[' || c == '"' }

// value returns the end of the value that begins at data[from]. It returns -1 if a string, an array
// or an object has no end in data.
func value(data []byte, from int) int {
	switch data[from] {
	case '"':
		return stringEnd(data, from)
	case '{', '[':
	default: // a number, true, false, null
		if i := bytes.IndexAny(data[from:], " \t\r\n,[]{}\""); i > 0 {
			return from + i
		} else if i == 0 {
			return from + 1 // a closing bracket without an opening one
		}
		return len(data)
	}
	depth := 0
	for at := from; at < len(data); at++ {
		switch data[at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		case '"':
			end := stringEnd(data, at)
			if end < 0 {
				return -1
			}
			at = end - 1
		}
	}
	return -1
}

// stringEnd returns the end of the string that begins at data[from], or -1 if its closing quote is
// missing.
func stringEnd(data []byte, from int) int {
	for at := from + 1; at < len(data); at++ {
		i := bytes.IndexAny(data[at:], `"\`)
		if i < 0 {
			return -1
		}
		at += i
		if data[at] == '"' {
			return at + 1
		}
		at++
	}
	return -1
}
