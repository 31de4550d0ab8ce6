package journald

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestGap checks a route whose progress has a gap, because entries that were read but not delivered
// are no longer in the journal. The reader must hand out the gap, so that the progress goes on. With
// `start: latest`, the gap is before the end at which the route began. The entries after it must be
// read.
func TestGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	var at [4]stream.Position
	for i := range at {
		e, err := parse([]byte(line(i, int64(1_000_000+i), "m")), stream.Position{})
		if err != nil {
			t.Fatal(err)
		}
		at[i] = e.at
	}
	for _, c := range []struct {
		start string
		to    int // settled up to an entry that is missing, or one that is not
	}{{Earliest, 1}, {Earliest, 2}, {Latest, 1}, {Latest, 2}} {
		text := line(2, 1_000_002, "settled") + line(3, 1_000_003, "new")
		if c.start == Latest {
			text = line(0, 1_000_000, "m") + text // the last entry at the first start
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, host := options(t, path), streamtest.NewHost(t)
		o.Start = c.start
		j, err := New(o, host)
		if err != nil {
			t.Fatal(err)
		}
		mark := stream.Mark{Above: []stream.Range{{From: at[0], To: at[c.to]}}}
		progress, err := ledger.New(mark.Watermark, mark.Above)
		if err != nil {
			t.Fatal(err)
		}
		r, records := open(t, j, mark), 0
		for progress.Watermark() != at[3] {
			b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 20, Records: 100})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := r.Read(ctx, b)
			if cancel(); err != nil {
				t.Fatal(err)
			}
			records += len(b.Records)
			for _, s := range b.Spans {
				if err := progress.Open(s.Range); err != nil {
					t.Fatal(err)
				}
				progress.Settle(s.Range)
			}
		}
		if want := 3 - c.to; records != want || len(host.Faults()) != 0 != (c.start == Earliest) {
			t.Errorf("%+v: %d records and the faults %v, want %d records", c, records,
				host.Faults(), want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
