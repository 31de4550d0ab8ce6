package stream

import "slices"

// MessageName is the name of the only field of an unparsed record: its text.
const MessageName = "message"

// Name returns the index of a field's name in Names, and adds the name if it is missing. It
// searches linearly, so call it once per batch, not once per record.
func (b *Batch) Name(name string) uint32 {
	if i, ok := b.FindName(name); ok {
		return i
	}
	b.Names = append(b.Names, name)
	return uint32(len(b.Names) - 1)
}

// FindName returns the index of a field's name in Names, and false if Names does not contain it.
func (b *Batch) FindName(name string) (uint32, bool) {
	i := slices.Index(b.Names, name)
	return uint32(max(i, 0)), i >= 0
}

// TypeOf returns the type of a field as declared by the source's table, for sinks that create a
// table. The parameter name is the index of the field's name in Names. The type is a PostgreSQL
// type, such as "bigint", "numeric(10,2)" or "timestamp with time zone". It is "" if unknown.
func (b *Batch) TypeOf(name uint32) string {
	if int(name) < len(b.Types) {
		return b.Types[name]
	}
	return ""
}

// FieldsOf returns the fields of record i, in order. For an unparsed record it returns none, not
// even message. While the batch is processed, its owner may change the fields in place.
func (b *Batch) FieldsOf(i int) []Field {
	r := &b.Records[i]
	return b.Fields[r.Field : r.Field+r.NumFields : r.Field+r.NumFields]
}

// FieldNamed returns the field of record i whose name has the given index in Names. A record has
// each name at most once.
func (b *Batch) FieldNamed(i int, name uint32) (*Field, bool) {
	fields := b.FieldsOf(i)
	for k := range fields {
		if fields[k].Name == name {
			return &fields[k], true
		}
	}
	return nil, false
}

// SetFields sets the fields of record i to Fields[from:], and marks the record as parsed. The
// caller has appended these fields before.
func (b *Batch) SetFields(i, from int) {
	r := &b.Records[i]
	r.Field, r.NumFields, r.Parsed = uint32(from), uint32(len(b.Fields)-from), true
	b.changed = true
}

// OpenFields appends a copy of the fields of record i to Fields and returns the index of the first
// one. The caller may then change and append fields before it calls SetFields. For an unparsed
// record, OpenFields appends the field message.
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

// AppendData appends text to Data and returns its position, for values that a processor creates.
// The text belongs to no span.
func (b *Batch) AppendData(text []byte) (off, n uint32) {
	off = uint32(len(b.Data))
	b.Data = append(b.Data, text...)
	return off, uint32(len(text))
}

// Refuse handles record i, which the calling processor cannot process, according to onError. With
// "dead_letter" or "", it dead-letters the record with the reason. With "drop", it drops the
// record. With "pass", it leaves the record unchanged.
func (b *Batch) Refuse(i int, onError string, reason error) {
	switch onError {
	case "pass":
	case "drop":
		b.Drop(i)
	default:
		b.DeadLetter(i, reason)
	}
}
