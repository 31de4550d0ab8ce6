// Package rename holds the processor that gives fields of records other names, at the place where they stand.
//
// It owns nothing, and never changes a record's raw bytes.
package rename

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock"
)

// Options of the processor: old names with new ones.
type Options []Pair

// Pair is one of them.
type Pair struct {
	Old string `yaml:",key"`
	New string `yaml:",value"`
}

// Component is the processor's line in the list of components.
func Component() penstock.Component {
	return penstock.Component{
		Role:    penstock.ProcessorRole,
		Name:    "rename",
		Options: func() any { return new(Options) },
		New:     func(options any, _ penstock.Host) (any, error) { return New(*options.(*Options)), nil },
	}
}

// Validate implements the optional part of options.
func (o *Options) Validate() error {
	if len(*o) == 0 {
		return errors.New("names no field; write rename: {OLD: NEW}")
	}
	var errs []error
	for k, p := range *o {
		switch {
		case p.New == "":
			errs = append(errs, option(p.Old, "is empty; write the field's new name"))
		case p.New == p.Old:
			errs = append(errs, option(p.Old, "the new name is the old one"))
		case slices.ContainsFunc((*o)[:k], func(q Pair) bool { return q.New == p.New }):
			errs = append(errs, option(p.Old, "two fields would be named %s", p.New))
		}
	}
	return errors.Join(errs...)
}

func option(key, format string, args ...any) *penstock.OptionError {
	return &penstock.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
}

// Shape implements penstock.Shaper.
func (o *Options) Shape(in penstock.Schema) (penstock.Schema, error) {
	out := in.Clone()
	var errs []error
	for _, p := range *o {
		at := in.Find(p.Old)
		if at < 0 && !in.Open {
			e := option(p.Old, "there is no field %q", p.Old)
			e.Word, e.Known = p.Old, in.Names()
			errs = append(errs, e)
			continue
		}
		taken := in.Find(p.New) >= 0 && !slices.ContainsFunc(*o, func(q Pair) bool { return q.Old == p.New })
		if taken && !in.Open {
			errs = append(errs, option(p.Old, "there is a field %s already; drop or rename it first", p.New))
			continue
		}
		if at >= 0 {
			out.Fields[at].Name = p.New
		}
	}
	kept := out.Fields[:0]
	for k, f := range out.Fields { // in an open schema a field may take another's place
		if out.Find(f.Name) == k {
			kept = append(kept, f)
		}
	}
	out.Fields = kept
	return out, errors.Join(errs...)
}

// Processor renames fields of the records of batches. It serves one goroutine.
type Processor struct {
	pairs  []Pair
	index  []struct{ from, to uint32 }
	before []penstock.Field // of the record at hand
}

// New returns a processor.
func New(pairs []Pair) *Processor { return &Processor{pairs: pairs} }

// Process implements penstock.Processor. All fields get their new names at once, so that two may change theirs. A field that
// has a new name already gives way to the one that gets it.
func (p *Processor) Process(_ context.Context, b *penstock.Batch) error {
	b.Split()
	p.index = p.index[:0]
	for _, pair := range p.pairs {
		from, ok := b.FindName(pair.Old)
		if pair.Old == penstock.MessageName { // records that were not parsed have it, and no name yet
			from, ok = b.Name(pair.Old), true
		}
		if ok {
			p.index = append(p.index, struct{ from, to uint32 }{from, b.Name(pair.New)})
		}
	}
	if len(p.index) == 0 {
		return nil
	}
	for i := range b.Records {
		if b.Records[i].State == penstock.Kept {
			p.rename(b, i)
		}
	}
	b.Parsed()
	return nil
}

func (p *Processor) rename(b *penstock.Batch, i int) {
	r := &b.Records[i]
	if !r.Parsed {
		b.SetFields(i, b.OpenFields(i))
	}
	fields := b.FieldsOf(i)
	p.before = append(p.before[:0], fields...)
	n := 0
	for _, f := range p.before {
		to, renamed := p.newName(f.Name)
		if !renamed && p.replaced(f.Name) {
			continue
		}
		f.Name = to
		fields[n] = f
		n++
	}
	r.NumFields = uint32(n)
}

// newName is the name that a field gets, or the one that it has.
func (p *Processor) newName(name uint32) (uint32, bool) {
	for _, x := range p.index {
		if x.from == name {
			return x.to, true
		}
	}
	return name, false
}

// replaced says whether another field of the record gets the name of one that keeps it.
func (p *Processor) replaced(name uint32) bool {
	for _, x := range p.index {
		if x.to == name && slices.ContainsFunc(p.before, func(f penstock.Field) bool { return f.Name == x.from }) {
			return true
		}
	}
	return false
}
