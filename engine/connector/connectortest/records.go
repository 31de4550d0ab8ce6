package connectortest

import (
	"testing"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// Outcomes returns a text for each record of b: its fields as a JSON object, "dropped", or "dead: "
// and the reason. The caller must have split the batch into records (Batch.Split).
func Outcomes(b *stream.Batch) (all []string) {
	for i := range b.Records {
		switch b.Records[i].State {
		case stream.Dead:
			all = append(all, "dead: "+b.Reason(i).Error())
		case stream.Dropped:
			all = append(all, "dropped")
		default:
			all = append(all, string(ndjson.AppendRecord(nil, b, i)))
		}
	}
	return all
}

// Records returns a batch with one record per line. A line that is a JSON object becomes a record
// with the object's members as fields. Any other line becomes a record that was not parsed.
func Records(t testing.TB, lines ...string) *stream.Batch {
	t.Helper()
	b := streamtest.Lines(lines...)
	b.Split()
	var s json.Scanner
	for i := range b.Records {
		r := &b.Records[i]
		from := len(b.Fields)
		for s.Start(b.Data, int(r.Off), int(r.Len)); s.Next(); {
			if s.Key.Escaped || s.Value.Escaped {
				t.Fatalf("a record of a test has escapes: %s", lines[i])
			}
			b.Fields = append(b.Fields, stream.Field{
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
