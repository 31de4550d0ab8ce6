//penstock:pure

package framing

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// charset is the encoding of a file's characters.
type charset uint8

const (
	utf8Bytes charset = iota
	utf16LE
	utf16BE
	utf16Mark // UTF-16 with the byte order given by the byte order mark at the file's start
	latin1
	windows1252
)

// charsets are the values of the key `encoding`.
var charsets = map[string]charset{
	"utf-8": utf8Bytes, "utf-16le": utf16LE, "utf-16be": utf16BE, "utf-16": utf16Mark,
	"latin-1": latin1, "windows-1252": windows1252,
}

// wide reports whether the encoding is UTF-16, in which characters consist of two-byte units.
func (c charset) wide() bool { return c == utf16LE || c == utf16BE || c == utf16Mark }

// utf16Of returns the charset of a UTF-16 file that begins with head. UTF-16 without a byte order
// mark is big-endian (RFC 2781, 4.3).
func utf16Of(head []byte) charset {
	if bytes.HasPrefix(head, []byte{0xff, 0xfe}) {
		return utf16LE
	}
	return utf16BE
}

// between80And9F has the characters of windows-1252 that latin-1 does not have. 0 means that the
// byte is not a character.
var between80And9F = [32]rune{
	'€', 0, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', 0, 'Ž', 0,
	0, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', 0, 'ž', 'Ÿ',
}

// next returns the first character of data, which must not be empty, and its size in bytes. ok is
// false if the first size bytes are not a character.
func (c charset) next(data []byte) (r rune, size int, ok bool) {
	switch c {
	case latin1:
		return rune(data[0]), 1, true
	case windows1252:
		if b := data[0]; b >= 0x80 && b < 0xa0 {
			r = between80And9F[b-0x80]
			return r, 1, r != 0
		}
		return rune(data[0]), 1, true
	case utf8Bytes:
		r, size = utf8.DecodeRune(data)
		return r, size, r != utf8.RuneError || size > 1
	}
	if len(data) < 2 {
		return utf8.RuneError, 1, false
	}
	r = c.unit(data)
	if !utf16.IsSurrogate(r) {
		return r, 2, true
	}
	if len(data) >= 4 {
		if pair := utf16.DecodeRune(r, c.unit(data[2:])); pair != utf8.RuneError {
			return pair, 4, true
		}
	}
	return utf8.RuneError, 2, false
}

func (c charset) unit(data []byte) rune {
	if c == utf16LE {
		return rune(data[0]) | rune(data[1])<<8
	}
	return rune(data[1]) | rune(data[0])<<8
}

// bad determines how bytes that are not a character are handled.
type bad uint8

const (
	keepBad       bad = iota // invalid UTF-8 is kept; in other encodings invalid bytes are replaced
	replaceBad               // each such byte sequence is replaced by U+FFFD
	dropBad                  // such bytes are omitted
	deadLetterBad            // the record is dead-lettered
	failBad                  // the rest of the file is not read
)

// bads are the values of the key `decode_error`.
var bads = map[string]bad{"keep": keepBad, "replace": replaceBad, "drop": dropBad,
	"dead_letter": deadLetterBad, "fail": failBad}

// decode appends data to dst as UTF-8. Bytes that are not a character become U+FFFD or, if onBad is
// dropBad, are omitted. The result at is the offset in data of the first such bytes, or -1 if there
// are none.
func (c charset) decode(dst, data []byte, onBad bad) (out []byte, at int) {
	at = -1
	for i := 0; i < len(data); {
		if n := plain(c, data[i:]); n > 0 {
			dst = append(dst, data[i:i+n]...)
			i += n
			continue
		}
		r, size, ok := c.next(data[i:])
		if !ok && at < 0 {
			at = i
		}
		switch {
		case ok:
			dst = utf8.AppendRune(dst, r)
		case onBad != dropBad:
			dst = append(dst, "\uFFFD"...)
		}
		i += size
	}
	return dst, at
}

// plain returns the length of data's ASCII prefix, which is the same in UTF-8. It returns 0 in
// encodings with two-byte units.
func plain(c charset, data []byte) int {
	if c.wide() {
		return 0
	}
	for i, b := range data {
		if b >= 0x80 {
			return i
		}
	}
	return len(data)
}

// whole returns the length of data without an incomplete character at the end.
func (c charset) whole(data []byte) int {
	n := len(data)
	switch {
	case c == utf8Bytes:
		for back := 1; back <= min(n, utf8.UTFMax-1); back++ {
			if b := data[n-back]; utf8.RuneStart(b) {
				if !utf8.FullRune(data[n-back:]) {
					n -= back
				}
				break
			}
		}
	case c.wide():
		n -= n % 2
		if n >= 2 && c.unit(data[n-2:])>>10 == 0xd800>>10 {
			n -= 2
		}
	}
	return n
}

// mark returns the length of the UTF-16 byte order mark at the start of data. It returns 0 if there
// is none, or if c is not UTF-16.
func (c charset) mark(data []byte) int {
	if c.wide() && len(data) >= 2 && c.unit(data) == 0xfeff {
		return 2
	}
	return 0
}

// lineEnd returns the offset of the first line end in data[from:], counted from the start of data,
// or -1. data must begin with a whole character.
func (c charset) lineEnd(data []byte, from int) int {
	if !c.wide() {
		if i := bytes.IndexByte(data[from:], '\n'); i >= 0 {
			return from + i
		}
		return -1
	}
	low := 0
	if c != utf16LE {
		low = 1
	}
	for at := from; at+1 < len(data); {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i
		if at%2 == low && at-low+1 < len(data) && c.unit(data[at-low:]) == '\n' {
			return at - low
		}
		at++
	}
	return -1
}
