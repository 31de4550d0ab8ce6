package streamtest

import (
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Lines returns a batch with the given lines, as if they had been read from the start of the file
// a.log. Its Records are empty until [stream.Batch.Split] is called.
func Lines(lines ...string) *stream.Batch { return Text(strings.Join(lines, "\n") + "\n") }

// Text is like Lines, for a text that ends with a line end.
func Text(text string) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 30, Records: 1 << 24})
	b.Data = append(b.Data, text...)
	b.Origins = strings.Count(text, "\n")
	b.Time = time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	b.Spans = append(b.Spans, stream.Span{
		Part:  &stream.Partition{ID: "a", Name: "a.log"},
		Range: stream.Range{To: stream.Position{Num: int64(len(b.Data))}},
		Bytes: len(b.Data),
	})
	return b
}

// Rows makes batches of parsed records. The text of each field value, and its [stream.Kind], are
// passed to Field. All records belong to the partition p. Their positions follow each other, from 1
// on. The zero value is ready to use.
type Rows struct {
	Next int64 // the position of the last record so far

	b    *stream.Batch
	from int64
}

// Record begins a record.
func (r *Rows) Record() {
	if r.b == nil {
		r.b, r.from = stream.NewBatch(stream.BatchLimits{Bytes: 1 << 30, Records: 1 << 24}), r.Next
	}
	r.end()
	r.Next++
	record := stream.Record{Off: uint32(len(r.b.Data)), Field: uint32(len(r.b.Fields)),
		Origin: stream.Position{Num: r.Next}}
	r.b.Records = append(r.b.Records, record)
}

// Field appends a field to the record that was begun last.
func (r *Rows) Field(name string, kind stream.Kind, text string) {
	off, n := r.b.AppendData([]byte(text))
	r.b.Fields = append(r.b.Fields, stream.Field{Name: r.b.Name(name), Kind: kind, Off: off,
		Len: n})
	r.b.Records[len(r.b.Records)-1].NumFields++
}

// end adds the line end of the last record.
func (r *Rows) end() {
	if n := len(r.b.Records); n > 0 {
		last := &r.b.Records[n-1]
		last.Len = uint32(len(r.b.Data)) - last.Off
		r.b.Data = append(r.b.Data, '\n')
	}
}

// Batch returns a batch with the records that were added since the last call of Batch. A record
// without fields is unparsed.
func (r *Rows) Batch() *stream.Batch {
	r.end()
	b := r.b
	b.Origins = len(b.Records)
	b.Spans = []stream.Span{{
		Part: &stream.Partition{ID: "p", Name: "p"}, Bytes: len(b.Data),
		Range: stream.Range{From: stream.Position{Num: r.from}, To: stream.Position{Num: r.Next}},
	}}
	b.Parsed()
	r.b = nil
	return b
}
