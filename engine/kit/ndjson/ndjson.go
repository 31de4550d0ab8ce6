// Package ndjson writes records as JSON lines. Sinks that send or store JSON use it.
//
// A parsed record becomes an object with its fields in order. Names and texts are escaped. Numbers
// and nested JSON are copied, but line ends become spaces, and invalid bytes become U+FFFD. A
// record that was not parsed becomes {"message":"..."}. The package keeps nothing between calls.
// Except to split a batch, it allocates only to grow the destination.
package ndjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

// Append appends each record of b with the state [stream.Kept] as one line to dst.
//
// If the records of b have been split, Append does not change b. Otherwise Append splits them
// ([stream.Batch.Split]), and no other goroutine may use b during the call.
//
// Fields of the kinds JSON, Number and Bool are copied without a check, so they must be valid JSON.
// JSON allows line ends as white space. Append replaces them by spaces, so that each record is one
// line.
func Append(dst []byte, b *stream.Batch) []byte {
	b.Split()
	var k keys
	for i := range b.Records {
		if b.Records[i].State == stream.Kept {
			dst = append(k.appendRecord(dst, b, i), '\n')
		}
	}
	return dst
}

// AppendRecord appends record i of b as JSON without a line end. The caller must have called
// b.Split.
func AppendRecord(dst []byte, b *stream.Batch, i int) []byte {
	return (*keys)(nil).appendRecord(dst, b, i)
}

// AppendValue appends the value of a field as JSON. An empty Number, Bool or JSON is appended as
// null, because an empty text is not valid JSON.
func AppendValue(dst []byte, kind stream.Kind, value []byte) []byte {
	switch {
	case kind == stream.Text:
		return AppendString(dst, value)
	case kind == stream.Null || len(value) == 0:
		return append(dst, "null"...)
	}
	from := len(dst)
	if kind != stream.JSON {
		if dst = append(dst, value...); plain(dst[from:]) == len(value) {
			return dst
		}
		dst = dst[:from]
	}
	if utf8.Valid(value) {
		dst = append(dst, value...)
	} else {
		for _, r := range string(value) { // strings in the JSON may have invalid bytes
			dst = utf8.AppendRune(dst, r)
		}
	}
	for _, c := range []byte("\n\r") {
		for rest := dst[from:]; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string with quotes. Each byte that is not valid UTF-8 becomes
// U+FFFD. Quotes, backslashes and ASCII control characters are escaped, including DEL, which
// terminals interpret. U+2028 and U+2029 are also escaped, because some parsers treat them as line
// ends. All other characters stay unchanged.
func AppendString[T []byte | string](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := len(dst)
	dst = append(dst, s...)
	if n := plain(dst[from:]); n < len(s) {
		dst = appendEscaped(dst[:from+n], s[n:])
	}
	return append(dst, '"')
}

// appendEscaped appends s with escapes where they are necessary.
func appendEscaped[T []byte | string](dst []byte, s T) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		size := 1
		switch {
		case c >= utf8.RuneSelf:
			var same bool
			if size, same = runeAt(s, i); same {
				dst = append(dst, s[i:i+size]...)
			} else if size == 1 {
				dst = append(dst, "\uFFFD"...)
			} else {
				dst = append(dst, `\u202`...)
				dst = append(dst, hexDigits[s[i+2]&0xF])
			}
		case c < ' ' || c == '"' || c == '\\' || c == 0x7F:
			dst = appendEscape(dst, c)
		default:
			from := len(dst)
			// Copy only 64 bytes at a time. Copying the whole rest of s after each escape would
			// take quadratic time.
			dst = append(dst, s[i:min(i+64, len(s))]...)
			size = plain(dst[from:])
			dst = dst[:from+size]
		}
		i += size
	}
	return dst
}

// plain returns the length of the longest prefix of s that is ASCII and needs no escapes.
func plain(s []byte) int {
	i := 0
	for ; i+word <= len(s); i += word {
		if hit := special(binary.LittleEndian.Uint64(s[i:])); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	if i < len(s) && len(s) >= word { // check the last word, which overlaps bytes known to be plain
		return len(s) - word + plain(s[len(s)-word:])
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7F {
			break
		}
	}
	return i
}

// runeAt returns the length of the character at index i, or 1 for an invalid byte. same reports
// whether the character can be copied unchanged.
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
