// Package ndjson writes records as JSON lines, for the sinks that send or store JSON.
//
// A parsed record becomes an object of its fields, in order: names and text escaped, numbers and nested JSON as they were
// written. A record that was not parsed becomes {"message":"..."}. The package owns nothing, keeps nothing between calls,
// and allocates nothing but what the destination lacks. It never reorders fields, and never reads a number.
package ndjson

import (
	"unicode/utf8"

	"github.com/penstock-io/penstock"
)

// Append appends each kept record of b and a line end to dst. b must be parsed or be made of plain records; it is only
// read, but for [penstock.Batch.Split], which a batch whose records nobody has asked for yet gets: the caller must own
// such a batch, or hold it alone. JSON and Number fields are taken as they are: who fills them vouches that they are JSON.
// They may hold line ends only where JSON allows white space; those become spaces, so that one record stays one line.
func Append(dst []byte, b *penstock.Batch) []byte {
	b.Split()
	for i := range b.Records {
		if b.Records[i].State == penstock.Kept {
			dst = append(AppendRecord(dst, b, i), '\n')
		}
	}
	return dst
}

// AppendRecord appends record i of b, whose Records are filled, without a line end.
func AppendRecord(dst []byte, b *penstock.Batch, i int) []byte {
	r := &b.Records[i]
	if r.NumFields == 0 {
		dst = append(dst, `{"message":`...)
		return append(AppendString(dst, b.Text(i)), '}')
	}
	dst = append(dst, '{')
	for n, f := range b.Fields[r.Field : r.Field+r.NumFields] {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, b.Names[f.Name]), ':')
		dst = AppendValue(dst, f.Kind, b.Value(f))
	}
	return append(dst, '}')
}

// AppendValue appends a field's value, as it was written, in the form of its kind. An empty Number, Bool or JSON is null,
// because an empty text is none of them.
func AppendValue(dst []byte, kind penstock.Kind, value []byte) []byte {
	switch {
	case kind == penstock.Text:
		return AppendString(dst, value)
	case kind == penstock.Null || len(value) == 0:
		return append(dst, "null"...)
	}
	from := len(dst)
	if utf8.Valid(value) {
		dst = append(dst, value...)
	} else {
		for _, r := range string(value) { // JSON readers let bad bytes in strings pass
			dst = utf8.AppendRune(dst, r)
		}
	}
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// escaped marks the ASCII bytes that may not stand in a JSON string as they are: control characters, the quote and the
// backslash; and DEL, which terminals obey.
var escaped = func() (t [256]bool) {
	for c := range byte(' ') {
		t[c] = true
	}
	t['"'], t['\\'], t[0x7F] = true, true, true
	for c := utf8.RuneSelf; c < len(t); c++ {
		t[c] = true // looked at more closely
	}
	return t
}()

// AppendString appends s as a JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD, one for each; control
// characters are escaped, and U+2028 and U+2029 too, which end a line for some readers. All else stands as it is.
func AppendString[T []byte | string](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if !escaped[c] {
			i++
			continue
		}
		size, same := 1, false
		if c >= utf8.RuneSelf {
			size, same = runeAt(s, i)
		}
		if same {
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch {
		case c < utf8.RuneSelf:
			dst = appendEscape(dst, c)
		case size == 1:
			dst = append(dst, "\uFFFD"...)
		default:
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[s[i+2]&0xF])
		}
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// runeAt returns the length of the rune at i, 1 if it is none, and whether it may stand as it is.
func runeAt[T []byte | string](s T, i int) (size int, same bool) {
	var buf [utf8.UTFMax]byte
	n := copy(buf[:], s[i:min(i+utf8.UTFMax, len(s))])
	r, size := utf8.DecodeRune(buf[:n])
	if r == utf8.RuneError && size == 1 {
		return 1, false
	}
	return size, r != '\u2028' && r != '\u2029'
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}
