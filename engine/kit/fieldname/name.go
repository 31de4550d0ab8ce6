//penstock:pure

// Package fieldname reads the names of fields in a config. It finds, sets, renames and removes the
// fields and members in records.
//
// A name with dots means two things: the flat field of exactly that name, and the member at that
// path of a field that is a JSON object. user.email is the field "user.email" and the member email
// of the field user. A name in double quotes means the flat field alone. A component that reads a
// name uses the flat field if the record has it.
//
// The package owns nothing. It changes only the fields of the given batch, and never the bytes of a
// value: it appends a changed value to the batch's data.
package fieldname

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// MaxParts is the maximum number of parts of a name.
const MaxParts = 100

// Name is the name of a field. The zero value names nothing.
type Name struct {
	Flat string // the field of exactly this name
	// The member at this path, at least two parts; nil if the name means the flat field alone.
	Path []string
}

// Parse parses a name from a config. It fails if the name is empty, a quote is not closed, or there
// are more than MaxParts parts. A name with an empty part, such as "a..b", has no path.
func Parse(text string) (Name, error) {
	if text == "" {
		return Name{}, fmt.Errorf("a field name cannot be empty")
	}
	if text[0] == '"' {
		flat, err := strconv.Unquote(text)
		if err != nil || flat == "" {
			return Name{}, fmt.Errorf("%s begins with a quote but is not a quoted name; write "+
				"\"\\\"a.b\\\"\" for the field a.b", text)
		}
		return Name{Flat: flat}, nil
	}
	n := Name{Flat: text}
	if parts := strings.Split(text, "."); len(parts) > 1 && !slices.Contains(parts, "") {
		if len(parts) > MaxParts {
			return Name{}, fmt.Errorf("%.40s... has more than %d parts", text, MaxParts)
		}
		n.Path = parts
	}
	return n, nil
}

// Lenient parses a name for code that builds options itself. It treats an invalid name as the flat
// field of that name.
func Lenient(text string) Name {
	n, err := Parse(text)
	if err != nil {
		return Name{Flat: text}
	}
	return n
}

// Find looks up n in a schema. at is the index of the flat field or, if nested is true, of the
// field that holds the object; -1 means that the schema has neither. Find returns an error if the
// member's field is known but its values are not objects.
func (n Name) Find(in stream.Schema) (at int, nested bool, err error) {
	if at = in.Find(n.Flat); at >= 0 || n.Path == nil {
		return at, false, nil
	}
	if at = in.Find(n.Path[0]); at < 0 {
		return -1, true, nil
	}
	if t := in.Fields[at].Type; t != stream.AnyType && t != stream.JSONType && !in.Open {
		return at, true, fmt.Errorf("%s is %s, which has no member %s", n.Path[0], article(t),
			strings.Join(n.Path[1:], "."))
	}
	return at, true, nil
}

func article(t stream.FieldType) string {
	switch t {
	case stream.TextType:
		return "a text"
	case stream.IntegerType, stream.NumberType:
		return "a number"
	case stream.BoolType:
		return "true or false"
	}
	return string(t)
}

// Missing returns the error for an option that names a field that no record has.
func Missing(key, text string, in stream.Schema) *stream.OptionError {
	return &stream.OptionError{Key: key, Err: fmt.Errorf("there is no field %q", text), Word: text,
		Known: in.Names()}
}

// Write returns the schema of the records after n was set to a value of type t.
func (n Name) Write(out stream.Schema, t stream.FieldType) (stream.Schema, error) {
	at, nested, err := n.Find(out)
	switch {
	case err != nil:
		return out, err
	case at >= 0 && nested:
		out.Fields[at].Type = stream.JSONType
	case at >= 0:
		out.Fields[at].Type = t
	case nested:
		out.Fields = append(out.Fields, stream.SchemaField{Name: n.Path[0], Type: stream.JSONType})
	default:
		out.Fields = append(out.Fields, stream.SchemaField{Name: n.Flat, Type: t})
	}
	return out, nil
}

// Ref is a name with its indexes in the Names of one batch.
type Ref struct {
	Name
	flat, root       uint32
	hasFlat, hasRoot bool
}

// Begin finds the name's indexes in a batch. Call it again when the batch's Names have grown.
func (r *Ref) Begin(b *stream.Batch) {
	if r.Flat == stream.MessageName { // Names may lack this field of unparsed records
		b.Name(r.Flat)
	}
	r.flat, r.hasFlat = b.FindName(r.Flat)
	r.hasRoot = false
	if r.Path != nil {
		r.root, r.hasRoot = b.FindName(r.Path[0])
	}
}

// BeginWrite does the same as Begin, for a name that will be set: it adds a missing name to the
// batch's Names.
func (r *Ref) BeginWrite(b *stream.Batch) {
	if r.Path == nil {
		b.Name(r.Flat)
	} else {
		b.Name(r.Path[0])
	}
	r.Begin(b)
}

// IsFlat reports whether f is the flat field of the name.
func (r *Ref) IsFlat(f stream.Field) bool { return r.hasFlat && f.Name == r.flat }

// IsRoot reports whether f is the field that may hold the member.
func (r *Ref) IsRoot(f stream.Field) bool { return r.hasRoot && f.Name == r.root }

// Index returns the index of the flat field in the batch's Names. ok is false if the batch does not
// have the name.
func (r *Ref) Index() (name uint32, ok bool) { return r.flat, r.hasFlat }

// HasRoot reports whether a record of the batch may have the field that holds the member.
func (r *Ref) HasRoot() bool { return r.hasRoot }

// Possible reports whether a record of the batch may have the flat field or the member.
func (r *Ref) Possible() bool { return r.hasFlat || r.hasRoot }
