package stream

import "maps"

// Saved is what a batch was when [Batch.Save] was called. Its zero value is ready, and used again it keeps its memory.
type Saved struct {
	data, names int
	records     []Record
	fields      []Field
	changed     bool
	reasons     map[int]error
}

// Save notes what b is, before something that may panic halfway changes it. Records and fields are copied; the arena is
// not, for what stands in it is never changed, only added to. It belongs to the batch's one owner.
func (b *Batch) Save(s *Saved) {
	s.data, s.names, s.changed, s.reasons = len(b.Data), len(b.Names), b.changed, nil
	s.records = append(s.records[:0], b.Records...)
	s.fields = append(s.fields[:0], b.Fields...)
	if len(b.reasons) > 0 {
		s.reasons = maps.Clone(b.reasons)
	}
}

// Restore makes b again what it was at Save, without a Payload. It may be called again for the same s.
func (b *Batch) Restore(s *Saved) {
	b.Data, b.Names = b.Data[:s.data], b.Names[:s.names]
	b.Records = append(b.Records[:0], s.records...)
	b.Fields = append(b.Fields[:0], s.fields...)
	b.changed, b.reasons = s.changed, maps.Clone(s.reasons)
	if b.Payload != nil {
		b.Payload, b.spare = nil, b.Payload[:0]
	}
}
