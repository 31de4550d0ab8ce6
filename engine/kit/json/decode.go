//penstock:pure

package json

import (
	"strconv"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

// AppendUnescaped appends s to dst with its escapes decoded. s is the text between the quotes of a
// valid string. An unpaired surrogate becomes U+FFFD.
func AppendUnescaped(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			from := i
			for i < len(s) && s[i] != '\\' {
				i++
			}
			dst = append(dst, s[from:i]...)
			continue
		}
		switch c := s[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			u := rune(unit(s[i:]))
			i += 6
			if u >= 0xD800 && u < 0xDC00 {
				if low := rune(unit(s[i:])); low >= 0xDC00 && low <= 0xDFFF {
					u = (u-0xD800)<<10 + low - 0xDC00 + 0x10000
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, u) // an unpaired surrogate becomes U+FFFD
			continue
		default: // " \ /
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// Member returns the value of the member of raw with the given key. Escapes in the object's keys
// are decoded before the comparison. If several members have this key, Member returns the last one.
// It returns false if raw is not an object or has no such member. raw must be valid JSON without
// leading space. The range of the returned value is relative to the start of raw.
func (s *Scanner) Member(raw []byte, key string) (Value, bool) {
	var found Value
	ok := false
	if len(raw) == 0 || raw[0] != '{' {
		return found, false
	}
	for s.Start(raw, 0, len(raw)); s.Next(); {
		name := raw[s.Key.Off : s.Key.Off+s.Key.Len]
		if string(name) == key || s.Key.Escaped && string(AppendUnescaped(nil, name)) == key {
			found, ok = s.Value, true
		}
	}
	return found, ok
}

// Decode returns the value at the range v of data as a Go value: nil, a bool, a string, an int, a
// float64, a []any or a map[string]any. For numbers, see [Number]. Decode returns an error only for
// a number that is too large for a float64.
func Decode(data []byte, v Value) (any, error) {
	raw := data[v.Off : v.Off+v.Len]
	switch v.Kind {
	case stream.Null:
		return nil, nil
	case stream.Bool:
		return raw[0] == 't', nil
	case stream.Number:
		return Number(raw)
	case stream.Text:
		if v.Escaped {
			raw = AppendUnescaped(nil, raw)
		}
		return string(raw), nil
	}
	switch raw[0] {
	case '"':
		return string(AppendUnescaped(nil, raw[1:len(raw)-1])), nil
	case '[':
		return decodeArray(raw)
	}
	out := map[string]any{}
	var s Scanner
	for s.Start(raw, 0, len(raw)); s.Next(); {
		key := raw[s.Key.Off : s.Key.Off+s.Key.Len]
		if s.Key.Escaped {
			key = AppendUnescaped(nil, key)
		}
		value, err := Decode(raw, s.Value)
		if err != nil {
			return nil, err
		}
		out[string(key)] = value
	}
	return out, nil
}

func decodeArray(raw []byte) (any, error) {
	out := []any{}
	s := Scanner{data: raw, end: len(raw)}
	var v Value
	for i := s.space(1); i < len(raw) && raw[i] != ']'; {
		end := s.value(i, &v)
		if end < 0 {
			break
		}
		item, err := Decode(raw, v)
		if err != nil {
			return nil, err
		}
		out = append(out, item)
		if i = s.space(end); i < len(raw) && raw[i] == ',' {
			i = s.space(i + 1)
		}
	}
	return out, nil
}

// Number returns a number as an int. If the number has a fraction or an exponent, or does not fit
// into an int, Number returns it as a float64. It returns an error if the number is too large for a
// float64.
func Number(text []byte) (any, error) {
	if n, err := strconv.ParseInt(string(text), 10, 0); err == nil {
		return int(n), nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil, &RangeError{string(text[:min(len(text), 40)])}
	}
	return f, nil
}

// RangeError means that a number is too large for a float64.
type RangeError struct{ Number string }

// Error names the number.
func (e *RangeError) Error() string {
	return "the number " + e.Number + " is too large to be compared or used in calculations"
}
