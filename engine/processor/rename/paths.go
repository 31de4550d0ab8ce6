package rename

import (
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// taken is a value that gets another name.
type taken struct {
	pair  *pair
	value stream.Field
}

// renamePaths renames the fields of record i. It is used if the options have a path, a name such as
// a.b. As an old name, this path matches two things: the flat field a.b, and the member b of the
// field a. All other names are those of flat fields. The table shows the results:
//
//	names that are paths   flat field becomes   member becomes
//	none                   flat field           -
//	only the old one       flat field           flat field
//	only the new one       member               -
//	both                   flat field           member
//
// If a pair of names fails, renamePaths returns it with the error, and leaves the record unchanged.
func (p *Processor) renamePaths(b *stream.Batch, i int) (*pair, error) {
	before := b.Records[i]
	from := b.OpenFields(i)
	b.SetFields(i, from)
	at, err := p.move(b, i)
	if err != nil {
		b.Fields, b.Records[i] = b.Fields[:from], before
	}
	return at, err
}

// move renames the fields of record i. They must be the last fields of the batch.
func (p *Processor) move(b *stream.Batch, i int) (at *pair, err error) {
	var moved []taken
	for k := range b.FieldsOf(i) {
		if at, moved, err = p.members(b, &b.FieldsOf(i)[k], moved); err != nil {
			return at, err
		}
	}
	moved = append(p.plain(b, i), moved...)
	p.rename(b, i)
	r := &b.Records[i]
	b.Fields = b.Fields[:r.Field+r.NumFields]
	for k, t := range moved {
		if t.pair.to.Path == nil && p.given(b, i, t, moved[:k]) {
			continue // the flat field takes precedence
		}
		if t.pair.moves || t.pair.to.Path == nil {
			err = p.edit.SetLast(b, &t.pair.to, i, t.value)
		} else {
			err = p.edit.SetPathLast(b, &t.pair.to, i, t.value)
		}
		if err != nil {
			return t.pair, err
		}
	}
	return nil, nil
}

// plain removes fields from record i and returns them. These are the fields with a new name that is
// a path, such as a.b: move then adds their values as members of an object.
func (p *Processor) plain(b *stream.Batch, i int) (moved []taken) {
	fields := b.FieldsOf(i)
	n := 0
	for _, f := range fields {
		k := slices.IndexFunc(p.pairs, func(q pair) bool { return q.moves && q.from.IsFlat(f) })
		if k >= 0 {
			p.unmatched.Matched(k)
			moved = append(moved, taken{&p.pairs[k], f})
			continue
		}
		fields[n] = f
		n++
	}
	b.Records[i].NumFields = uint32(n)
	return moved
}

// given reports whether another field or member with the same old name gives its value to the new
// name of t, which is a member that leaves its object. The value of t must then be dropped. The new
// name must not be a path.
//
// Example: a.b is renamed to c, and a record has both the flat field a.b and the member b of a.
// Then c gets the value of the flat field, and the value of the member is dropped.
func (p *Processor) given(b *stream.Batch, i int, t taken, earlier []taken) bool {
	if slices.ContainsFunc(earlier, func(e taken) bool { return e.pair == t.pair }) {
		return true
	}
	old, ok := t.pair.from.Index()
	return ok && slices.ContainsFunc(p.before, func(f stream.Field) bool { return f.Name == old })
}

// members renames members of the field f, if f is an object. If a member must get into another
// object or become a field, members removes the member from f and appends it to moved, from which
// move adds it under the new name.
func (p *Processor) members(b *stream.Batch, f *stream.Field,
	moved []taken) (*pair, []taken, error) {
	if !fieldname.IsObject(f.Kind, b.Value(*f)) {
		return nil, moved, nil
	}
	var o *fieldname.Object
	changed := false
	for k := range p.pairs {
		q := &p.pairs[k]
		if !q.from.IsRoot(*f) {
			continue
		}
		if o == nil {
			var err error
			if o, err = fieldname.Open(b.Value(*f)); err != nil {
				return q, moved, fmt.Errorf("field %s: %w", q.from.Path[0], err)
			}
		}
		found, err := p.member(b, q, o, *f, &moved)
		if err != nil {
			return q, moved, fmt.Errorf("field %s: %w", q.from.Path[0], err)
		}
		if found {
			p.unmatched.Matched(k)
			changed = true
		}
	}
	if changed {
		o.Settle()
		p.edit.Put(b, f, o)
	}
	return nil, moved, nil
}

// member renames one member of the field f, whose object is o. If the new name is a field or a
// member of another object, it removes the member from o and appends it to moved. Its caller then
// adds it under the new name.
func (p *Processor) member(b *stream.Batch, q *pair, o *fieldname.Object, f stream.Field,
	moved *[]taken) (found bool, err error) {
	last := len(q.from.Path) - 1
	if q.to.Path != nil && len(q.to.Path) == last+1 &&
		slices.Equal(q.to.Path[:last], q.from.Path[:last]) {
		return o.Rename(q.from.Path[1:], q.to.Path[last])
	}
	v, ok, err := o.Take(q.from.Path[1:])
	if err != nil || !ok {
		return false, err
	}
	value := stream.Field{Kind: v.Kind}
	value.Off, value.Len = b.AppendData(v.Raw)
	*moved = append(*moved, taken{q, value})
	return true, nil
}
