package lines_test

import (
	"bytes"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// TestJoinAllocations checks that reading the new bytes of a growing file into a batch with another
// file allocates nothing.
func TestJoinAllocations(t *testing.T) {
	data := bytes.Repeat([]byte("127.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / "+
		"HTTP/1.1\" 200 1\r\n"), 40)
	half := int64(len(data) / 2)
	whole := lines.File{ReaderAt: bytes.NewReader(data), Part: &stream.Partition{ID: "other"},
		Size: half, Growing: true}
	f := lines.File{ReaderAt: bytes.NewReader(data), Part: part, Size: int64(len(data)),
		Growing: true}
	var pool stream.Pool
	filler := lines.Filler{Rules: lines.Rules{MaxRecord: 1 << 20}}
	allocs := testing.AllocsPerRun(10, func() {
		b := pool.Get(stream.BatchLimits{})
		if _, err := filler.Fill(b, new(lines.Cursor), whole); err != nil {
			t.Fatal(err)
		}
		if res, err := filler.Fill(b, &lines.Cursor{Next: half}, f); res != lines.Drained ||
			err != nil {
			t.Fatal(res, err)
		}
		filler.Complete(b)
		b.Release()
	})
	if allocs > 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}
