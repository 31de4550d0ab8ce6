//penstock:pure

package sqltable

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/penstock-io/penstock/stream"
)

// isInteger reports whether text is a 64-bit integer in decimal digits.
func isInteger(text []byte) bool {
	whole := bytes.TrimPrefix(text, []byte("-"))
	if n := len(whole); n == 0 || n > 19 || digits(whole) < n {
		return false
	} else if n < 19 {
		return true
	}
	_, err := strconv.ParseInt(string(text), 10, 64)
	return err == nil
}

// isNumber reports whether text is a JSON number (RFC 8259, section 6). Unlike in JSON, leading
// zeros are allowed, because parsers may extract such numbers from text. If limit is not 0, the
// number must have at most limit digits on each side of the point when written without an exponent.
func isNumber(text []byte, limit int) bool {
	rest := bytes.TrimPrefix(text, []byte("-"))
	whole := digits(rest)
	rest = rest[whole:]
	fraction := 0
	if len(rest) > 0 && rest[0] == '.' {
		if fraction = digits(rest[1:]); fraction == 0 {
			return false
		}
		rest = rest[1+fraction:]
	}
	exponent := 0
	if len(rest) > 0 && rest[0]|0x20 == 'e' {
		rest = rest[1:]
		sign := 1
		if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
			if rest[0] == '-' {
				sign = -1
			}
			rest = rest[1:]
		}
		n := digits(rest)
		if n == 0 || n > 9 && limit > 0 {
			return false
		}
		for _, c := range rest[:min(n, 9)] {
			exponent = exponent*10 + int(c-'0')
		}
		exponent *= sign
		rest = rest[n:]
	}
	return whole > 0 && len(rest) == 0 &&
		(limit == 0 || whole+exponent <= limit && fraction-exponent <= limit)
}

func digits(text []byte) (n int) {
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// HexBytes decodes the cell of a column of type [Bytes] that begins with \x and has two hexadecimal
// digits for each byte. ok is false for any other cell, which is stored as its own bytes.
func HexBytes(cell []byte) (raw []byte, ok bool) {
	digits, ok := bytes.CutPrefix(cell, []byte(`\x`))
	if !ok {
		return nil, false
	}
	raw, err := hex.AppendDecode([]byte{}, digits)
	return raw, err == nil
}

// appendBits appends the cell of a column of type [Bits] in the form that HexBytes decodes. It
// reports false if the value does not fit.
func appendBits(dst, value []byte) ([]byte, bool) {
	if _, ok := HexBytes(value); ok {
		return append(dst, value...), true
	}
	text := string(value)
	switch text {
	case "true":
		text = "1"
	case "false":
		text = "0"
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return fmt.Appendf(dst, `\x%016x`, n), err == nil
}

// fits reports whether a column of type t can store a non-null value.
func (d *Dialect) fits(t Type, kind stream.Kind, value []byte) bool {
	scalar := kind == stream.Number || kind == stream.Text
	switch t {
	case Integer:
		return scalar && isInteger(value)
	case Number:
		return scalar && (isNumber(value, d.NumberLimit) || d.NotFinite && string(value) == "NaN")
	case Float:
		if !scalar || !isNumber(value, 0) {
			return scalar && d.NotFinite && isNotFinite(string(value))
		}
		_, err := strconv.ParseFloat(string(value), 64)
		return err == nil
	case Bits:
		_, ok := appendBits(nil, value)
		return ok && kind != stream.JSON
	case Bool:
		if d.BoolIsByte && scalar && isInteger(value) {
			_, err := strconv.ParseInt(string(value), 10, 8)
			return err == nil
		}
		return kind == stream.Bool ||
			kind == stream.Text && (string(value) == "true" || string(value) == "false")
	}
	return true
}

// isNotFinite reports whether text is NaN or an infinity. JSON has no such numbers.
func isNotFinite(text string) bool {
	return text == "NaN" || text == "Infinity" || text == "-Infinity"
}
