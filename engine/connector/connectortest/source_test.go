package connectortest_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// lines is a minimal source over texts in memory. Each text is a partition.
type lines []string

func (l lines) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &linesReader{lines: l, o: o}
	for i := range l {
		r.parts = append(r.parts, &stream.Partition{ID: fmt.Sprintf("text-%d", i),
			Name: fmt.Sprint(i)})
	}
	return r, nil
}

type linesReader struct {
	lines lines
	o     stream.OpenOptions
	parts []*stream.Partition
	part  int
	at    int64
	begun bool
}

func (r *linesReader) Read(ctx context.Context, b *stream.Batch) error {
	for r.part < len(r.lines) {
		if context.Cause(ctx) != nil {
			return context.Cause(ctx)
		}
		m, _ := r.o.Resume(r.parts[r.part].ID)
		if !r.begun {
			r.begun, r.at = true, m.Watermark.Num
		}
		end := int64(len(r.lines[r.part]))
		for _, a := range m.Above {
			if a.From.Num == r.at {
				r.at = a.To.Num
			} else if a.From.Num > r.at {
				end = a.From.Num
				break
			}
		}
		if r.at < end {
			r.fill(b, end)
			return nil
		}
		if r.at == int64(len(r.lines[r.part])) {
			r.part, r.begun = r.part+1, false
		}
	}
	if r.o.Once {
		return io.EOF
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// fill appends whole lines to b. It stops at the maximum number of records, or at the first line
// that reaches a multiple of the maximum bytes, counted from the start of the text. So batches end
// at the same lines when they are read again.
func (r *linesReader) fill(b *stream.Batch, end int64) {
	from, size := r.at, int64(b.Limits().Bytes)
	for r.at < end && b.Origins < b.Limits().Records && (r.at == from || r.at/size == from/size) {
		rest := r.lines[r.part][r.at:end]
		line := rest[:strings.IndexByte(rest, '\n')+1]
		b.Data = append(b.Data, line...)
		b.Origins++
		r.at += int64(len(line))
	}
	b.Spans = append(b.Spans, stream.Span{
		Part:  r.parts[r.part],
		Range: stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: r.at}},
		Bytes: int(r.at - from), Last: r.at == int64(len(r.lines[r.part])),
	})
}

func (r *linesReader) Commit(context.Context, []stream.Mark) error { return nil }
func (r *linesReader) Close() error                                { return nil }

func TestSource(t *testing.T) {
	texts, want := testLines()
	connectortest.Source(t, connectortest.SourceCase{
		New:  func(*testing.T, *streamtest.Host) stream.Source { return texts },
		Want: want,
	})
}

// testLines returns a source and its records.
func testLines() (texts lines, want [][]string) {
	for part := range 3 {
		var records []string
		for i := range 40 * (part + 1) {
			records = append(records, fmt.Sprintf("part %d line %d %s", part, i,
				strings.Repeat("x", i%50)))
		}
		want = append(want, records)
		texts = append(texts, strings.Join(records, "\n")+"\n")
	}
	return texts, want
}
