// Package set implements the processor that sets fields of records.
//
// The processor never changes the raw bytes of a record.
package set

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// Options has the fields to set, in order.
type Options []Assignment

// Assignment is the name of one field, with the expression of its value. An unquoted name with
// dots, such as a.b, sets the flat field a.b if the record has one. Otherwise it sets the member b
// of the object a. See package fieldname.
type Assignment struct {
	Field string    `yaml:",key"`
	Value expr.Text `yaml:",value"`

	program *expr.Program
	onError string
}

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "set",
		func() *Options { return new(Options) }, New)
}

// Validate returns an error for each invalid assignment.
func (o *Options) Validate() error {
	if len(*o) == 0 {
		return errors.New("has no field; write set: {FIELD: VALUE}")
	}
	var errs []error
	for _, a := range *o {
		if _, err := fieldname.Parse(a.Field); err != nil {
			errs = append(errs, &stream.OptionError{Key: a.Field, Err: err})
		}
	}
	return errors.Join(errs...)
}

// Shape implements stream.Shaper. All expressions see the record as it was before the first
// assignment.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	out := in.Clone()
	var errs []error
	for k := range *o {
		a := &(*o)[k]
		program, err := expr.Value(string(a.Value), in)
		if err != nil {
			errs = append(errs, expr.Option(a.Field, err))
			continue
		}
		a.program, a.onError = program, in.OnError
		if out, err = fieldname.Lenient(a.Field).Write(out, program.Type()); err != nil {
			errs = append(errs, &stream.OptionError{Key: a.Field, Err: err})
		}
	}
	return out, errors.Join(errs...)
}

// Processor sets fields of records. It must be used by one goroutine.
type Processor struct {
	fields []field
	paths  bool // a name has a path
	edit   fieldname.Editor
	host   stream.Host
}

type field struct {
	*Assignment
	value *expr.Evaluator
	ref   fieldname.Ref
	name  uint32       // of the flat field
	made  stream.Field // value in the current record
}

// New returns a processor. If Shape was not called before, expressions may use any field.
func New(o Options, h stream.Host) (*Processor, error) {
	p := &Processor{host: h}
	for k := range o {
		a := &o[k]
		if a.program == nil {
			if _, err := o.Shape(stream.Schema{Open: true}); err != nil {
				return nil, err
			}
		}
		name := fieldname.Lenient(a.Field)
		p.fields = append(p.fields, field{
			Assignment: a, value: expr.NewEvaluator(a.program), ref: fieldname.Ref{Name: name},
		})
		p.paths = p.paths || name.Path != nil
	}
	return p, nil
}

// Process implements stream.Processor.
func (p *Processor) Process(_ context.Context, b *stream.Batch) error {
	b.Split()
	for k := range p.fields {
		p.fields[k].ref.BeginWrite(b)
		p.fields[k].name, _ = p.fields[k].ref.Index()
	}
	for k := range p.fields {
		p.fields[k].value.Begin(b)
	}
	wrong := 0
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		at, err := p.evaluate(i)
		switch {
		case err != nil:
		case p.paths:
			at, err = p.assignPaths(b, i)
		default:
			p.assign(b, i)
		}
		if err != nil {
			b.Refuse(i, at.onError, fmt.Errorf("set %s: %w", at.Field, err))
			wrong++
		}
	}
	b.Parsed()
	if wrong > 0 {
		p.host.Count("records_unset", int64(wrong))
	}
	return nil
}

// evaluate computes all values for record i. After an error, it returns the field that has failed.
func (p *Processor) evaluate(i int) (*field, error) {
	for k := range p.fields {
		f := &p.fields[k]
		made, err := f.value.Field(i)
		if err != nil {
			return f, err
		}
		made.Name = f.name
		f.made = made
	}
	return nil, nil
}

// assign sets the values in record i. If the record is parsed and already has all the fields,
// assign changes them in place. Otherwise it changes a copy of the record's fields.
func (p *Processor) assign(b *stream.Batch, i int) {
	inPlace := b.Records[i].Parsed
	for k := range p.fields {
		if _, ok := b.FieldNamed(i, p.fields[k].name); !ok {
			inPlace = false
		}
	}
	if !inPlace {
		b.SetFields(i, b.OpenFields(i))
	}
	for k := range p.fields {
		if at, ok := b.FieldNamed(i, p.fields[k].name); ok {
			*at = p.fields[k].made
			continue
		}
		// the fields of this record are the last ones of the batch
		b.Fields = append(b.Fields, p.fields[k].made)
		b.Records[i].NumFields++
	}
}

// assignPaths sets the values in record i if some of the names are paths, such as a.b. If a field
// cannot be set, assignPaths returns it with the error, and leaves the record unchanged.
func (p *Processor) assignPaths(b *stream.Batch, i int) (*field, error) {
	before := b.Records[i]
	from := b.OpenFields(i)
	b.SetFields(i, from)
	for k := range p.fields {
		f := &p.fields[k]
		if err := p.edit.SetLast(b, &f.ref, i, f.made); err != nil {
			b.Fields, b.Records[i] = b.Fields[:from], before
			return f, err
		}
	}
	return nil, nil
}
