// Package origin adds fields for the origin of a record to the records of files: file, offset,
// host, and parts of the path that a pattern names.
//
// A source owns an [Adder] for each of its readers and calls it for every batch that it returns.
// Without options it does nothing, and costs nothing. It opens no file: it only uses a partition's
// name.
package origin

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// Options selects the added fields. The zero value adds none.
type Options struct {
	File   string `yaml:"file" doc:"name of a field for the file's path; empty: none"`
	Offset string `yaml:"offset" doc:"name of a field for where in the file the record begins, in bytes; empty: none"`
	Host   string `yaml:"host" doc:"name of a field for this machine's name; empty: none"`
	Path   string `yaml:"path" doc:"pattern of paths whose {names} become fields: /var/log/{app}/{date}.log"`
}

// fields are the names of the fields, in the order in which records get them, but for those of the
// path.
func (o Options) fields() (names []string) {
	for _, n := range []string{o.File, o.Offset, o.Host} {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// Validate rejects invalid options; key is their key in the source's options.
func (o Options) Validate(key string) error {
	wrong := func(sub string, format string, args ...any) error {
		return &stream.OptionError{Key: key + sub, Err: fmt.Errorf(format, args...)}
	}
	p, err := compile(o.Path)
	if err != nil {
		return wrong(".path", "%w", err)
	}
	names := append([]string{stream.MessageName}, append(o.fields(), p.names...)...)
	for i, text := range names {
		n, err := fieldname.Parse(text)
		if err != nil {
			return wrong("", "%w", err)
		}
		for _, before := range names[:i] {
			if b := fieldname.Lenient(before); n.Flat == b.Flat || within(n, b) || within(b, n) {
				return wrong("", "the field %q has two meanings; give one another name", text)
			}
		}
	}
	return nil
}

// within reports whether a is a member of b, so that both cannot be set.
func within(a, b fieldname.Name) bool {
	path := b.Path
	if path == nil {
		path = []string{b.Flat}
	}
	return len(a.Path) > len(path) && slices.Equal(a.Path[:len(path)], path)
}

// Shape returns the schema of the records with the fields.
func (o Options) Shape(in stream.Schema) stream.Schema {
	out := in.Clone()
	add := func(name string, t stream.FieldType) {
		if name != "" {
			out, _ = fieldname.Lenient(name).Write(out, t) // cannot fail: see Validate
		}
	}
	add(o.File, stream.TextType)
	add(o.Offset, stream.IntegerType)
	add(o.Host, stream.TextType)
	if p, err := compile(o.Path); err == nil {
		for _, n := range p.names {
			add(n, stream.TextType)
		}
	}
	return out
}

// pattern is a compiled Path.
type pattern struct {
	names    []string
	match    *regexp.Regexp // nil: there is no pattern
	absolute bool
}

var token = regexp.MustCompile(`\{([^{}]*)\}|\*|[^{*]+|.`)

// compile reads a pattern: {name} stands for one or more characters without a slash, as few as will
// do; * for any number of them. One that begins with a slash is held against the whole path, any
// other against as many of its last parts as it has.
func compile(text string) (p pattern, err error) {
	if text == "" {
		return p, nil
	}
	var b strings.Builder
	if p.absolute = path.IsAbs(text); p.absolute {
		b.WriteString("^")
	} else {
		b.WriteString("(?:^|/)")
	}
	for _, m := range token.FindAllStringSubmatch(text, -1) {
		switch {
		case m[0] == "*":
			b.WriteString("[^/]*")
		case m[1] != "":
			p.names = append(p.names, m[1])
			b.WriteString("([^/]+?)")
		case strings.ContainsAny(m[0], "{}"):
			return p, fmt.Errorf("%q has a brace without its name or its other one; a field is "+
				"written {name}", text)
		default:
			b.WriteString(regexp.QuoteMeta(m[0]))
		}
	}
	if len(p.names) == 0 {
		return p, fmt.Errorf("%q names no field; a field is written {name}", text)
	}
	p.match, err = regexp.Compile(b.String() + "$")
	return p, err
}

// Adder adds the fields to batches. It belongs to one reader.
type Adder struct {
	o       Options
	pattern pattern
	root    string // of partition names that are no whole paths
	host    string

	part   *stream.Partition // the partition of the cached values
	values []string          // of file, host and the pattern's names; "": none
	number []byte

	refs  []fieldname.Ref // of the fields, in their order
	paths bool            // a name has one
	edit  fieldname.Editor
}

// New returns an adder for valid options; nil where there is nothing to be added. root is the
// folder, with slashes, at which partition names begin that are not whole paths.
func New(o Options, root string) (*Adder, error) {
	if o == (Options{}) {
		return nil, nil
	}
	p, err := compile(o.Path)
	if err != nil {
		return nil, err
	}
	a := &Adder{o: o, pattern: p, root: root}
	for _, text := range append(o.fields(), p.names...) {
		n := fieldname.Lenient(text)
		a.refs = append(a.refs, fieldname.Ref{Name: n})
		a.paths = a.paths || n.Path != nil
	}
	if o.Host != "" {
		if a.host, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("this machine's name, for the field %q: %w", o.Host, err)
		}
	}
	return a, nil
}

// Add gives the records of b their fields. It belongs behind the last that is read into b; a nil
// Adder does nothing.
func (a *Adder) Add(b *stream.Batch) {
	if a == nil || len(b.Spans) == 0 {
		return
	}
	b.Split()
	names := make([]uint32, len(a.refs))
	for k := range a.refs {
		a.refs[k].BeginWrite(b)
		names[k], _ = a.refs[k].Index()
	}
	offset := -1 // which of the fields it is
	if a.o.Offset != "" {
		offset = slices.Index(a.o.fields(), a.o.Offset)
	}
	var part *stream.Partition
	var made []stream.Field // of the part, in this batch
	at := int64(0)          // where the record begins
	for i := range b.Records {
		r := &b.Records[i]
		if span := &b.Spans[r.Span]; i == 0 || b.Records[i-1].Span != r.Span {
			at = span.From.Num
			if span.Part != part {
				part = span.Part
				made = a.fields(b, part, names, made[:0])
			}
		}
		if r.State == stream.Kept {
			from := b.OpenFields(i)
			b.SetFields(i, from)
			for k, f := range made {
				if k == offset {
					a.number = strconv.AppendInt(a.number[:0], at, 10)
					f.Off, f.Len = b.AppendData(a.number)
				}
				a.set(b, i, k, f)
			}
		}
		at = r.Origin.Num
	}
}

// set gives record i field k. The fields of the record are the last of the batch.
func (a *Adder) set(b *stream.Batch, i, k int, f stream.Field) {
	if a.paths && a.edit.SetLast(b, &a.refs[k], i, f) == nil {
		return // nothing can be in the way: Validate has seen to it
	}
	b.Fields = append(b.Fields, f)
	b.Records[i].NumFields++
}

// fields writes the common values of a partition's records into the arena, and leaves room for the
// offset.
func (a *Adder) fields(b *stream.Batch, part *stream.Partition, names []uint32,
	out []stream.Field) []stream.Field {
	a.know(part)
	text := func(k int, value string) {
		f := stream.Field{Name: names[k], Kind: stream.Null}
		if value != "" {
			f.Kind = stream.Text
			f.Off, f.Len = b.AppendData([]byte(value))
		}
		out = append(out, f)
	}
	k := 0
	if a.o.File != "" {
		text(k, a.values[0])
		k++
	}
	if a.o.Offset != "" {
		out = append(out, stream.Field{Name: names[k], Kind: stream.Number})
		k++
	}
	if a.o.Host != "" {
		text(k, a.host)
		k++
	}
	for i := range a.pattern.names {
		text(k, a.values[1+i])
		k++
	}
	return out
}

// know finds the values of a partition.
func (a *Adder) know(part *stream.Partition) {
	if a.part == part {
		return
	}
	a.part = part
	full := part.Name
	if !path.IsAbs(full) && a.root != "" && (a.pattern.absolute || a.o.File != "") {
		full = path.Join(a.root, full)
	}
	a.values = append(a.values[:0], full)
	if a.pattern.match == nil {
		return
	}
	found := a.pattern.match.FindStringSubmatch(full)
	for i := range a.pattern.names {
		value := ""
		if found != nil {
			value = found[1+i]
		}
		a.values = append(a.values, value)
	}
}
