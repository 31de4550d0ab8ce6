//penstock:pure

package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
)

// keyKind determines the order of the values of an order_by column, and their encoding.
type keyKind uint8

// The kinds of key columns.
const (
	keyInteger keyKind = iota + 1 // signed 64-bit; also times in microseconds and dates in days
	keyUnsigned
	keyFloat
	keyBytes  // byte by byte: text in C order, blobs, UUIDs
	keyNumber // decimal digits, any number of them
	keyAny    // SQLite: numbers, then texts, then blobs
)

// keyValue is the value of one order_by column in the key of a row.
type keyValue struct {
	kind keyKind // never keyAny: each value of a SQLite column has its own kind
	n    int64   // for keyInteger, and the bits of keyUnsigned
	f    float64
	s    string // for keyBytes, and the digits of keyNumber
	blob bool   // for keyAny: a BLOB instead of a TEXT
}

// maxKeyBytes is the maximum size of an encoded key. It fits into the primary key of every sink's
// ledger.
const maxKeyBytes = 1000

// keyset encodes the order_by columns of a row as a key. The byte order of the keys is the order of
// the rows. Each key begins with four bytes derived from the names and kinds of the columns. By
// these bytes, the source detects a stored position that belongs to another order_by.
type keyset struct {
	names  []string
	kinds  []keyKind
	prefix [4]byte
}

func newKeyset(names []string, kinds []keyKind) keyset {
	var form strings.Builder
	for i, n := range names {
		fmt.Fprintf(&form, "%s %d,", strconv.Quote(n), kinds[i])
	}
	k := keyset{names: names, kinds: kinds}
	binary.BigEndian.PutUint32(k.prefix[:], crc32.ChecksumIEEE([]byte(form.String())))
	return k
}

// begin appends the common first bytes of all keys.
func (k *keyset) begin(dst []byte) []byte { return append(dst, k.prefix[:]...) }

// fits reports whether a key was encoded with these columns.
func (k *keyset) fits(key string) bool { return strings.HasPrefix(key, string(k.prefix[:])) }

const signBit = 1 << 63

