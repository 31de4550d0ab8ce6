package stream

import "slices"

// MessageName is the one field of a record that was not parsed: its text.
const MessageName = "message"

// Name returns the index of a field's name in Names, and adds it where it is missing. It looks
// through all of them: ask once a batch, not once a record.
func (b *Batch) Name(name string) uint32 {
	if i, ok := b.FindName(name); ok {
		return i
	}
	b.Names = append(b.Names, name)
	return uint32(len(b.Names) - 1)
}

// FindName returns the index of a field's name in Names, and false where no record of the batch has
// had it.
func (b *Batch) FindName(name string) (uint32, bool) {
	i := slices.Index(b.Names, name)
	return uint32(max(i, 0)), i >= 0
}

// TypeOf returns the type that the source's table declares for the field with that index in Names,
// as PostgreSQL calls it ("bigint", "numeric(10,2)", "timestamp with time zone", "bytea"), for
// sinks that make a table; "": nothing is known.
func (b *Batch) TypeOf(name uint32) string {
	if int(name) < len(b.Types) {
		return b.Types[name]
	}
	return ""
}

// FieldsOf returns the fields of record i, in order; none of a record that was not parsed. The
// batch's one owner may change them in place while it is processed.
func (b *Batch) FieldsOf(i int) []Field {
	r := &b.Records[i]
	return b.Fields[r.Field : r.Field+r.NumFields : r.Field+r.NumFields]
}

// FieldNamed returns the field of record i whose name has that index in Names. A name stands once
// in a record.
func (b *Batch) FieldNamed(i int, name uint32) (*Field, bool) {
	fields := b.FieldsOf(i)
	for k := range fields {
		if fields[k].Name == name {
			return &fields[k], true
		}
	}
	return nil, false
}

// SetFields makes Fields[from:] the fields of record i, in place of those that it had, and marks
// the record as parsed. Append them first.
func (b *Batch) SetFields(i, from int) {
	r := &b.Records[i]
	r.Field, r.NumFields, r.Parsed = uint32(from), uint32(len(b.Fields)-from), true
	b.changed = true
}

// OpenFields appends the fields of record i to Fields, for SetFields, and returns where they start;
// of a record that was not parsed its text, as the field message.
func (b *Batch) OpenFields(i int) (from int) {
	from = len(b.Fields)
	r := &b.Records[i]
	if !r.Parsed && r.NumFields == 0 {
		b.Fields = append(b.Fields, Field{Name: b.Name(MessageName), Off: r.Off, Len: r.Len})
		return from
	}
	b.Fields = append(b.Fields, b.FieldsOf(i)...)
	return from
}

// AppendData puts text into the arena behind what is there, and returns where: for values that a
// processor makes. It is counted to no span.
func (b *Batch) AppendData(text []byte) (off, n uint32) {
	off = uint32(len(b.Data))
	b.Data = append(b.Data, text...)
	return off, uint32(len(text))
}

// Refuse does with record i, on which a processor cannot work, what onError says: dead_letter (or
// "") buries it for the reason, drop leaves it out, pass leaves it as it is.
func (b *Batch) Refuse(i int, onError string, reason error) {
	switch onError {
	case "pass":
	case "drop":
		b.Drop(i)
	default:
		b.Bury(i, reason)
	}
}
