package pipeline

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

func unknown(string) (stream.Mark, bool) { return stream.Mark{}, false }

// lines returns a batch of n one-letter lines of a partition, from position from.
func lines(part *stream.Partition, from int64, n int, last bool) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	span := stream.Span{Part: part, Last: last, Bytes: 2 * n}
	span.From.Num, span.To.Num = from, from+int64(2*n)
	for range n {
		b.Data = append(b.Data, "x\n"...)
	}
	b.Spans = append(b.Spans, span)
	b.Origins = n
	return b
}

// oneMore adds a record behind record i that comes from the same source record, and returns it.
func oneMore(b *stream.Batch, i int) *stream.Record {
	extra := make([]int, len(b.Records))
	extra[i] = 1
	return &b.Records[b.Expand(extra)[i]+1]
}

func TestTallyCountsOrigins(t *testing.T) {
	part := &stream.Partition{ID: "p"}
	b := lines(part, 0, 5, false)
	b.Split()
	b.Drop(0)
	b.DeadLetter(1, errors.New("no"))
	extra := oneMore(b, 2) // one origin, two records
	extra.Off, extra.Len = 4, 1
	b.Drop(2) // one of its two records: the origin is still delivered
	for _, c := range []struct {
		deadLettered             bool
		delivered, dead, dropped int64
	}{{false, 3, 1, 1}, {true, 0, 4, 1}} {
		delivered, dead, dropped := countOutcomes(b, c.deadLettered)
		if delivered != c.delivered || dead != c.dead || dropped != c.dropped {
			t.Errorf("deadLettered %v: %d delivered, %d dead, %d dropped; want %+v", c.deadLettered,
				delivered, dead, dropped, c)
		}
	}
}

func TestPartitionIsFinishedOnce(t *testing.T) {
	k := newBooks(unknown)
	part := &stream.Partition{ID: "p", Name: "p.log"}
	b := lines(part, 0, 2, false)
	end := lines(part, 4, 0, true)
	for _, b := range []*stream.Batch{b, end} {
		if err := k.open(b); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, k, end, false)
	if s := k.takeUnsaved(); len(s.finished) != 0 {
		t.Fatalf("finished %v while a record is unsettled", s.finished)
	}
	settle(t, k, b, false)
	s := k.takeUnsaved()
	if len(s.finished) != 1 || s.finished[0].Name != "p.log" {
		t.Fatalf("finished %v, want the sealed and settled partition", s.finished)
	}
	if !k.finish("p") || k.finish("q") {
		t.Error("finish of a known and of an unknown partition")
	}
	if s := k.takeUnsaved(); len(s.finished) != 0 || len(s.marks) != 1 || !s.marks[0].Finished {
		t.Errorf("after finishing: %+v", s)
	}
	if err := k.open(lines(part, 4, 1, false)); err != nil { // it grew after all
		t.Fatal(err)
	}
	if p := k.parts["p"]; p.sealed || p.finished {
		t.Error("a partition that grew is still sealed")
	}
}

func settle(t *testing.T, k *books, b *stream.Batch, deadLettered bool) {
	t.Helper()
	settleAs(t, k, b, batchOutcome{lane: "lane", deadLettered: deadLettered})
}

func settleAs(t *testing.T, k *books, b *stream.Batch, end batchOutcome) {
	t.Helper()
	if _, _, _, err := k.settle(b, end); err != nil {
		t.Fatal(err)
	}
}

// TestDroppedBytesAreNotSaved is about batches that processors drop entirely. Their bytes must not
// count as saved. The sender subtracts saved bytes from the bytes that it has sent, and it never
// got these batches. If their bytes counted, the replay bound would admit new data although earlier
// data is not in a checkpoint.
func TestDroppedBytesAreNotSaved(t *testing.T) {
	k := newBooks(unknown)
	part := &stream.Partition{ID: "p"}
	dropped, sent := lines(part, 0, 50, false), lines(part, 100, 5, false)
	for _, b := range []*stream.Batch{dropped, sent} {
		if err := k.open(b); err != nil {
			t.Fatal(err)
		}
	}
	settleAs(t, k, dropped, batchOutcome{unsent: true})
	settleAs(t, k, sent, batchOutcome{lane: "lane"})
	s := k.takeUnsaved()
	if len(s.marks) != 1 || s.marks[0].Watermark.Num != 110 {
		t.Errorf("the marks are %v, want both batches settled", s.marks)
	}
	if s.bytes != sent.RawBytes() {
		t.Errorf("the sender would hear that %d bytes are saved, it has sent %d", s.bytes, sent.RawBytes())
	}
}

// TestBooksBalance reads, splits and settles batches at random with fixed seeds. At every moment
// read = delivered + dead + dropped + unsettled. The unsaved bytes are those that were sent and
// settled since the last call of takeUnsaved. In the end all data is settled in the saved progress.
func TestBooksBalance(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		k := newBooks(unknown)
		var open []*stream.Batch
		at := map[string]int64{}
		parts := []*stream.Partition{{ID: "a"}, {ID: "b"}, {ID: "c"}}
		marks := map[string]stream.Mark{}
		settled, saved := int64(0), int64(0)
		take := func() {
			s := k.takeUnsaved()
			saved += s.bytes
			for _, m := range s.marks {
				marks[m.Part.ID] = m
			}
		}
		for range 300 {
			switch rnd.IntN(5) {
			case 0, 1:
				part := parts[rnd.IntN(3)]
				b := lines(part, at[part.ID], 1+rnd.IntN(9), false)
				at[part.ID] = b.Spans[0].To.Num
				if err := k.open(b); err != nil {
					t.Fatal(err)
				}
				open = append(open, b)
			case 2, 3:
				if len(open) == 0 {
					continue
				}
				i := rnd.IntN(len(open))
				b := open[i]
				open = slices.Delete(open, i, i+1)
				if m := b.Middle(); m > 0 && rnd.IntN(2) == 0 {
					open = append(open, b.Cut(m, len(b.Records)))
					b = b.Cut(0, m)
				}
				end := batchOutcome{deadLettered: rnd.IntN(7) == 0, unsent: rnd.IntN(5) == 0}
				if !end.unsent {
					settled += b.RawBytes()
				}
				settleAs(t, k, b, end)
			case 4:
				take()
			}
			balance(t, k, open, settled-saved)
		}
		for _, b := range open {
			settle(t, k, b, false)
		}
		take()
		for id, end := range at {
			if m := marks[id]; m.Watermark.Num != end || len(m.Above) > 0 {
				t.Fatalf("seed %d: partition %s is settled to %v %v, want %d", seed, id, m.Watermark, m.Above, end)
			}
		}
		if k.counts.unsettled() != 0 {
			t.Fatalf("seed %d: %d records are unsettled in the end", seed, k.counts.unsettled())
		}
	}
}

func balance(t *testing.T, k *books, open []*stream.Batch, unsaved int64) {
	t.Helper()
	waiting := int64(0)
	for _, b := range open {
		waiting += int64(b.Origins)
	}
	c := &k.counts
	if got := c.unsettled(); got != waiting || c.readRecords != c.delivered+c.dead+c.dropped+waiting {
		t.Fatalf("unsettled %d, want %d; %+v", got, waiting, *c)
	}
	if k.unsavedBytes != unsaved {
		t.Fatalf("%d bytes unsaved, want %d", k.unsavedBytes, unsaved)
	}
}
