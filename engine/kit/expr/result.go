package expr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// written appends a result of the virtual machine to dst, in the form of a field's value. It also
// returns the kind of the field.
func written(dst []byte, out any) (stream.Kind, []byte, error) {
	switch v := out.(type) {
	case nil:
		return stream.Null, dst, nil
	case bool:
		return stream.Bool, strconv.AppendBool(dst, v), nil
	case string:
		return stream.Text, append(dst, v...), nil
	case int:
		return stream.Number, strconv.AppendInt(dst, int64(v), 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return stream.Null, dst, fmt.Errorf(
				"the result is %v, which cannot be written as a number", v)
		}
		return stream.Number, appendFloat(dst, v), nil
	case time.Time:
		return stream.Text, v.AppendFormat(dst, time.RFC3339Nano), nil
	case time.Duration:
		return stream.Text, append(dst, v.String()...), nil
	}
	text, err := marshal(out)
	if err != nil {
		return stream.Null, dst, err
	}
	return kindOf(text), append(dst, text...), nil
}

// appendFloat appends v with an exponent only if v is not 0 and its absolute value is below 1e-6 or
// at least 2^63. Without an exponent, a number of 2^63 or more would look like an exact integer,
// although it may have lost digits.
func appendFloat(dst []byte, v float64) []byte {
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1<<63) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, v, format, -1, 64)
}

// kindOf returns the kind of a field, given its value as JSON: an array, an object, a text or a
// number.
func kindOf(text []byte) stream.Kind {
	if text[0] == '[' || text[0] == '{' || text[0] == '"' {
		return stream.JSON
	}
	return stream.Number
}

// marshal returns v as JSON. As in JSON of other components, the characters <, > and & are not
// escaped.
func marshal(v any) ([]byte, error) {
	v, err := nestedResult(v)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("the result has %s, which cannot be the value of a field", article(
			fmt.Sprintf("%T", v)))
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// nestedResult returns a copy of v in which all lists and objects have the types that JSON needs.
// The library's functions groupBy and fromPairs return objects with keys of any type.
func nestedResult(v any) (any, error) {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("the result has %v, which cannot be written as a number", v)
		}
	case time.Duration:
		return v.String(), nil
	case []any:
		return nestedList(v)
	case map[string]any:
		return nestedObject(v)
	case map[any]any:
		return nestedObject(v)
	case map[any][]any:
		return nestedObject(v)
	}
	return v, nil
}

func nestedList(list []any) (any, error) {
	out := make([]any, len(list))
	for i, v := range list {
		var err error
		if out[i], err = nestedResult(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func nestedObject[K comparable, V any](object map[K]V) (any, error) {
	out := make(map[string]any, len(object))
	for k, v := range object {
		key, ok := any(k).(string)
		if !ok {
			return nil, fmt.Errorf("the result has the key %v, which is not text; use string()", k)
		}
		var err error
		if out[key], err = nestedResult(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