// appendFloat encodes a float. A negative number is encoded as its complement, so that it sorts
// correctly. -0 is encoded as 0, because databases treat them as equal. PostgreSQL also treats all
// NaNs as equal, and as greater than other numbers, even if their sign bit is set.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case f == 0:
		f = 0
	case math.IsNaN(f):
		f = math.NaN()
	}
	bits := math.Float64bits(f)
	if bits&signBit != 0 {
		bits = ^bits
	} else {
		bits |= signBit
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

// appendText encodes a text with the bytes 0 1 at its end. A byte 0 in the text is encoded as 0
// 255. A text therefore sorts before every longer text that begins with it.
func appendText[T []byte | string](dst []byte, s T) []byte {
	for i := range len(s) {
		if dst = append(dst, s[i]); s[i] == 0 {
			dst = append(dst, 0xFF)
		}
	}
	return append(dst, 0, 1)
}

// The storage classes of SQLite, in its order.
const (
	classNumber = 1
	classText   = 2
	classBlob   = 3
)

// appendAny encodes a value of a SQLite column. Such a column may contain values of any storage
// class.
func appendAny(dst []byte, v keyValue) []byte {
	switch {
	case v.kind == keyBytes && v.blob:
		return appendText(append(dst, classBlob), v.s)
	case v.kind == keyBytes:
		return appendText(append(dst, classText), v.s)
	case v.kind == keyFloat:
		return appendNumber(append(dst, classNumber), floatDigits(v.f))
	}
	return appendNumber(append(dst, classNumber), strconv.FormatInt(v.n, 10))
}

// floatDigits returns the digits of a float, without an exponent. Different floats have different
// digits, and a float with an integer value has the digits of that integer.
func floatDigits(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return infinity
	case math.IsInf(f, -1):
		return "-" + infinity
	}
	if math.Abs(f) >= 1<<53 {
		// a whole number: write all digits, because it may be compared with integers
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// append encodes the value of column i.
func (k *keyset) append(dst []byte, i int, v keyValue) []byte {
	switch k.kinds[i] {
	case keyInteger:
		return binary.BigEndian.AppendUint64(dst, uint64(v.n)^signBit)
	case keyUnsigned:
		return binary.BigEndian.AppendUint64(dst, uint64(v.n))
	case keyFloat:
		return appendFloat(dst, v.f)
	case keyNumber:
		return appendNumber(dst, v.s)
	case keyAny:
		return appendAny(dst, v)
	}
	return appendText(dst, v.s)
}

var errKeyForm = errors.New("it is not a position of this source; " +
	"the checkpoint was changed by hand")

// decode returns the values of an encoded key.
func (k *keyset) decode(key string) ([]keyValue, error) {
	if !k.fits(key) {
		return nil, errKeyForm
	}
	rest := key[len(k.prefix):]
	out := make([]keyValue, len(k.kinds))
	for i, kind := range k.kinds {
		var ok bool
		if out[i], rest, ok = decodeValue(kind, rest); !ok {
			return nil, errKeyForm
		}
	}
	if rest != "" {
		return nil, errKeyForm
	}
	return out, nil
}

func decodeValue(kind keyKind, s string) (v keyValue, rest string, ok bool) {
	v.kind = kind
	switch kind {
	case keyInteger, keyUnsigned, keyFloat:
		if len(s) < 8 {
			return v, s, false
		}
		bits := binary.BigEndian.Uint64([]byte(s[:8]))
		switch {
		case kind == keyInteger:
			v.n = int64(bits ^ signBit)
		case kind == keyUnsigned:
			v.n = int64(bits)
		case bits&signBit != 0:
			v.f = math.Float64frombits(bits &^ signBit)
		default:
			v.f = math.Float64frombits(^bits)
		}
		return v, s[8:], true
	case keyNumber:
		v.s, rest, ok = cutNumber(s)
		return v, rest, ok
	case keyAny:
		return decodeAny(s)
	}
	v.s, rest, ok = cutText(s)
	return v, rest, ok
}

func decodeAny(s string) (v keyValue, rest string, ok bool) {
	if s == "" {
		return v, s, false
	}
	switch s[0] {
	case classText, classBlob:
		v.kind, v.blob = keyBytes, s[0] == classBlob
		v.s, rest, ok = cutText(s[1:])
		return v, rest, ok
	case classNumber:
		digits, rest, ok := cutNumber(s[1:])
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
			return keyValue{kind: keyInteger, n: n}, rest, ok
		}
		f, err := strconv.ParseFloat(digits, 64) // accepts infinities
		return keyValue{kind: keyFloat, f: f}, rest, ok && err == nil
	}
	return v, s, false
}

// cutText decodes the text at the start of s, and returns the rest of s. Each byte 0 in an encoded
// text is followed by 255, so that 0 1 is the end.
func cutText(s string) (text, rest string, ok bool) {
	text, rest, ok = strings.Cut(s, "\x00\x01")
	if !ok || strings.Count(text, "\x00") != strings.Count(text, "\x00\xFF") {
		return "", s, false
	}
	return strings.ReplaceAll(text, "\x00\xFF", "\x00"), rest, true
}

// show returns the values of a key as a text for messages.
func (k *keyset) show(key string) string {
	values, err := k.decode(key)
	if err != nil {
		return strconv.Quote(key)
	}
	parts := make([]string, len(values))
	for i, v := range values {
		text := strconv.Quote(v.s)
		switch v.kind {
		case keyInteger:
			text = strconv.FormatInt(v.n, 10)
		case keyUnsigned:
			text = strconv.FormatUint(uint64(v.n), 10)
		case keyFloat:
			text = strconv.FormatFloat(v.f, 'g', -1, 64)
		case keyNumber:
			text = v.s
		}
		parts[i] = k.names[i] + " " + text
	}
	return strings.Join(parts, ", ")
}
