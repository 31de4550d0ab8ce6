package elasticsearch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// TestRefusedTarget checks that records are retried if the store refuses their index or pipeline
// with status 400, and dead-lettered if it refuses the document with this status.
func TestRefusedTarget(t *testing.T) {
	const item = `{"create":{"status":400,"error":{"type":%q,"reason":%q}}}`
	for _, c := range []struct {
		kind, text string
		want       int // retried records
	}{
		{"validation_exception", "this action would add [2] shards", 2},
		{"index_closed_exception", "closed", 2},
		{"illegal_argument_exception", "pipeline with id [geo] does not exist", 2},
		{"illegal_argument_exception", "no write index is defined for alias [logs]. The write " +
			"index may be explicitly disabled using is_write_index=false", 2},
		{"illegal_argument_exception", "only write ops with an op_type of create are allowed in " +
			"data streams", 2},
		{"illegal_argument_exception", "field [a] not present as part of path [a]", 0},
		{"illegal_argument_exception", "Limit of total fields [1000] has been exceeded", 0},
		{"mapper_parsing_exception", "pipeline with id [geo] does not exist", 0},
	} {
		kind, want := c.kind+": "+c.text, c.want
		refused := fmt.Sprintf(item, c.kind, c.text)
		answer := `{"errors":true,"items":[{"create":{"status":201}},` + refused + `,` + refused + `]}`
		err := bulkOutcome(three(), []byte(answer), true, "POST somewhere")
		s, ok := errors.AsType[*stream.Split](err)
		if !ok {
			t.Fatalf("%s: %v, want a split batch", kind, err)
		}
		count := func(items []stream.Item) (n int) {
			for _, it := range items {
				n += len(it.Value.AppendKept(nil))
			}
			return n
		}
		if rest, dead := count(s.Rest), count(s.Refused); rest != want || dead != 2-want {
			t.Errorf("%s: %d records are retried and %d are refused, want %d and %d", kind, rest, dead,
				want, 2-want)
		}
	}
}

// TestLongIDs checks that the id of a document has at most 512 bytes if its record has a long
// position, as in a feed with long cursors, and that different records have different ids.
func TestLongIDs(t *testing.T) {
	d := DefaultDocuments()
	b := three()
	b.Records[1].Origin.Key = strings.Repeat("x", 600)
	b.Records[2].Origin.Key = strings.Repeat("x", 599) + "y"
	seen := make(map[string]bool)
	for i := range b.Records {
		id, ok := d.id(b, i)
		if again, _ := d.id(b, i); !ok || len(id) > 512 || string(again) != string(id) {
			t.Errorf("record %d has the id %q and then %q, want one of at most 512 bytes", i, id,
				again)
		}
		seen[string(id)] = true
	}
	if len(seen) != 3 || !seen["p@6"] {
		t.Errorf("the ids of three records are %v, want three with p@6", seen)
	}
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
