//penstock:pure

package postgres

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// The binary format of COPY (https://www.postgresql.org/docs/current/sql-copy.html, "Binary
// Format"). The server parses it in half the time of text. It is used if the types of all columns
// can be encoded here.
var (
	binaryHeader  = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	binaryTrailer = []byte{0xFF, 0xFF}
)

// isBinary reports whether rows of these columns can be encoded in the binary format.
func isBinary(columns []sqltable.Column) bool {
	for _, c := range columns {
		if c.Type == sqltable.Other {
			return false
		}
	}
	return true
}

// appendBinary appends a cell, preceded by its length.
func appendBinary(dst []byte, c *sqltable.Column, cell []byte) []byte {
	if cell == nil {
		return append(dst, 0xFF, 0xFF, 0xFF, 0xFF) // NULL has length -1
	}
	switch c.Type {
	case sqltable.Integer:
		n, _ := strconv.ParseInt(string(cell), 10, 64) // sqltable has checked that it is one
		return binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), uint64(n))
	case sqltable.Float:
		f, _ := strconv.ParseFloat(string(cell), 64)
		return binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), math.Float64bits(f))
	case sqltable.Bool:
		if cell[0] == 't' {
			return append(dst, 0, 0, 0, 1, 1)
		}
		return append(dst, 0, 0, 0, 1, 0)
	case sqltable.Number:
		at := len(dst)
		dst = appendNumeric(append(dst, 0, 0, 0, 0), cell)
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		return dst
	case sqltable.JSON:
		if c.Decl == "jsonb" {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(cell)+1))
			return append(append(dst, 1), cell...) // 1 is the version of the jsonb format
		}
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(cell))), cell...)
}

// numericBase is the number of decimal digits in one base-10000 digit of PostgreSQL's type
// numeric.
const numericBase = 4

// appendNumeric appends a number in the format of the server's numeric_recv: the number of
// base-10000 digits, the weight of the first one, the sign, the number of decimal digits after the
// point, and the digits. Package sqltable has checked that text is a number or NaN.
func appendNumeric(dst, text []byte) []byte {
	if text[0] == 'N' {
		return appendWords(dst, 0, 0, 0xC000, 0)
	}
	sign := uint16(0)
	if text[0] == '-' {
		sign, text = 0x4000, text[1:]
	}
	exponent := 0
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(string(text[i+1:]))
		text = text[:i]
	}
	point := bytes.IndexByte(text, '.') // number of digits before the point
	if point < 0 {
		point = len(text)
	}
	digit := func(i int) byte { // digit i, not counting the point
		if i >= point {
			i++
		}
		return text[i] - '0'
	}
	n := len(text)
	if point < n {
		n--
	}
	scale := max(0, n-point-exponent)
	first := 0
	for first < n && digit(first) == 0 {
		first++
	}
	for n > first && digit(n-1) == 0 {
		n--
	}
	if first == n {
		return appendWords(dst, 0, 0, 0, uint16(scale))
	}
	// decimal digits before the point, counted from the first nonzero one; may be negative
	before := point + exponent - first
	weight := (before - 1) >> 2 // floor of the division by numericBase
	lead := before - numericBase*weight
	count := 1 + max(0, (n-first-lead+numericBase-1)/numericBase)
	dst = appendWords(dst, uint16(count), uint16(int16(weight)), sign, uint16(scale))
	for k, i := 0, first; k < count; k++ {
		width := numericBase
		if k == 0 {
			width = lead
		}
		word := uint16(0)
		for range width {
			word *= 10
			if i < n {
				word += uint16(digit(i))
			}
			i++
		}
		dst = appendWords(dst, word)
	}
	return dst
}

func appendWords(dst []byte, words ...uint16) []byte {
	for _, w := range words {
		dst = binary.BigEndian.AppendUint16(dst, w)
	}
	return dst
}
