//penstock:pure

package table

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// infinity and nan are special values of PostgreSQL's numeric. NaN is greater than all other
// values.
const (
	infinity = "Infinity"
	nan      = "NaN"
)

// The first byte of an encoded number.
const (
	numMinusInfinity = 0x10
	numNegative      = 0x20
	numZero          = 0x30
	numPositive      = 0x40
	numInfinity      = 0x50
	numNaN           = 0x60
)

// specialNumbers has the numbers that are encoded as a single byte.
var specialNumbers = map[byte]string{numZero: "0", numInfinity: infinity,
	numMinusInfinity: "-" + infinity, numNaN: nan}

// appendNumber encodes a decimal number so that the byte order of encodings is the order of the
// values. Equal values such as 1.10 and 1.1 have equal encodings. text consists of digits with an
// optional sign, point and exponent, or is Infinity, -Infinity or NaN.
//
// An encoding consists of these parts:
//
//   - a byte for the sign, or for zero, an infinity or NaN, which have no further parts
//   - the number of digits before the point (4 bytes)
//   - the digits without leading and trailing zeros, each plus 1
//   - an end byte less than every digit
//
// For a negative number, all bytes after the first are complemented, so that a larger absolute
// value sorts first.
func appendNumber(dst []byte, text string) []byte {
	switch text {
	case nan:
		return append(dst, numNaN)
	case infinity:
		return append(dst, numInfinity)
	case "-" + infinity:
		return append(dst, numMinusInfinity)
	}
	text, negative := strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(strings.TrimPrefix(text[i+1:], "+"))
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + fraction
	point := len(whole) + exponent
	significant := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(significant)
	significant = strings.TrimRight(significant, "0")
	if significant == "" {
		return append(dst, numZero)
	}
	flip, first, biased := byte(0), byte(numPositive), uint32(int32(point))^1<<31
	if negative {
		flip, first, biased = 0xFF, numNegative, ^biased
	}
	dst = binary.BigEndian.AppendUint32(append(dst, first), biased)
	for i := range len(significant) {
		dst = append(dst, (significant[i]-'0'+1)^flip)
	}
	return append(dst, flip)
}

// cutNumber decodes the number at the start of s. It returns its digits, without an exponent, and
// the rest of s.
func cutNumber(s string) (digits, rest string, ok bool) {
	if s == "" {
		return "", s, false
	}
	if special := specialNumbers[s[0]]; special != "" {
		return special, s[1:], true
	}
	if s[0] != numPositive && s[0] != numNegative || len(s) < 6 {
		return "", s, false
	}
	flip, biased := byte(0), binary.BigEndian.Uint32([]byte(s[1:5]))
	if s[0] == numNegative {
		flip, biased = 0xFF, ^biased
	}
	end := strings.IndexByte(s[5:], flip)
	if end <= 0 {
		return "", s, false
	}
	out := make([]byte, end)
	for i := range out {
		if out[i] = s[5+i] ^ flip - 1 + '0'; out[i] < '0' || out[i] > '9' {
			return "", s, false
		}
	}
	point := int(int32(biased ^ 1<<31))
	if point > maxKeyBytes || point < -maxKeyBytes {
		return "", s, false
	}
	if digits = placed(string(out), point); flip != 0 {
		digits = "-" + digits
	}
	return digits, s[5+end+1:], true
}

// placed inserts a decimal point into digits: point is the number of digits before it. If digits is
// shorter than that, or if point is negative, placed adds zeros.
func placed(digits string, point int) string {
	switch {
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + digits
	case point >= len(digits):
		return digits + strings.Repeat("0", point-len(digits))
	}
	return digits[:point] + "." + digits[point:]
}
