package streamtest_test

import (
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestRowsMakeBatches checks that batches of Rows are like those that a source reads and a
// processor parses.
func TestRowsMakeBatches(t *testing.T) {
	var rows streamtest.Rows
	at := stream.Position{}
	for n, values := range [][]string{{"a", "b\nc"}, nil, {"d", ""}, {""}} {
		for _, v := range values {
			rows.Record()
			if v != "" {
				rows.Field("n", stream.Number, "1")
				rows.Field("text", stream.Text, v)
			}
		}
		b := rows.Batch()
		if len(b.Records) != len(values) || b.Origins != len(values) || b.Time.IsZero() ||
			len(values) > 0 && b.RawBytes() != int64(len(b.Data)) {
			t.Fatalf("batch %d: %+v", n, b)
		}
		if len(values) == 0 {
			if len(b.Spans)+len(b.Data) > 0 {
				t.Errorf("the empty batch is %+v", b)
			}
			continue
		}
		end := stream.Position{Num: at.Num + int64(len(values))}
		if b.Spans[0].From != at || b.Spans[0].To != end {
			t.Errorf("batch %d: span %+v follows %v", n, b.Spans[0].Range, at)
		}
		parsed := false
		for i, v := range values {
			r := &b.Records[i]
			if at.Num++; r.Origin != at || r.Parsed != (v != "") || r.Span != 0 || r.Sub != 0 {
				t.Errorf("batch %d, record %d: %+v", n, i, r)
			}
			text := v
			if parsed = parsed || v != ""; v != "" {
				text = "1" + v
				f, ok := b.FieldNamed(i, b.Name("text"))
				if !ok || string(b.Value(*f)) != v {
					t.Errorf("batch %d, record %d: field %+v", n, i, f)
				}
			}
			if string(b.Raw(i)) != text+"\n" {
				t.Errorf("batch %d, record %d: %q, want %q", n, i, b.Raw(i), text)
			}
		}
		if b.Untouched() == parsed {
			t.Errorf("batch %d: untouched %v, want %v", n, b.Untouched(), !parsed)
		}
	}
}
