package lines_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// counting counts calls of ReadAt.
type counting struct {
	io.ReaderAt
	calls int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.calls++
	return c.ReaderAt.ReadAt(p, off)
}

// TestFillBefore checks that the bytes before the cursor and those after it are read in one call,
// if the batch can hold both during the call. The records already in the batch stay unchanged.
func TestFillBefore(t *testing.T) {
	stood := strings.Repeat("stood there before\n", 10)
	for _, c := range []struct {
		name  string
		batch string // of another file
		file  string
		size  int
		left  int // number of preceding bytes passed as Before
		want  error
		calls int
	}{
		{name: "in an empty batch", file: stood + "new\n", left: 64, calls: 2},
		{name: "behind too few bytes", batch: "short\n", file: stood + "new\n", left: 64, calls: 2},
		{name: "behind enough", batch: strings.Repeat("another\n", 8), file: stood + "new\n",
			left: 64, calls: 1},
		{name: "a few bytes", batch: "short\n", file: stood + "new\n", left: 5, calls: 1},
		{name: "not given", batch: "short\n", file: stood + "new\n", calls: 1},
		{name: "half a record", batch: "another\n", file: stood + "ne", left: 5, calls: 1},
		{name: "others, in an empty batch", file: strings.ToUpper(stood) + "new\n", left: 64,
			want: lines.ErrOther, calls: 2},
		{name: "others", batch: "another\n", file: stood[:len(stood)-1] + "xnew\n", left: 1,
			want: lines.ErrOther, calls: 1},
		{
			name: "another first of them", batch: "another\n",
			file: stood[:len(stood)-5] + "Xore\nnew\n", left: 5,
			want: lines.ErrOther, calls: 1,
		},
		{name: "emptied, in an empty batch", size: len(stood) + 4, left: 64,
			want: io.ErrUnexpectedEOF, calls: 1},
		{name: "emptied", batch: "another\n", size: len(stood) + 4, left: 5,
			want: io.ErrUnexpectedEOF, calls: 1},
		{name: "shorter", batch: "another\n", file: stood + "n", size: len(stood) + 4, left: 5,
			want: io.ErrUnexpectedEOF, calls: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			filler, b := lines.Filler{Rules: lines.Rules{MaxRecord: 100}},
				stream.NewBatch(stream.BatchLimits{Bytes: 1 << 10})
			if c.batch != "" {
				other := &stream.Partition{ID: "other", Name: "other"}
				f := lines.File{ReaderAt: strings.NewReader(c.batch), Part: other,
					Size: int64(len(c.batch)), Sealed: true}
				if res, err := filler.Fill(b, new(lines.Cursor), f); res != lines.Drained ||
					err != nil {
					t.Fatalf("%v, %v", res, err)
				}
			}
			spans, at := len(b.Spans), &lines.Cursor{Next: int64(len(stood))}
			data := &counting{ReaderAt: strings.NewReader(c.file)}
			f := lines.File{ReaderAt: data, Part: part, Size: int64(max(c.size, len(c.file))),
				Growing: true}
			f.Before = []byte(stood[len(stood)-c.left:])
			_, err := filler.Fill(b, at, f)
			if !errors.Is(err, c.want) || data.calls != c.calls {
				t.Errorf("Fill = %v after %d calls, want %v after %d", err, data.calls, c.want,
					c.calls)
			}
			want := c.batch
			if c.want == nil && strings.HasSuffix(c.file, "new\n") {
				want += "new\n"
				spans++
			}
			if got := string(b.Data); got != want || len(b.Spans) != spans ||
				at.Next != int64(len(stood)+len(want)-len(c.batch)) {
				t.Errorf("the batch holds %q in %d spans, the cursor stands at %d; want %q in %d",
					got, len(b.Spans), at.Next, want, spans)
			}
		})
	}
}

// TestFillBeforeAllocations checks that comparing the preceding bytes allocates nothing.
func TestFillBeforeAllocations(t *testing.T) {
	data := bytes.Repeat([]byte("127.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / "+
		"HTTP/1.1\" 200 1\r\n"), 40)
	half := int64(len(data) / 2)
	whole := lines.File{ReaderAt: bytes.NewReader(data), Part: &stream.Partition{ID: "other"},
		Size: half, Growing: true}
	f := lines.File{ReaderAt: bytes.NewReader(data), Part: part, Size: int64(len(data)),
		Growing: true, Before: data[half-64 : half]}
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
