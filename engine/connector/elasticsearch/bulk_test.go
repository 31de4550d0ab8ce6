package elasticsearch

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// three returns a batch of three records with the ids p@6, p@13 and p@19.
func three() *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = []byte("first\nsecond\nthird\n")
	b.Origins = 3
	b.Spans = []stream.Span{{Part: &stream.Partition{ID: "p"},
		Range: stream.Range{To: stream.Position{Num: 19}}, Bytes: 19}}
	b.Split()
	return b
}

// FuzzBulkAnswer checks arbitrary responses. If a response splits the batch, each record must be in
// exactly one part. A response that is not JSON must not settle the batch.
func FuzzBulkAnswer(f *testing.F) {
	f.Add([]byte(`{"errors":true,"items":[{"create":{"status":201}},{"create":{"status":400,"error":"x"}},{"create":{"status":429}}]}`))
	f.Add([]byte(`{"errors":true,"items":[{},{"a":{},"b":{}},null]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		b := three()
		err := bulkOutcome(b, answer, true, "POST somewhere")
		s, ok := errors.AsType[*stream.Split](err)
		if !ok {
			if err == nil && !json.Valid(answer) {
				t.Fatalf("%q settles the batch", answer)
			}
			return
		}
		seen := map[string]int{}
		for _, part := range [][]stream.Item{s.Done, s.Rest, s.Refused} {
			for _, it := range part {
				for i := range it.Value.Records {
					seen[string(it.Value.AppendRecordID(nil, i))]++
				}
			}
		}
		if len(seen) != 3 || seen["p@6"] != 1 || seen["p@13"] != 1 || seen["p@19"] != 1 {
			t.Fatalf("%q settles %v", answer, seen)
		}
	})
}
