package parse

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/penstock-io/penstock/engine/kit/json"
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
	case t == stream.IntegerType:
		digits := bytes.TrimPrefix(s, []byte("-"))
		return stream.Number, allDigits(digits) && len(digits) <= longestInteger &&
			(digits[0] != '0' || len(digits) == 1)
	}
	return stream.Number, json.IsNumber(s)
}

func allDigits(s []byte) bool {
	for _, c := range s {
		if c-'0' > 9 {
			return false
		}
	}
	return true
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
	parsed, err := syntax.Parse(o.Pattern, syntax.Perl)
	if err != nil {
		return nil, option("pattern", err)
	}
	needed := []byte(needs(parsed))
	return &format{fields: fields, make: func() splitter {
		return &regex{
			columns: columns{fields: fields}, expr: expr,
			straight: newStraight(parsed, expr.NumSubexp()),
			groups:   groups, needed: needed,
		}
	}}, nil
}

// needs returns a literal that every match of a regular expression contains, or "" if it finds
// none. A text without the literal cannot match, and a search for the literal is much faster than a
// failed match.
func needs(re *syntax.Regexp) (longest string) {
	switch {
	case isExact(re):
		return string(re.Rune)
	case re.Op == syntax.OpConcat, re.Op == syntax.OpCapture, re.Op == syntax.OpPlus:
		for _, sub := range re.Sub {
			if s := needs(sub); len(s) > len(longest) {
				longest = s
			}
		}
	}
	return longest
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
