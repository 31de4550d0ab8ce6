// Package origin adds fields to records that were read from files: the file, the offset and the
// host of the record, and parts of the path that a pattern selects.
//
// A source has an [Adder] for each of its readers, and calls it for each batch. Without options,
// the Adder is nil and does nothing. The package opens no files: it takes the path from the name of
// the partition.
package origin

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// Options selects the fields to add. The zero value adds none.
type Options struct {
	File   string `yaml:"file" doc:"name of a field for the file's path; empty: none"`
	Offset string `yaml:"offset" doc:"name of a field for the record's byte offset in the (decompressed) file; empty: none"`
	Host   string `yaml:"host" doc:"name of a field for this machine's name; empty: none"`
	Path   string `yaml:"path" doc:"pattern of paths whose {names} become fields: /var/log/{app}/{date}.log"`
}

// column is a field to add.
type column struct {
	name string
	kind stream.FieldType
}

// columns returns the fields to add, in order.
func (o Options) columns(p pattern) (list []column) {
	for _, c := range []column{{o.File, stream.TextType}, {o.Offset, stream.IntegerType},
		{o.Host, stream.TextType}} {
		if c.name != "" {
			list = append(list, c)
		}
	}
	for _, n := range p.names {
		list = append(list, column{n, stream.TextType})
	}
	return list
}

// Validate returns an error for invalid options. The errors name key, the key of these options
// among the options of the source.
func (o Options) Validate(key string) error {
	p, err := compile(o.Path)
	if err != nil {
		return stream.OptionErrorf(key+".path", "%w", err)
	}
	names := []string{stream.MessageName}
	for _, c := range o.columns(p) {
		names = append(names, c.name)
	}
	for i, text := range names {
		n, err := fieldname.Parse(text)
		if err != nil {
			return stream.OptionErrorf(key, "%w", err)
		}
		for _, before := range names[:i] {
			if b := fieldname.Lenient(before); n.Flat == b.Flat || within(n, b) || within(b, n) {
				return stream.OptionErrorf(key, "the field %q has two meanings; give one another "+
					"name", text)
			}
		}
	}
	return nil
}

// within reports whether a is the name of a member of the object that b names. Example: a is
// user.email, and b is user. A record cannot have both fields.
func within(a, b fieldname.Name) bool {
	path := b.Path
	if path == nil {
		path = []string{b.Flat}
	}
	return len(a.Path) > len(path) && slices.Equal(a.Path[:len(path)], path)
}

// Shape returns a copy of a schema to which the fields of o are added.
func (o Options) Shape(in stream.Schema) stream.Schema {
	out := in.Clone()
	p, _ := compile(o.Path) // returns no error after Validate
	for _, c := range o.columns(p) {
		out, _ = fieldname.Lenient(c.name).Write(out, c.kind)
	}
	return out
}

// pattern is a compiled Path.
type pattern struct {
	names    []string
	match    *regexp.Regexp // nil if there is no pattern
	absolute bool
}

var token = regexp.MustCompile(`\{([^{}]*)\}|\*|[^{*]+|.`)

// compile compiles a path pattern. In a pattern, {name} matches one or more characters except
// slashes, as few as possible. * matches any number of characters except slashes. A pattern that
// begins with a slash must match the whole path. Any other pattern must match the end of the path:
// as many parts of the path as the pattern has. Example: for /logs/web/a.log, the pattern
// {app}/*.log gives the app "web".
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

// Adder adds the fields to batches. It is safe for concurrent use.
type Adder struct {
	mu      sync.Mutex // guards the fields below
	o       Options
	pattern pattern
	root    string // root of partition names that are relative paths
	host    string

	part   *stream.Partition // the partition to which the cached values belong
	values []string          // values of the fields; "" for null and for the offset
	offset int               // index of the offset among the fields; -1 if it is not added
	number []byte

	refs  []fieldname.Ref // references to the fields, in the same order
	paths bool            // a name has a path
	edit  fieldname.Editor
}

// New returns an Adder. The options must be valid. New returns nil if there are no fields to add.
// If partition names are relative paths, they are relative to root, which is written with slashes.
func New(o Options, root string) (*Adder, error) {
	if o == (Options{}) {
		return nil, nil
	}
	p, err := compile(o.Path)
	if err != nil {
		return nil, err
	}
	a := &Adder{o: o, pattern: p, root: root, offset: -1}
	for k, c := range o.columns(p) {
		if c.kind == stream.IntegerType {
			a.offset = k
		}
		n := fieldname.Lenient(c.name)
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

// Add adds the fields to the kept records of b. Call it when all records were read into b. If a is
// nil, Add does nothing.
func (a *Adder) Add(b *stream.Batch) {
	if a == nil || len(b.Spans) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b.Split()
	names := make([]uint32, len(a.refs))
	for k := range a.refs {
		a.refs[k].BeginWrite(b)
		names[k], _ = a.refs[k].Index()
	}
	var part *stream.Partition
	var made []stream.Field // fields of the current partition in this batch
	at := int64(0)          // start of the record's origin
	for i := range b.Records {
		r := &b.Records[i]
		if span := &b.Spans[r.Span]; i == 0 || b.Records[i-1].Span != r.Span {
			at = span.From.Num
			if span.Part != part {
				part = span.Part
				made = a.fields(b, part, names, made[:0])
			}
		} else if last := b.Records[i-1].Origin; last != r.Origin {
			at = last.Num
		}
		if r.State == stream.Kept {
			from := b.OpenFields(i)
			b.SetFields(i, from)
			for k, f := range made {
				if k == a.offset {
					a.number = strconv.AppendInt(a.number[:0], at, 10)
					f.Off, f.Len = b.AppendData(a.number)
				}
				a.set(b, i, k, f)
			}
		}
	}
}

// set sets field k of record i to f. The fields of record i must be the last ones in b.Fields.
func (a *Adder) set(b *stream.Batch, i, k int, f stream.Field) {
	if a.paths && a.edit.SetLast(b, &a.refs[k], i, f) == nil {
		return // SetLast returns no error, because Validate has checked the names
	}
	b.Fields = append(b.Fields, f)
	b.Records[i].NumFields++
}

// fields appends to out the fields that all records of a partition share, and appends their values
// to the batch's data. It also adds a field for the offset, with a value that is set later for each
// record.
func (a *Adder) fields(b *stream.Batch, part *stream.Partition, names []uint32,
	out []stream.Field) []stream.Field {
	a.setPartition(part)
	for k, value := range a.values {
		f := stream.Field{Name: names[k], Kind: stream.Null}
		switch {
		case k == a.offset:
			f.Kind = stream.Number
		case value != "":
			f.Kind = stream.Text
			f.Off, f.Len = b.AppendData([]byte(value))
		}
		out = append(out, f)
	}
	return out
}

// setPartition determines the values for the records of a partition.
func (a *Adder) setPartition(part *stream.Partition) {
	if a.part == part {
		return
	}
	a.part = part
	full := part.Name
	if !path.IsAbs(full) && a.root != "" && (a.pattern.absolute || a.o.File != "") {
		full = path.Join(a.root, full)
	}
	a.values = a.values[:0]
	if a.o.File != "" {
		a.values = append(a.values, full)
	}
	if a.o.Offset != "" {
		a.values = append(a.values, "")
	}
	if a.o.Host != "" {
		a.values = append(a.values, a.host)
	}
	if a.pattern.match == nil {
		return
	}
	found := a.pattern.match.FindStringSubmatch(full)
	if found == nil {
		found = make([]string, 1+len(a.pattern.names))
	}
	a.values = append(a.values, found[1:]...)
}
