// Package parse implements the processor that splits the text of a record into fields.
//
// A field is a range of bytes in the batch's data. No text is copied, except unescaped texts, which
// are appended to the data. The raw bytes of a record are never changed. Parsing a record usually
// allocates no memory. It does for some expressions of `format: regex`, which need package regexp,
// and for JSON keys with escapes.
package parse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the processor.
type Options struct {
	Format  string            `yaml:"format" enum:"combined,common,json,dissect,regex" required:"true" doc:"format of the text"`
	Pattern string            `yaml:"pattern" expr:"true" doc:"for dissect or regex: pattern with the fields"`
	Types   map[string]string `yaml:"types" enum:"text,integer,number,bool" doc:"for dissect or regex: types of fields that are not text"`
	Field   string            `yaml:"field" doc:"field to parse, which the result replaces; default: the whole record"`
	OnError string            `yaml:"on_error" enum:"dead_letter,pass,drop" doc:"handling of records that do not parse"`

	made *format
}

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "parse",
		func() *Options { return &Options{OnError: "dead_letter"} }, New)
}

// format is the immutable part of a processor. All instances share it.
type format struct {
	fields []stream.SchemaField
	open   bool
	make   func() splitter
}

// splitter splits texts into fields. Each instance has its own.
type splitter interface {
	// begin is called before the first split of a batch.
	begin(b *stream.Batch)
	// split appends the fields of the text b.Data[off:off+n] to b.Fields. If it returns a problem,
	// the caller removes these fields.
	split(b *stream.Batch, off, n uint32) problem
}

// problem is the reason why a text cannot be parsed. The zero value means that there is no problem.
// It is not an error value, so that it needs no allocation.
type problem struct {
	what string // "" if there is no problem
	at   int    // offset in the text in bytes; -1 if the problem concerns the whole text
}

// textError is the reason why a record becomes a dead letter if its text cannot be parsed.
type textError struct {
	format  string
	problem problem
}

// Error implements error. It contains the format, the position (counted from 1) and the problem.
func (e *textError) Error() string {
	if e.problem.at < 0 {
		return fmt.Sprintf("parse %s: %s", e.format, e.problem.what)
	}
	return fmt.Sprintf("parse %s: byte %d: %s", e.format, e.problem.at+1, e.problem.what)
}

// Group implements stream.Grouped.
func (e *textError) Group() (reason, detail string) {
	if e.problem.at >= 0 {
		detail = fmt.Sprintf("byte %d", e.problem.at+1)
	}
	return fmt.Sprintf("parse %s: %s", e.format, e.problem.what), detail
}

// Validate returns an error for each invalid option.
func (o *Options) Validate() error {
	var errs []error
	patterned := o.Format == "dissect" || o.Format == "regex"
	switch {
	case patterned && o.Pattern == "":
		errs = append(errs, option("format",
			fmt.Errorf("%s needs a pattern with the names of the fields", o.Format)))
	case !patterned && o.Pattern != "":
		errs = append(errs, option("pattern",
			fmt.Errorf("is for dissect and regex; %s has fixed fields", o.Format)))
	}
	if !patterned && len(o.Types) > 0 {
		errs = append(errs, option("types",
			fmt.Errorf("is for dissect and regex; %s has fixed types", o.Format)))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	made, err := newFormat(o)
	o.made = made
	return err
}

func option(key string, err error) error { return &stream.OptionError{Key: key, Err: err} }

func newFormat(o *Options) (*format, error) {
	switch o.Format {
	case "combined", "common":
		return newCLF(o.Format == "combined"), nil
	case "json":
		return newJSON(), nil
	case "dissect":
		return newDissect(o)
	case "regex":
		return newRegex(o)
	}
	return nil, option("format", fmt.Errorf("there is no %q", o.Format))
}

// Shape implements stream.Shaper.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	found := o.made.fields
	if o.Field == "" {
		if lost := o.discarded(in); len(lost) > 0 {
			err := fmt.Errorf("existing fields of the record would be lost (%s); add `field: "+
				"message` to keep them, or remove them", strings.Join(lost, ", "))
			return in, option("", err)
		}
		out := stream.Schema{Fields: found, Open: o.made.open, OnError: o.OnError}
		// only some records have this field
		if o.OnError == "pass" && out.Find(stream.MessageName) < 0 {
			out.Fields = append(out.Clone().Fields,
				stream.SchemaField{Name: stream.MessageName, Type: stream.TextType})
		}
		return out, nil
	}
	at := in.Find(o.Field)
	if at < 0 && !in.Open {
		return in, &stream.OptionError{
			Key: "field", Err: fmt.Errorf("there is no field %q here", o.Field), Word: o.Field,
			Known: in.Names(),
		}
	}
	if at >= 0 {
		if t := in.Fields[at].Type; t == stream.IntegerType || t == stream.NumberType ||
			t == stream.BoolType {
			return in, option("field", fmt.Errorf("%s is %s, but only text can be parsed",
				o.Field, t))
		}
	}
	out := stream.Schema{Open: in.Open || o.made.open, OnError: o.OnError}
	add := func(f stream.SchemaField) {
		if i := out.Find(f.Name); i >= 0 {
			out.Fields[i] = f
			return
		}
		out.Fields = append(out.Fields, f)
	}
	for i, f := range in.Fields {
		if i != at || o.OnError == "pass" { // the field stays if its text cannot be parsed
			add(f)
		}
		if i != at {
			continue
		}
		for _, f := range found {
			add(f)
		}
	}
	return out, nil
}

// discarded returns the names of the fields that records lose when their whole text is parsed, such
// as the fields of `meta`.
func (o *Options) discarded(in stream.Schema) (lost []string) {
	if in.Open || len(in.Fields) == 0 || in.Fields[0].Name != stream.MessageName {
		return nil // an earlier processor has parsed the record
	}
	found := stream.Schema{Fields: o.made.fields}
	for _, f := range in.Fields[1:] {
		if found.Find(f.Name) < 0 {
			lost = append(lost, f.Name)
		}
	}
	return lost
}

// Processor parses records. It must be used by one goroutine.
type Processor struct {
	options *Options
	host    stream.Host
	split   splitter
	field   uint32
}

// New returns a processor, or an error if the options are invalid.
func New(o Options, h stream.Host) (*Processor, error) {
	if o.made == nil { // it is used without a config
		if err := o.Validate(); err != nil {
			return nil, err
		}
	}
	h.Count("records_unparsed", 0)
	return &Processor{options: &o, host: h, split: o.made.make()}, nil
}

// Process implements stream.Processor.
func (p *Processor) Process(_ context.Context, b *stream.Batch) error {
	b.Split()
	if len(b.Records) == 0 {
		return nil
	}
	if p.options.Field != "" {
		p.field = b.Name(p.options.Field)
	}
	p.split.begin(b)
	wrong := 0
	for i := range b.Records {
		r := &b.Records[i]
		if r.State != stream.Kept {
			continue
		}
		from := len(b.Fields)
		var bad problem
		if p.options.Field == "" {
			bad = p.split.split(b, r.Off, r.Len)
		} else {
			bad = p.within(b, i)
		}
		if bad.what == "" {
			r.Field, r.NumFields, r.Parsed = uint32(from), uint32(len(b.Fields)-from), true
			continue
		}
		b.Fields = b.Fields[:from]
		wrong++
		b.Refuse(i, p.options.OnError, &textError{p.options.Format, bad})
	}
	b.Parsed()
	if wrong > 0 {
		p.host.Count("records_unparsed", int64(wrong))
	}
	return nil
}
