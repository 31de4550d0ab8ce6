package expr

import (
	"bytes"
	"cmp"
	"math"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

// kind is the kind of a value.
type kind uint8

const (
	null   kind = iota
	truth       // num is 0 or 1
	whole       // an integer in num; raw has the digits if it was parsed
	broken      // a float64; its bits are in num; raw has the digits if it was parsed
	text        // a text, which is in raw
	nested      // an array or object, which is in raw as JSON
)

var kindNames = [...]string{"null or missing", "true or false", "a number", "a number", "text",
	"an array or object"}

// value is the value of an operand, such as a literal or a field. It is a struct and not an any, to
// avoid allocations. raw may share memory with the batch, the program or the evaluator.
type value struct {
	kind kind
	num  int64
	raw  []byte
}

func (v value) float() float64 {
	if v.kind == whole {
		return float64(v.num)
	}
	return math.Float64frombits(uint64(v.num))
}

// fieldValue returns the value of a field. It returns an error for a number that is too large.
func fieldValue(b *stream.Batch, f stream.Field) (value, error) {
	return valueOf(f.Kind, b.Value(f))
}

func valueOf(k stream.Kind, raw []byte) (value, error) {
	switch k {
	case stream.Text:
		return value{kind: text, raw: raw}, nil
	case stream.Number:
		return number(raw)
	case stream.Bool:
		v := value{kind: truth}
		if len(raw) > 0 && raw[0] == 't' {
			v.num = 1
		}
		return v, nil
	case stream.JSON:
		if len(raw) > 1 && raw[0] == '"' { // a string with one half of a surrogate pair
			return value{kind: text, raw: json.AppendUnescaped(nil, raw[1:len(raw)-1])}, nil
		}
		return value{kind: nested, raw: raw}, nil
	}
	return value{}, nil
}

// number parses digits as a 64-bit integer if possible, otherwise as a float64.
func number(raw []byte) (value, error) {
	if !bytes.ContainsAny(raw, ".eE") { // cheaper than creating an error in ParseInt
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return value{kind: whole, num: n, raw: raw}, nil
		}
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return value{}, &json.RangeError{Number: string(raw[:min(len(raw), 40)])}
	}
	return value{kind: broken, num: int64(math.Float64bits(f)), raw: raw}, nil
}

// decode returns v as a value that the virtual machine can use, such as an int or a string.
func (v value) decode() (any, error) {
	switch v.kind {
	case truth:
		return v.num != 0, nil
	case whole:
		return int(v.num), nil
	case broken:
		return v.float(), nil
	case text:
		return string(v.raw), nil
	case nested:
		return json.Decode(v.raw, json.Value{Kind: stream.JSON, Len: len(v.raw)})
	}
	return nil, nil
}

// equal reports whether a and b are equal. An integer equals a float64 of the same value, as in the
// expr library. Other values of different kinds are not equal. a and b must not both be arrays
// or objects.
func equal(a, b value) bool {
	switch {
	case a.kind == whole && b.kind == whole, a.kind == truth && b.kind == truth:
		return a.num == b.num
	case isNumber(a) && isNumber(b):
		return a.float() == b.float()
	case a.kind == text && b.kind == text:
		return bytes.Equal(a.raw, b.raw)
	}
	return a.kind == null && b.kind == null
}

func isNumber(v value) bool { return v.kind == whole || v.kind == broken }

// order compares two numbers or two texts, like [cmp.Compare]. The result false means that the
// values cannot be compared.
func order(a, b value) (int, bool) {
	switch {
	case a.kind == whole && b.kind == whole:
		return cmp.Compare(a.num, b.num), true
	case isNumber(a) && isNumber(b):
		return cmp.Compare(a.float(), b.float()), true
	case a.kind == text && b.kind == text:
		return bytes.Compare(a.raw, b.raw), true
	}
	return 0, false
}
