package connectortest

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// Lines returns a batch of lines as a reader leaves it, not yet split: of the file a.log, from its start.
func Lines(lines ...string) *penstock.Batch { return Text(strings.Join(lines, "\n") + "\n") }

// Text is Lines of a text, whose last line ends.
func Text(text string) *penstock.Batch {
	b := penstock.NewBatch(penstock.Limits{Bytes: 1 << 30, Records: 1 << 24})
	b.Data = append(b.Data, text...)
	b.Origins = strings.Count(text, "\n")
	b.Time = time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	b.Spans = append(b.Spans, penstock.Span{
		Part:  &penstock.Partition{ID: "a", Name: "a.log"},
		Range: penstock.Range{To: penstock.Position{Num: int64(len(b.Data))}},
		Bytes: len(b.Data),
	})
	return b
}

// Outcomes says what became of each record of b, which has been split: its fields as NDJSON, "dropped", or "dead: " and the reason.
func Outcomes(b *penstock.Batch) (all []string) {
	for i := range b.Records {
		switch b.Records[i].State {
		case penstock.Dead:
			all = append(all, "dead: "+b.Reason(i).Error())
		case penstock.Dropped:
			all = append(all, "dropped")
		default:
			all = append(all, string(ndjson.AppendRecord(nil, b, i)))
		}
	}
	return all
}

// Records returns a batch whose records have the members of the JSON objects given as fields; a line that is none stays unparsed.
func Records(t testing.TB, lines ...string) *penstock.Batch {
	t.Helper()
	b := Lines(lines...)
	b.Split()
	var s json.Scanner
	for i := range b.Records {
		r := &b.Records[i]
		from := len(b.Fields)
		for s.Start(b.Data, int(r.Off), int(r.Len)); s.Next(); {
			if s.Key.Escaped || s.Value.Escaped {
				t.Fatalf("a record of a test has escapes: %s", lines[i])
			}
			b.Fields = append(b.Fields, penstock.Field{
				Name: b.Name(string(b.Data[s.Key.Off : s.Key.Off+s.Key.Len])),
				Kind: s.Value.Kind, Off: uint32(s.Value.Off), Len: uint32(s.Value.Len),
			})
		}
		if what, _ := s.Wrong(); what != "" {
			b.Fields = b.Fields[:from]
			continue
		}
		b.SetFields(i, from)
	}
	return b
}

// Rows makes batches of parsed records, value by value, in whatever kind and form a test wants: of one partition, p, in which each
// record is one position further than the one before. The zero value begins at its start.
type Rows struct {
	Next int64 // the position of the last record so far

	b    *penstock.Batch
	from int64
}

// Record begins a record.
func (r *Rows) Record() {
	if r.b == nil {
		r.b, r.from = penstock.NewBatch(penstock.Limits{Bytes: 1 << 30, Records: 1 << 24}), r.Next
	}
	r.end()
	r.Next++
	record := penstock.Record{Off: uint32(len(r.b.Data)), Field: uint32(len(r.b.Fields)), Origin: penstock.Position{Num: r.Next}}
	r.b.Records = append(r.b.Records, record)
}

// Field appends a field to the record that was begun last.
func (r *Rows) Field(name string, kind penstock.Kind, text string) {
	off, n := r.b.AppendData([]byte(text))
	r.b.Fields = append(r.b.Fields, penstock.Field{Name: r.b.Name(name), Kind: kind, Off: off, Len: n})
	r.b.Records[len(r.b.Records)-1].NumFields++
}

// end ends the record that was begun last by a line end.
func (r *Rows) end() {
	if n := len(r.b.Records); n > 0 {
		last := &r.b.Records[n-1]
		last.Len = uint32(len(r.b.Data)) - last.Off
		r.b.Data = append(r.b.Data, '\n')
	}
}

// Batch returns the batch of what was begun since the last one. A record without fields counts as not parsed.
func (r *Rows) Batch() *penstock.Batch {
	r.end()
	b := r.b
	b.Origins = len(b.Records)
	b.Spans = []penstock.Span{{
		Part: &penstock.Partition{ID: "p", Name: "p"}, Bytes: len(b.Data),
		Range: penstock.Range{From: penstock.Position{Num: r.from}, To: penstock.Position{Num: r.Next}},
	}}
	b.Parsed()
	r.b = nil
	return b
}
