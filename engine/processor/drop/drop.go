// Package drop implements the processor that removes fields from records. To remove whole records,
// use the processor `where`.
//
// The processor never changes the raw bytes of a record.
package drop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// Options has the names of the fields to remove. An unquoted name with dots means two things: the
// flat field, which has exactly this name, and the member at that path. Both are removed. See
// package fieldname.
type Options []string

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "drop",
		func() *Options { return new(Options) },
		func(o Options, h stream.Host) (*Processor, error) {
			p := New(o)
			p.host = h
			return p, nil
		})
}

// Validate returns an error for each invalid name.
func (o *Options) Validate() error {
	if len(*o) == 0 {
		return errors.New("has no field; write drop: [FIELD]")
	}
	var errs []error
	for k, text := range *o {
		if _, err := fieldname.Parse(text); err != nil {
			errs = append(errs, &stream.OptionError{Key: key(k), Err: err})
		}
	}
	return errors.Join(errs...)
}

func key(k int) string { return fmt.Sprintf("[%d]", k) }

// Shape implements stream.Shaper.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	var errs []error
	out := in.Clone()
	for k, text := range *o {
		if slices.Contains((*o)[:k], text) {
			errs = append(errs, stream.OptionErrorf(key(k), "%s is named twice", text))
			continue
		}
		name := fieldname.Lenient(text)
		at, nested, err := name.Find(in)
		switch {
		case err != nil:
			errs = append(errs, &stream.OptionError{Key: key(k), Err: err})
		case at < 0 && !in.Open:
			errs = append(errs, fieldname.Missing(key(k), text, in))
		case at >= 0 && !nested:
			out.Fields = slices.DeleteFunc(out.Fields,
				func(f stream.SchemaField) bool { return f.Name == name.Flat })
		}
	}
	return out, errors.Join(errs...)
}

// Processor removes fields from records. It must be used by one goroutine.
type Processor struct {
	options   []string
	names     []fieldname.Ref
	host      stream.Host // nil if there are no counters
	edit      fieldname.Editor
	unmatched fieldname.Unmatched
}

// New returns a processor.
func New(names []string) *Processor {
	p := &Processor{options: names}
	for _, text := range names {
		p.names = append(p.names, fieldname.Ref{Name: fieldname.Lenient(text)})
	}
	return p
}

// Process implements stream.Processor. A name such as a.b removes member b from the JSON object in
// field a. If this object cannot be parsed, the record becomes a dead letter, because b may be in
// it.
func (p *Processor) Process(_ context.Context, b *stream.Batch) error {
	b.Split()
	p.unmatched.Begin(b, len(p.names))
	defer p.unmatched.End(p.host, p.text)
	possible := false
	for k := range p.names {
		p.names[k].Begin(b)
		possible = possible || p.names[k].Possible()
	}
	if !possible {
		return nil
	}
	for i := range b.Records {
		r := &b.Records[i]
		if r.State != stream.Kept {
			continue
		}
		if !r.Parsed {
			b.SetFields(i, b.OpenFields(i))
		}
		if err := p.drop(b, i); err != nil {
			b.DeadLetter(i, fmt.Errorf("drop: %w", err))
		}
	}
	b.Parsed()
	return nil
}

// text returns name k as written in the config.
func (p *Processor) text(k int) string { return p.options[k] }

func (p *Processor) drop(b *stream.Batch, i int) error {
	fields := b.FieldsOf(i)
	n := 0
	for _, f := range fields {
		gone, err := p.field(b, &f)
		if err != nil {
			return err
		}
		if !gone {
			fields[n] = f
			n++
		}
	}
	b.Records[i].NumFields = uint32(n)
	return nil
}

// field reports whether the whole field f must be removed. If it must not, and f is an object,
// field removes the named members from f.
func (p *Processor) field(b *stream.Batch, f *stream.Field) (gone bool, err error) {
	for k := range p.names {
		name := &p.names[k]
		if name.IsFlat(*f) {
			p.unmatched.Matched(k)
			return true, nil
		}
		if !name.IsRoot(*f) {
			continue
		}
		removed, err := p.edit.Remove(b, name, f)
		if err != nil {
			return false, err
		}
		if removed {
			p.unmatched.Matched(k)
		}
	}
	return false, nil
}
