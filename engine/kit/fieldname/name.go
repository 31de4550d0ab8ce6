//penstock:pure

// Package fieldname parses the names of fields in a config. It finds and sets the fields with these
// names. It also finds, sets, renames and removes members of fields.
//
// A name with dots has two meanings. Example: user.email is the field with exactly this name (the
// flat field), and also the member email of the field user, if user is a JSON object. A component
// that reads the name uses the flat field if the record has it. A name in double quotes means only
// the flat field.
//
// The package never changes the bytes of a value in a batch: a new value is appended to the batch's
// data.
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

// Name is the parsed name of a field, or of a member of a field. The zero value is not a valid
// name.
type Name struct {
	Flat string // the whole name, such as "user.email"
	// path of the member, with at least two parts; nil if the name means only the flat field
	Path []string
}

// Parse parses a name in a config. It returns an error if the name is empty, begins with a quote
// but is not a valid quoted name, or has more than MaxParts parts. If a part is empty, as in
// "a..b", the name means only the flat field.
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

// Lenient parses a name in options that a Go program has set itself, and not read from a config. It
// treats an invalid name as the name of a flat field.
func Lenient(text string) Name {
	n, err := Parse(text)
	if err != nil {
		return Name{Flat: text}
	}
	return n
}

// Find looks up n in a schema. It returns the index (at) of the flat field, the field with exactly
// this name. If there is none and n has a path, nested is true, and at is the index of the field
// named by the first part of the path. If the schema has neither field, at is -1. Find returns an
// error if nested is true and the values of the field found cannot be objects.
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

// Missing returns the error for an option (key) that names a field (text) which no record has.
func Missing(key, text string, in stream.Schema) *stream.OptionError {
	return &stream.OptionError{Key: key, Err: fmt.Errorf("there is no field %q", text), Word: text,
		Known: in.Names()}
}

// Write returns the schema of the records after the field or member n was set to a value of type t.
// out is their schema before this. Write may change out.Fields.
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

// Ref is a name, together with its indexes in the Names of one batch.
type Ref struct {
	Name
	flat, root       uint32
	hasFlat, hasRoot bool
}

// Begin determines the indexes in the batch b. Call it again when b.Names has grown.
func (r *Ref) Begin(b *stream.Batch) {
	if r.Flat == stream.MessageName { // the field of unparsed records, which Names may lack
		b.Name(r.Flat)
	}
	r.flat, r.hasFlat = b.FindName(r.Flat)
	r.hasRoot = false
	if r.Path != nil {
		r.root, r.hasRoot = b.FindName(r.Path[0])
	}
}

// BeginWrite is Begin for a name that will be set. It adds a missing name to b.Names.
func (r *Ref) BeginWrite(b *stream.Batch) {
	if r.Path == nil {
		b.Name(r.Flat)
	} else {
		b.Name(r.Path[0])
	}
	r.Begin(b)
}

// IsFlat reports whether f is the flat field. Example: if r is user.email, f is the field with
// exactly the name "user.email".
func (r *Ref) IsFlat(f stream.Field) bool { return r.hasFlat && f.Name == r.flat }

// IsRoot reports whether f is the field named by the first part of r's path. Example: if r is
// user.email, f is the field user. Its value may be an object with the member email.
func (r *Ref) IsRoot(f stream.Field) bool { return r.hasRoot && f.Name == r.root }

// Index returns the index in the batch's Names of the flat field, the field with exactly r's name.
// ok is false if Names does not have this name.
func (r *Ref) Index() (name uint32, ok bool) { return r.flat, r.hasFlat }

// HasRoot reports whether records of the batch may have the field named by the first part of r's
// path.
func (r *Ref) HasRoot() bool { return r.hasRoot }

// Possible reports whether records of the batch may have the field or the member that r names.
func (r *Ref) Possible() bool { return r.hasFlat || r.hasRoot }
