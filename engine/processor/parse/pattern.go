package parse

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"github.com/penstock-io/penstock/stream"
)

// kindOf returns the kind of a field with the type t and the text s, and false if the text is
// invalid for the type. An empty text and the text "-" are null, unless t is text.
func kindOf(t stream.FieldType, s []byte) (stream.Kind, bool) {
	switch {
	case t == stream.TextType:
		return stream.Text, true
	case len(s) == 0 || len(s) == 1 && s[0] == '-':
		return stream.Null, true
	case t == stream.BoolType:
		return stream.Bool, string(s) == "true" || string(s) == "false"
	case t == stream.IntegerType && len(s) <= longestInteger && s[0] != '0' && allDigits(s):
		// the common case
		return stream.Number, true
	case t == stream.IntegerType:
		digits := s
		if s[0] == '-' {
			digits = s[1:]
		}
		return stream.Number, isNumber(s) && len(digits) <= longestInteger && allDigits(digits)
	}
	return stream.Number, isNumber(s)
}

func allDigits(s []byte) bool {
	for _, c := range s {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

// isNumber reports whether s is a JSON number. Only such a number can be written to JSON unchanged.
func isNumber(s []byte) bool {
	if len(s) > 0 && s[0] == '-' {
		s = s[1:]
	}
	rest, ok := cutDigits(s)
	if !ok || s[0] == '0' && len(s)-len(rest) > 1 {
		return false
	}
	if len(rest) > 0 && rest[0] == '.' {
		if rest, ok = cutDigits(rest[1:]); !ok {
			return false
		}
	}
	if len(rest) > 0 && rest[0]|0x20 == 'e' {
		rest = rest[1:]
		if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		if rest, ok = cutDigits(rest); !ok {
			return false
		}
	}
	return len(rest) == 0
}

// cutDigits returns s without its leading digits, and reports whether there are any.
func cutDigits(s []byte) ([]byte, bool) {
	n := 0
	for n < len(s) && s[n]-'0' <= 9 {
		n++
	}
	return s[n:], n > 0
}

// typed returns the fields in a pattern, with their types.
func typed(o *Options, named []string) ([]stream.SchemaField, error) {
	fields := make([]stream.SchemaField, len(named))
	for i, n := range named {
		fields[i] = stream.SchemaField{Name: n, Type: stream.TextType}
	}
	var errs []error
	for n, t := range o.Types {
		at := (stream.Schema{Fields: fields}).Find(n)
		if at < 0 {
			errs = append(errs, &stream.OptionError{
				Key: "types." + n, Err: errors.New("the pattern has no field with this name"),
				Word: n, Known: named,
			})
			continue
		}
		fields[at].Type = stream.FieldType(t)
	}
	return fields, errors.Join(errs...)
}

// fieldTypes has the end of the error message for a value of the wrong type, by the required type.
// Example: "not a number" in "status is not a number". For the type text, every value is valid.
var fieldTypes = map[stream.FieldType]string{
	stream.IntegerType: "not a whole number of at most 18 digits",
	stream.NumberType:  "not a number",
	stream.BoolType:    "neither true nor false",
}

// columns appends the fields of one record for a pattern.
type columns struct {
	fields []stream.SchemaField
	names  []uint32
}

func (c *columns) begin(b *stream.Batch) {
	c.names = c.names[:0]
	for _, f := range c.fields {
		c.names = append(c.names, b.Name(f.Name))
	}
}

// add appends field k. Its text has n bytes at offset off. If the text does not have the type of
// the field, add returns a problem instead. The record's text begins at start: the position of the
// problem is counted from there.
func (c *columns) add(b *stream.Batch, k int, off, n, start uint32) problem {
	f := &c.fields[k]
	if f.Type == stream.TextType {
		b.Fields = append(b.Fields, stream.Field{Name: c.names[k], Off: off, Len: n})
		return problem{}
	}
	kind, ok := kindOf(f.Type, b.Data[off:off+n])
	if !ok {
		return problem{f.Name + " is " + fieldTypes[f.Type], int(off - start)}
	}
	if kind == stream.Null {
		n = 0
	}
	b.Fields = append(b.Fields, stream.Field{Name: c.names[k], Kind: kind, Off: off, Len: n})
	return problem{}
}

// regex splits a text with the named groups of a regular expression.
type regex struct {
	columns
	expr     *regexp.Regexp
	straight *straight // nil if expr must be used
	groups   []int     // index of each field's group
	needed   []byte
}

func newRegex(o *Options) (*format, error) {
	expr, err := regexp.Compile(o.Pattern)
	if err != nil {
		return nil, option("pattern", fmt.Errorf("is not a regular expression of Go: %w", err))
	}
	var named []string
	var groups []int
	for i, n := range expr.SubexpNames() {
		if n == "" {
			continue
		}
		named, groups = append(named, n), append(groups, i)
	}
	if len(named) == 0 {
		return nil, option("pattern", errors.New(
			"has no named group, so there would be no field; write (?P<name>...)"))
	}
	fields, err := typed(o, named)
	if err != nil {
		return nil, err
	}
	needed := []byte(needs(o.Pattern))
	return &format{fields: fields, make: func() splitter {
		return &regex{
			columns: columns{fields: fields}, expr: expr,
			straight: newStraight(o.Pattern, expr.NumSubexp()),
			groups:   groups, needed: needed,
		}
	}}, nil
}

func (r *regex) split(b *stream.Batch, off, n uint32) problem {
	text := b.Data[off : off+n : off+n]
	var m []int
	if r.straight != nil {
		m = r.straight.match(text)
	} else if bytes.Contains(text, r.needed) {
		m = r.expr.FindSubmatchIndex(text)
	}
	if m == nil {
		return problem{"the text does not match the pattern", -1}
	}
	for k, g := range r.groups {
		from, to := m[2*g], m[2*g+1]
		if from < 0 { // an optional group that did not match
			b.Fields = append(b.Fields, stream.Field{Name: r.names[k], Kind: stream.Null, Off: off})
			continue
		}
		if bad := r.add(b, k, off+uint32(from), uint32(to-from), off); bad.what != "" {
			return bad
		}
	}
	return problem{}
}
