package stream

import "maps"

// Savepoint is a saved state of a [Batch] that [Batch.RollbackTo] can restore. Only the owner of
// the batch may use it.
type Savepoint struct {
	data, spans, names, types, fields, records, origins, added int

	last    Span // copy of the last span, which a reader may extend
	changed bool
	reasons map[int]error

	copied     bool // records and fields were copied: they may be changed in place
	oldRecords []Record
	oldFields  []Field
}

// Savepoint returns the current state of b, which RollbackTo restores. Until then, the owner must
// only append to b.
func (b *Batch) Savepoint() (s Savepoint) {
	s.measure(b)
	return s
}

// SavepointBefore returns the state that b had before record i was appended, although no savepoint
// was taken at that time. Since then, only records from i on, their texts and their fields may
// have been appended to b. Each of these records must come from a source record of its own.
func SavepointBefore(b *Batch, i int) (s Savepoint) {
	s.measure(b)
	r := &b.Records[i]
	s.origins -= len(b.Records) - i
	s.data, s.fields, s.records = int(r.Off), int(r.Field), i
	return s
}

// Copy sets s to the state of b. Before RollbackTo, the owner may append to b, and may also change
// its Records and Fields, which Copy copies into the memory of s.
func (s *Savepoint) Copy(b *Batch) {
	s.measure(b)
	s.copied, s.reasons = true, nil
	s.oldRecords = append(s.oldRecords[:0], b.Records...)
	s.oldFields = append(s.oldFields[:0], b.Fields...)
	if len(b.reasons) > 0 {
		s.reasons = maps.Clone(b.reasons)
	}
}

func (s *Savepoint) measure(b *Batch) {
	s.data, s.spans, s.names, s.types = len(b.Data), len(b.Spans), len(b.Names), len(b.Types)
	s.fields, s.records, s.origins, s.added, s.changed = len(b.Fields), len(b.Records), b.Origins,
		b.Added, b.changed
	if s.spans > 0 {
		s.last = b.Spans[s.spans-1]
	}
}

// RollbackTo returns b to its state at s, without a Payload. It may be called again for the same s.
func (b *Batch) RollbackTo(s *Savepoint) {
	b.Data, b.Spans, b.Names, b.Types = b.Data[:s.data], b.Spans[:s.spans], b.Names[:s.names],
		b.Types[:s.types]
	b.Origins, b.Added, b.changed = s.origins, s.added, s.changed
	if s.spans > 0 {
		b.Spans[s.spans-1] = s.last
	}
	if s.copied {
		b.Records = append(b.Records[:0], s.oldRecords...)
		b.Fields = append(b.Fields[:0], s.oldFields...)
		b.reasons = maps.Clone(s.reasons)
	} else {
		b.Records, b.Fields = b.Records[:s.records], b.Fields[:s.fields]
	}
	if b.Payload != nil {
		b.Payload, b.spare = nil, b.Payload[:0]
	}
}
