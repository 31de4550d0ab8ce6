package connectortest

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/json"
)

// Lines returns a batch of lines as a reader leaves it, not yet split: of the file a.log, from its start.
func Lines(lines ...string) *penstock.Batch {
	b := penstock.NewBatch(penstock.Limits{Bytes: 1 << 30, Records: 1 << 24})
	b.Data = append(b.Data, strings.Join(lines, "\n")+"\n"...)
	b.Origins = len(lines)
	b.Time = time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	b.Spans = append(b.Spans, penstock.Span{
		Part:  &penstock.Partition{ID: "a", Name: "a.log"},
		Range: penstock.Range{To: penstock.Position{Num: int64(len(b.Data))}},
		Bytes: len(b.Data),
	})
	return b
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
