package connectortest

import (
	"slices"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// sinkKeepsLedger checks the ledger of a TransactionalSink in several steps. Each step runs a new
// process, which compares the progress in the ledger with the earlier deliveries. It then delivers
// one batch twice. In some steps, the process first drops all records of this batch, or first
// stores the spans of the batch in the ledger without the records. In some steps, it compacts the
// ledger after the first delivery. At the end, a process tries to deliver after a later process has
// loaded the ledger, and must fail.
func sinkKeepsLedger(t *testing.T, c SinkCase) {
	r := c.Start(t)
	first := live(t, r, "")
	if _, ok := first.sink.(stream.TransactionalSink); !ok {
		first.end()
		return
	}
	if len(first.marks) > 0 {
		t.Errorf("a new ledger holds %v", first.marks)
	}
	first.end()
	const seed, steps = 5, 24
	random := randomFrom(t, seed)
	told := newSettled()
	var want []string
	begun := false
	for n := range steps {
		l := live(t, r, "")
		checkMarks(t, l.marks, told)
		ledger := l.sink.(stream.TransactionalSink)
		b := l.raw(n)
		span := b.Spans[0]
		if !begun {
			// a partition without a mark in the ledger begins at its first position
			told.open(stream.Span{Part: span.Part})
			begun = true
		}
		switch random.IntN(4) {
		case 0:
			b.Split()
			for i := range b.Records {
				b.Drop(i)
			}
		case 1: // then Deliver writes nothing
			if err := ledger.Store(t.Context(), b.Spans); err != nil {
				t.Fatalf("Store: %v", err)
			}
		default:
			want = append(want, texts(n, n+1)...)
		}
		l.encode(b)
		l.must(b)
		told.settle(span)
		if random.IntN(3) == 0 {
			if err := ledger.Compact(t.Context(), told.marks()); err != nil {
				t.Fatalf("Compact: %v", err)
			}
		}
		again := l.raw(n)
		l.encode(again)
		l.must(again)
		l.end()
	}
	check(t, r, false, false, append(want, sinkFenced(t, r, told)...))
}

// sinkFenced checks that a process cannot deliver any more after a later process has loaded the
// ledger. It returns the records that the later process has delivered.
func sinkFenced(t *testing.T, r Receiver, told *settled) []string {
	early := live(t, r, "")
	late := live(t, r, "")
	checkMarks(t, late.marks, told)
	const fresh = 500
	for _, a := range early.deliver(t.Context(), []*stream.Batch{early.batch(fresh)}, nil) {
		if a.err == nil {
			t.Error("a process was not fenced off though a later one had loaded")
		}
	}
	if err := early.host.Stop(); err == nil {
		t.Error("a process that was fenced off did not end its route")
	}
	if err := early.sink.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	late.must(late.batch(fresh))
	late.end()
	return texts(fresh, fresh+1)
}

func checkMarks(t *testing.T, got []stream.Mark, told *settled) {
	t.Helper()
	equal := func(a, b stream.Mark) bool {
		return a.Part.ID == b.Part.ID && a.Watermark == b.Watermark &&
			slices.Equal(a.Above, b.Above)
	}
	if want := told.marks(); !slices.EqualFunc(got, want, equal) {
		t.Fatalf("the ledger holds %v, want %v", got, want)
	}
}

// sinkPrunes lets a TransactionalSink delete one of two partitions from its ledger. The progress of
// the other partition and all rows must stay. A later batch of the deleted partition must be
// written again. A fenced process must not delete anything.
func sinkPrunes(t *testing.T, c SinkCase) {
	r := c.Start(t)
	l := live(t, r, "")
	if _, ok := l.sink.(stream.TransactionalSink); !ok {
		l.end()
		return
	}
	stays := func(l *life) *stream.Batch {
		b := l.raw(1)
		b.Spans[0].Part, b.Spans[0].From = &stream.Partition{ID: "stays", Name: "stays"},
			stream.Position{}
		l.encode(b)
		return b
	}
	gone := l.batch(0)
	id := gone.Spans[0].Part.ID
	l.must(gone, stays(l))
	l.end()

	early := live(t, r, "")
	late := live(t, r, "")
	if len(late.marks) != 2 {
		t.Fatalf("the ledger holds %v, want two partitions", late.marks)
	}
	if err := early.sink.(stream.TransactionalSink).Prune(t.Context(), []string{id}); err == nil {
		t.Error("a process that was fenced off has dropped a partition")
	}
	_ = early.host.Stop() // the fence may have ended its route
	if err := early.sink.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range 2 { // a deleted partition may be deleted again
		if err := late.sink.(stream.TransactionalSink).Prune(t.Context(),
			[]string{id, "of which nobody knows"}); err != nil {
			t.Fatalf("Prune: %v", err)
		}
	}
	late.end()

	last := live(t, r, "")
	if len(last.marks) != 1 || last.marks[0].Part.ID != "stays" {
		t.Errorf("the ledger holds %v, want the partition that was not dropped", last.marks)
	}
	last.must(last.batch(0), stays(last))
	last.end()
	check(t, r, false, false, append(texts(0, 2), texts(0, 1)...))
}
