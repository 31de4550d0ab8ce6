package kafka

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/stream"
)

// TestPiecesAreReleased checks that a batch with refused records is freed when all pieces of its
// outcome were released. Without that, the memory of the route runs out.
func TestPiecesAreReleased(t *testing.T) {
	for name, last := range map[string]error{
		"halves":                   kerr.InvalidRecord,
		"halves and a certain one": &messages.RecordError{Err: errors.New("key")},
	} {
		t.Run(name, func(t *testing.T) {
			var freed []*stream.Batch
			pool := &stream.Pool{Freed: func(b *stream.Batch) { freed = append(freed, b) }}
			b := pool.Get(stream.BatchLimits{})
			b.Data = append(b.Data, "a\nb\nc\n"...)
			b.Origins = 3
			b.Spans = append(b.Spans, stream.Span{Part: &stream.Partition{ID: "in/0"},
				Range: stream.Range{To: stream.Position{Num: 6}}, Bytes: 6})
			b.Split()
			kept := b.AppendKept(nil)
			err := settle(b, kept, []error{kerr.InvalidRecord, kerr.InvalidRecord, last}, false)
			split, ok := errors.AsType[*stream.Split](err)
			if !ok || len(split.Rest) != 2 {
				t.Fatalf("the outcome is %v", err)
			}
			for _, p := range slices.Concat(split.Done, split.Rest, split.Refused) {
				p.Value.Release()
			}
			b.Release()
			if !slices.Contains(freed, b) {
				t.Error("the batch is not freed after the release of its pieces")
			}
		})
	}
}
