//penstock:pure

package readers

import "github.com/penstock-io/penstock/stream"

// AppendRecord appends a record to b, with a line end after its text. The position of the record is
// origin.
func AppendRecord(b *stream.Batch, text []byte, origin stream.Position) {
	b.Records = append(b.Records, stream.Record{
		Off: uint32(len(b.Data)), Len: uint32(len(text)), Origin: origin,
	})
	b.Data = append(append(b.Data, text...), '\n')
	b.Origins++
	b.Added++
}

// ExtendSpan moves the end of the only span of b to the last argument. If b has no span, ExtendSpan
// adds a copy of s with the range (from, to], unless this range is empty.
func ExtendSpan(b *stream.Batch, s stream.Span, from, to int64) {
	switch {
	case len(b.Spans) > 0:
		b.Spans[0].To.Num, b.Spans[0].Bytes = to, len(b.Data)
	case from != to:
		s.From.Num, s.To.Num, s.Bytes = from, to, len(b.Data)
		b.Spans = append(b.Spans, s)
	}
}

// Counter returns the function that counts events of the route that is opened with o: o.Count, or
// h.Count if o.Count is nil. It adds 0 to each of the named counters, so that they are shown before
// the first event.
func Counter(h stream.Host, o *stream.OpenOptions, names []string) func(string, int64) {
	count := h.Count
	if o.Count != nil {
		count = o.Count
	}
	for _, name := range names {
		count(name, 0)
	}
	return count
}
