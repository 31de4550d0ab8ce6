// Package drop holds the processor that takes fields out of records. To leave out records, see where.
//
// It owns nothing, and never changes a record's raw bytes.
package drop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock"
)

// Options of the processor: the names of the fields.
type Options []string

// Component is the processor's line in the list of components.
func Component() penstock.Component {
	return penstock.Component{
		Role:    penstock.ProcessorRole,
		Name:    "drop",
		Options: func() any { return new(Options) },
		New:     func(options any, _ penstock.Host) (any, error) { return New(*options.(*Options)), nil },
	}
}

// Validate implements the optional part of options.
func (o *Options) Validate() error {
	if len(*o) == 0 {
		return errors.New("names no field; write drop: [FIELD]")
	}
	return nil
}

// Shape implements penstock.Shaper.
func (o *Options) Shape(in penstock.Schema) (penstock.Schema, error) {
	var errs []error
	known := in.Names()
	for k, name := range *o {
		if slices.Contains((*o)[:k], name) {
			errs = append(errs, &penstock.OptionError{Key: fmt.Sprintf("[%d]", k), Err: fmt.Errorf("%s is named twice", name)})
			continue
		}
		at := in.Find(name)
		if at < 0 && !in.Open {
			errs = append(errs, &penstock.OptionError{
				Key: fmt.Sprintf("[%d]", k), Err: fmt.Errorf("there is no field %q", name), Word: name, Known: known,
			})
		}
		if at >= 0 {
			in.Fields = slices.Delete(in.Fields, at, at+1)
		}
	}
	return in, errors.Join(errs...)
}

// Processor drops fields of the records of batches. It serves one goroutine.
type Processor struct {
	names []string
	index []uint32
}

// New returns a processor.
func New(names []string) *Processor { return &Processor{names: names} }

// Process implements penstock.Processor.
func (p *Processor) Process(_ context.Context, b *penstock.Batch) error {
	b.Split()
	p.index = p.index[:0]
	for _, name := range p.names {
		if name == penstock.MessageName { // records that were not parsed have it, and no name yet
			p.index = append(p.index, b.Name(name))
		} else if i, ok := b.FindName(name); ok {
			p.index = append(p.index, i)
		}
	}
	if len(p.index) == 0 {
		return nil
	}
	for i := range b.Records {
		r := &b.Records[i]
		if r.State != penstock.Kept {
			continue
		}
		if !r.Parsed {
			b.SetFields(i, b.OpenFields(i))
		}
		fields := b.FieldsOf(i)
		n := 0
		for _, f := range fields {
			if !slices.Contains(p.index, f.Name) {
				fields[n] = f
				n++
			}
		}
		r.NumFields = uint32(n)
	}
	b.Parsed()
	return nil
}
