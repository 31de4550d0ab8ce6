// Package rename implements the processor that renames fields.
//
// The processor never changes the raw bytes of a record.
package rename

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// Options has pairs of an old and a new name. An unquoted old name with dots means two things: the
// flat field, which has exactly this name, and the member at that path. Both are renamed. See
// package fieldname.
type Options []Pair

// Pair has the old and the new name of one field.
type Pair struct {
	Old string `yaml:",key"`
	New string `yaml:",value"`

	onError string
}

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "rename",
		func() *Options { return new(Options) },
		func(o Options, h stream.Host) (*Processor, error) {
			p := New(o)
			p.host = h
			return p, nil
		})
}

// Validate returns an error for each invalid pair.
func (o *Options) Validate() error {
	if len(*o) == 0 {
		return errors.New("has no field; write rename: {OLD: NEW}")
	}
	var errs []error
	for k, p := range *o {
		_, bad := fieldname.Parse(p.Old)
		_, wrong := fieldname.Parse(p.New)
		switch {
		case p.New == "":
			errs = append(errs, stream.OptionErrorf(p.Old, "is empty; write the field's new name"))
		case bad != nil || wrong != nil:
			errs = append(errs, stream.OptionErrorf(p.Old, "%w", cmp.Or(bad, wrong)))
		case p.New == p.Old:
			errs = append(errs, stream.OptionErrorf(p.Old, "the new name is the old one"))
		case slices.ContainsFunc((*o)[:k], func(q Pair) bool { return q.New == p.New }):
			errs = append(errs, stream.OptionErrorf(p.Old, "two fields would be named %s", p.New))
		}
	}
	return errors.Join(errs...)
}

// Shape implements stream.Shaper.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	out := in.Clone()
	var errs []error
	for k := range *o {
		p := &(*o)[k]
		p.onError = in.OnError
		from, to := fieldname.Lenient(p.Old), fieldname.Lenient(p.New)
		at, nested, err := from.Find(in)
		switch {
		case err != nil:
			errs = append(errs, stream.OptionErrorf(p.Old, "%w", err))
			continue
		case at < 0 && !in.Open:
			errs = append(errs, fieldname.Missing(p.Old, p.Old, in))
			continue
		}
		taken := in.Find(to.Flat) >= 0 &&
			!slices.ContainsFunc(*o, func(q Pair) bool { return q.Old == p.New })
		if taken && !in.Open {
			errs = append(errs, stream.OptionErrorf(p.Old, "a field %s already exists; drop or "+
				"rename it first", to.Flat))
			continue
		}
		switch {
		case at < 0:
		case nested && to.Path == nil:
			out.Fields = append(out.Fields, stream.SchemaField{Name: to.Flat})
		case nested || to.Path != nil && from.Path == nil:
			t := in.Fields[at].Type
			if !nested {
				// removed below, so that other fields keep their positions until then
				out.Fields[at].Name = ""
			}
			if out, err = to.Write(out, t); err != nil {
				errs = append(errs, stream.OptionErrorf(p.Old, "%w", err))
			}
		default:
			out.Fields[at].Name = to.Flat
		}
	}
	kept := out.Fields[:0]
	for k, f := range out.Fields { // in an open schema, a field may replace another one
		if f.Name != "" && out.Find(f.Name) == k {
			kept = append(kept, f)
		}
	}
	out.Fields = kept
	return out, errors.Join(errs...)
}

// Processor renames fields of records. It must be used by one goroutine.
type Processor struct {
	pairs     []pair
	flat      []change // for the current batch: flat fields that stay flat
	before    []stream.Field
	paths     bool // a pair has a path
	edit      fieldname.Editor
	unmatched fieldname.Unmatched
	host      stream.Host // nil if there are no counters
}

// pair is a Pair with references to its names in a batch.
type pair struct {
	Pair
	from, to fieldname.Ref
	moves    bool // a flat field becomes a member of an object
}

// change renames a flat field.
type change struct {
	from, to uint32
	pair     int
}

// New returns a processor.
func New(pairs []Pair) *Processor {
	p := &Processor{}
	for _, q := range pairs {
		from, to := fieldname.Lenient(q.Old), fieldname.Lenient(q.New)
		p.pairs = append(p.pairs, pair{
			Pair: q, from: fieldname.Ref{Name: from}, to: fieldname.Ref{Name: to},
			moves: from.Path == nil && to.Path != nil,
		})
		p.paths = p.paths || from.Path != nil || to.Path != nil
	}
	return p
}

// Process implements stream.Processor. It renames all fields at the same time, so that two fields
// can exchange their names. If a record has another field with the new name, that field is
// replaced.
func (p *Processor) Process(_ context.Context, b *stream.Batch) error {
	b.Split()
	p.unmatched.Begin(b, len(p.pairs))
	defer p.unmatched.End(p.host, p.text)
	if !p.begin(b) {
		return nil
	}
	wrong := 0
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		if !p.paths {
			p.rename(b, i)
			continue
		}
		if at, err := p.renamePaths(b, i); err != nil {
			b.Refuse(i, at.onError, fmt.Errorf("rename %s: %w", at.Old, err))
			wrong++
		}
	}
	b.Parsed()
	if wrong > 0 && p.host != nil {
		p.host.Count("records_unrenamed", int64(wrong))
	}
	return nil
}

// text returns old name k as written in the config.
func (p *Processor) text(k int) string { return p.pairs[k].Old }

// begin looks up the names in a batch. It reports whether records may have one of the old names.
func (p *Processor) begin(b *stream.Batch) (possible bool) {
	p.flat = p.flat[:0]
	for k := range p.pairs {
		q := &p.pairs[k]
		q.from.Begin(b)
		if !q.from.Possible() {
			continue
		}
		possible = true
		if p.paths {
			q.to.BeginWrite(b)
		}
		if from, ok := q.from.Index(); ok && !q.moves {
			p.flat = append(p.flat, change{from, b.Name(q.to.Flat), k})
		}
	}
	return possible
}

func (p *Processor) rename(b *stream.Batch, i int) {
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

// newName returns the new name of a field. It returns false if the field is not renamed.
func (p *Processor) newName(name uint32) (uint32, bool) {
	for _, x := range p.flat {
		if x.from == name {
			p.unmatched.Matched(x.pair)
			return x.to, true
		}
	}
	return name, false
}

// replaced reports whether another field of the record gets this name.
func (p *Processor) replaced(name uint32) bool {
	for _, x := range p.flat {
		if x.to == name &&
			slices.ContainsFunc(p.before, func(f stream.Field) bool { return f.Name == x.from }) {
			return true
		}
	}
	return false
}
