package memory

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// CanReadRanges implements stream.RangeReader. It returns false for partitions of other Sources,
// such as those of earlier processes.
func (r *reader) CanReadRanges(partitionID string) bool { return partitionID == r.source.part.ID }

// ReadRanges implements stream.RangeReader. It reads the records from the buffer, where they stay
// until all routes have delivered, dead-lettered or dropped them.
func (r *reader) ReadRanges(_ context.Context, b *stream.Batch, p stream.Partition, ranges []stream.Range) error {
	s := r.source
	if p.ID != s.part.ID {
		return stream.ErrRangeGone // the records of another process were only in its memory
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rg := range ranges {
		if rg.From.Num < s.buffer.start || rg.To.Num > s.buffer.end {
			return stream.ErrRangeGone
		}
		size, off := len(b.Data), len(b.Data)
		to, ends, _ := s.buffer.read(b, rg.From.Num, rg.To.Num, nil)
		if to != rg.To.Num {
			return stream.ErrRangeMissing
		}
		for _, end := range ends {
			b.Records = append(b.Records, stream.Record{
				Off: uint32(off), Len: uint32(end - 1 - off), Span: uint32(len(b.Spans)),
				Origin: stream.Position{Num: rg.From.Num + int64(end-size)},
			})
			off = end
		}
		b.Spans = append(b.Spans, stream.Span{Part: &s.part, Range: rg, Bytes: len(b.Data) - size})
	}
	return nil
}
