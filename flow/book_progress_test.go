package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
)

func numAccount(t testing.TB) *progressTracker[int64] {
	t.Helper()
	l, err := ledger.New(ledger.Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &progressTracker[int64]{at: numRow, ledger: l}
}

// numBatch returns a batch of the rows (from, to].
func numBatch(from, to int64) Item[[]int64] {
	it := Item[[]int64]{Bytes: to - from}
	for n := from + 1; n <= to; n++ {
		it.Value = append(it.Value, n)
	}
	return it
}

// TestTrackerReleasesBatches checks that a batch that hangs stops the watermark, but that the
// tracker still removes the later batches as they settle.
func TestTrackerReleasesBatches(t *testing.T) {
	a := numAccount(t)
	for n := range int64(100_000) {
		it := numBatch(2*n, 2*n+2)
		if _, err := a.open(it, numRow(2*n+2)); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			if err := a.settle(it); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(a.batches) > 3*minSweep {
		t.Errorf("%d entries for one batch that is open", len(a.batches))
	}
	if err := a.settle(numBatch(0, 2)); err != nil {
		t.Fatal(err)
	}
	if w, above, bytes, ok := a.takeProgress(nil); w != num(200_000) || len(above) > 0 ||
		bytes != 200_000 || !ok {
		t.Errorf("the mark is %v %v with %d bytes, %v", w, above, bytes, ok)
	}
	if _, _, _, ok := a.takeProgress(nil); ok {
		t.Error("it is taken twice")
	}
}

// TestAccountPiecesBeforeGap checks a batch just before a range that was settled before the
// restart. The batch extends up to that range. So when all rows of the batch have settled, one by
// one, the watermark passes the range.
func TestAccountPiecesBeforeGap(t *testing.T) {
	l, err := ledger.New(num(12), []ledger.Range{{From: num(20), To: num(30)}})
	if err != nil {
		t.Fatal(err)
	}
	a := &progressTracker[int64]{at: numRow, ledger: l}
	if end, err := a.open(Item[[]int64]{Value: []int64{14, 18}}, num(22)); end != num(20) ||
		err != nil {
		t.Fatalf("the batch ends at %v, %v", end, err)
	}
	for _, row := range []int64{18, 14} {
		if err := a.settle(Item[[]int64]{Value: []int64{row}}); err != nil {
			t.Fatal(err)
		}
	}
	if w, above := l.Progress(); w != num(30) || len(above) > 0 {
		t.Errorf("the mark is %v %v, want 30", w, above)
	}
}

// TestTrackerUnknownPieces checks that the tracker returns an error for pieces that do not match
// their batch, and that such pieces settle no later row.
func TestTrackerUnknownPieces(t *testing.T) {
	rows := func(list ...int64) Item[[]int64] { return Item[[]int64]{Value: list} }
	for _, pieces := range [][]Item[[]int64]{
		{rows(1), rows(1)}, {rows(2, 2)}, {rows(5)}, {rows(1, 7)}, {rows(0)},
		{rows(1, 2, 3, 3), rows(2)}, {rows(3), rows(3), rows(3)},
	} {
		a := numAccount(t)
		if _, err := a.open(rows(1, 2, 3, 3), num(3)); err != nil {
			t.Fatal(err)
		}
		var err error
		for _, p := range pieces {
			err = errors.Join(err, a.settle(p))
		}
		if err == nil || !strings.Contains(err.Error(), "must be exactly the rows of the batch") {
			t.Errorf("pieces %v: %v", pieces, err)
		}
	}
}

// TestBookUnknownPieces checks a worker that returns a Split with pieces that are not exactly the
// rows of the batch. The run must end with an error, and no progress may include these pieces.
func TestBookUnknownPieces(t *testing.T) {
	m := &memory{}
	var b *Book[int64]
	b = mustBook(t, one(m, func(_ context.Context, rows []int64) error {
		return &Split[[]int64]{Done: []Item[[]int64]{b.Piece(rows[:1]), b.Piece(rows[:1])},
			Err: errors.New("in part")}
	}))
	err := b.Run(t.Context(), nums(4, 5, 6))
	if err == nil || !strings.Contains(err.Error(), "a row at 4 has settled that is in no batch") {
		t.Errorf("Run: %v", err)
	}
	if m.watermark != (ledger.Position{}) {
		t.Errorf("the mark is %v", m.watermark)
	}
}

// TestBookPiece checks that the cost of a piece is the cost of its rows.
func TestBookPiece(t *testing.T) {
	o := one(&memory{}, acceptAll)
	if it := mustBook(t, o).Piece([]int64{3, 4}); it.Cost != 2 || it.Bytes != 2 ||
		len(it.Value) != 2 {
		t.Errorf("a piece of two rows: %+v", it)
	}
	o.Pack.CostOf = func(n int64) float64 { return float64(n) }
	o.Pack.BytesOf = func(n int64) int64 { return 10 * n }
	if it := mustBook(t, o).Piece([]int64{3, 4}); it.Cost != 7 || it.Bytes != 70 {
		t.Errorf("a piece of two rows: %+v", it)
	}
}

// TestBookLedgerFull checks that, when the ledger has its maximum of open batches, the Book reads
// no more rows until a batch settles.
func TestBookLedgerFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustBook(t, one(&memory{}, acceptAll))
		b.next, b.fail = upToRow(ledger.MaxOpen+2), func(error) {}
		b.rows.o.Rows, b.rows.join = 1, nil
		var first Item[[]int64]
		for n := range ledger.MaxOpen {
			it, err := b.produce(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				first = it
			}
		}
		start := time.Now()
		timer := time.AfterFunc(time.Minute, func() { b.settled(first, Settlement{}) })
		defer timer.Stop()
		if it, err := b.produce(t.Context()); err != nil || it.Value[0] != ledger.MaxOpen+1 ||
			time.Since(start) != time.Minute {
			t.Errorf("then %v, %v after %v", it.Value, err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.produce(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the context: %v", err)
		}
	})
}

// TestBookAllocations checks that beginning and settling a batch does not allocate, whether batches
// settle in order or not.
func TestBookAllocations(t *testing.T) {
	a := numAccount(t)
	batches := make([]Item[[]int64], 4000)
	for i := range batches {
		batches[i] = numBatch(int64(3*i), int64(3*i+3))
	}
	next := 0
	begin := func() {
		it := batches[next]
		if _, err := a.open(it, num(it.Value[2])); err != nil {
			t.Fatal(err)
		}
		next++
	}
	for range 256 {
		begin()
	}
	if allocs := testing.AllocsPerRun(1000, func() {
		begin()
		begin()
		for _, i := range []int{next - 201, next - 202} {
			if err := a.settle(batches[i]); err != nil {
				t.Fatal(err)
			}
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for two batches, want 0", allocs)
	}
}

// BenchmarkSettleThroughBook measures the settle path of the Sender, with a Book and a checkpoint
// that stores nothing.
func BenchmarkSettleThroughBook(b *testing.B) {
	const batches = 10_000
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprint(size, " rows"), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				o := BookOptions[int64]{Checkpoint: &memory{}, At: numRow, Unique: true,
					Replay: 1 << 40}
				o.Pack.Rows = size
				for i := range 100 {
					o.Sender.Lanes = append(o.Sender.Lanes,
						Lane[[]int64]{Name: fmt.Sprint(i), Worker: acceptingWorker{}})
				}
				row := int64(0)
				if err := mustBook(b, o).Run(b.Context(), func(context.Context) (int64, error) {
					if row == int64(batches*size) {
						return 0, io.EOF
					}
					row++
					return row, nil
				}); err != nil {
					b.Fatal(err)
				}
				n += batches
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "settles/s")
		})
	}
}

type acceptingWorker struct{}

func (acceptingWorker) Deliver(context.Context, Attempt[[]int64]) (Report, error) {
	return Report{}, nil
}
