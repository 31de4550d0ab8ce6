// Package set holds the processor that gives records fields.
//
// It owns nothing. A value that is another field of the record is the same bytes; others are written behind the batch's raw
// bytes, which it never changes.
package set

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/expr"
)

// Options of the processor: fields with their values, in order.
type Options []Assignment

// Assignment is one field with the expression that gives its value.
type Assignment struct {
	Field string    `yaml:",key"`
	Value expr.Text `yaml:",value"`

	program *expr.Program
	onError string
}

// Component is the processor's line in the list of components.
func Component() penstock.Component {
	return penstock.Component{
		Role:    penstock.ProcessorRole,
		Name:    "set",
		Options: func() any { return new(Options) },
		New: func(options any, h penstock.Host) (any, error) {
			return New(options.(*Options), h)
		},
	}
}

// Validate implements the optional part of options.
func (o *Options) Validate() error {
	if len(*o) == 0 {
		return errors.New("sets no field; write set: {FIELD: VALUE}")
	}
	for _, a := range *o {
		if a.Field == "" {
			return errors.New("the empty name is no name of a field")
		}
	}
	return nil
}

// Shape implements penstock.Shaper. All values are taken from the record as it came in, whatever their order.
func (o *Options) Shape(in penstock.Schema) (penstock.Schema, error) {
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
		f := penstock.SchemaField{Name: a.Field, Type: program.Type()}
		if at := out.Find(a.Field); at >= 0 {
			out.Fields[at] = f
		} else {
			out.Fields = append(out.Fields, f)
		}
	}
	return out, errors.Join(errs...)
}

// Processor sets fields of the records of batches. It serves one goroutine.
type Processor struct {
	fields []field
	host   penstock.Host
}

type field struct {
	*Assignment
	value *expr.Evaluator
	name  uint32
	made  penstock.Field // for the record at hand
}

// New returns a processor. Without a config, which would say more, records may have any fields.
func New(o *Options, h penstock.Host) (*Processor, error) {
	p := &Processor{host: h}
	for k := range *o {
		a := &(*o)[k]
		if a.program == nil {
			if _, err := o.Shape(penstock.Schema{Open: true}); err != nil {
				return nil, err
			}
		}
		p.fields = append(p.fields, field{Assignment: a, value: expr.NewEvaluator(a.program)})
	}
	return p, nil
}

// Process implements penstock.Processor.
func (p *Processor) Process(_ context.Context, b *penstock.Batch) error {
	b.Split()
	for k := range p.fields {
		p.fields[k].name = b.Name(p.fields[k].Field)
	}
	for k := range p.fields {
		p.fields[k].value.Begin(b)
	}
	wrong := 0
	for i := range b.Records {
		if b.Records[i].State != penstock.Kept {
			continue
		}
		if at, err := p.evaluate(i); err != nil {
			b.Refuse(i, at.onError, fmt.Errorf("set %s: %w", at.Field, err))
			wrong++
			continue
		}
		p.assign(b, i)
	}
	b.Parsed()
	if wrong > 0 {
		p.host.Count("records_unset", int64(wrong))
	}
	return nil
}

// evaluate makes all values for record i, or says which cannot be made.
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

// assign gives record i the values: in place where it has them all, else in a new place.
func (p *Processor) assign(b *penstock.Batch, i int) {
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
		b.Fields = append(b.Fields, p.fields[k].made) // they are the last: this record's
		b.Records[i].NumFields++
	}
}
