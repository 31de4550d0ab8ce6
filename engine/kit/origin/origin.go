// Package origin gives the records of files fields that say where they come from: file, offset, host, and parts of the path that a
// pattern names.
//
// A source owns an [Adder] for each of its readers and has it add to every batch that it hands out. Without options it does nothing,
// and costs nothing. It opens no file: all it knows is a partition's name.
package origin

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock"
)

// Options say which fields records get. The zero value: none.
type Options struct {
	File   string `yaml:"file" doc:"name of a field for the file's path; empty: none"`
	Offset string `yaml:"offset" doc:"name of a field for where in the file the record begins, in bytes; empty: none"`
	Host   string `yaml:"host" doc:"name of a field for this machine's name; empty: none"`
	Path   string `yaml:"path" doc:"pattern of paths whose {names} become fields: /var/log/{app}/{date}.log"`
}

// fields are the names of the fields, in the order in which records get them, but for those of the path.
func (o Options) fields() (names []string) {
	for _, n := range []string{o.File, o.Offset, o.Host} {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// Validate refuses what cannot work; key is where the options stand in those of the source.
func (o Options) Validate(key string) error {
	wrong := func(sub string, format string, args ...any) error {
		return &penstock.OptionError{Key: key + sub, Err: fmt.Errorf(format, args...)}
	}
	p, err := compile(o.Path)
	if err != nil {
		return wrong(".path", "%w", err)
	}
	names := append([]string{penstock.MessageName}, append(o.fields(), p.names...)...)
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return wrong("", "the field %q has two meanings; give one another name", n)
		}
	}
	return nil
}

// Shape returns the schema of the records with the fields.
func (o Options) Shape(in penstock.Schema) penstock.Schema {
	out := in.Clone()
	add := func(name string, t penstock.FieldType) {
		if name != "" {
			out.Fields = append(out.Fields, penstock.SchemaField{Name: name, Type: t})
		}
	}
	add(o.File, penstock.TextType)
	add(o.Offset, penstock.IntegerType)
	add(o.Host, penstock.TextType)
	if p, err := compile(o.Path); err == nil {
		for _, n := range p.names {
			add(n, penstock.TextType)
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

// compile reads a pattern: {name} stands for one or more characters without a slash, as few as will do; * for any number of them. One
// that begins with a slash is held against the whole path, any other against as many of its last parts as it has.
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
			return p, fmt.Errorf("%q has a brace without its name or its other one; a field is written {name}", text)
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

	part   *penstock.Partition // whose values are known
	values []string            // of file, host and the pattern's names; "": none
	number []byte
}

// New returns an adder for valid options; nil where there is nothing to be added. root is the folder, with slashes, at which partition
// names begin that are not whole paths.
func New(o Options, root string) (*Adder, error) {
	if o == (Options{}) {
		return nil, nil
	}
	p, err := compile(o.Path)
	if err != nil {
		return nil, err
	}
	a := &Adder{o: o, pattern: p, root: root}
	if o.Host != "" {
		if a.host, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("this machine's name, for the field %q: %w", o.Host, err)
		}
	}
	return a, nil
}

// Add gives the records of b their fields. It belongs behind the last that is read into b; a nil Adder does nothing.
func (a *Adder) Add(b *penstock.Batch) {
	if a == nil || len(b.Spans) == 0 {
		return
	}
	b.Split()
	names := make([]uint32, 0, 3+len(a.pattern.names))
	for _, n := range append(a.o.fields(), a.pattern.names...) {
		names = append(names, b.Name(n))
	}
	offset := -1 // which of the fields it is
	if a.o.Offset != "" {
		offset = slices.Index(a.o.fields(), a.o.Offset)
	}
	var part *penstock.Partition
	var made []penstock.Field // of the part, in this batch
	at := int64(0)            // where the record begins
	for i := range b.Records {
		r := &b.Records[i]
		if span := &b.Spans[r.Span]; i == 0 || b.Records[i-1].Span != r.Span {
			at = span.From.Num
			if span.Part != part {
				part = span.Part
				made = a.fields(b, part, names, made[:0])
			}
		}
		if r.State == penstock.Kept {
			from := b.OpenFields(i)
			for k, f := range made {
				if k == offset {
					a.number = strconv.AppendInt(a.number[:0], at, 10)
					f.Off, f.Len = b.AppendData(a.number)
				}
				b.Fields = append(b.Fields, f)
			}
			b.SetFields(i, from)
		}
		at = r.Origin.Num
	}
}

// fields puts what the records of a partition have in common into the arena, and leaves room for the offset.
func (a *Adder) fields(b *penstock.Batch, part *penstock.Partition, names []uint32, out []penstock.Field) []penstock.Field {
	a.know(part)
	text := func(k int, value string) {
		f := penstock.Field{Name: names[k], Kind: penstock.Null}
		if value != "" {
			f.Kind = penstock.Text
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
		out = append(out, penstock.Field{Name: names[k], Kind: penstock.Number})
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
func (a *Adder) know(part *penstock.Partition) {
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
