package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func at(n int64) Position { return Position{Num: n} }

func span(from, to int64) Range { return Range{From: at(from), To: at(to)} }

// opened returns a ledger with the items 1 to n open, each as its own range.
func opened(t testing.TB, n int64) *Ledger {
	t.Helper()
	l, err := New(Position{}, nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	for i := range n {
		if err := l.Open(span(i, i+1)); err != nil {
			t.Fatalf("Open(%d): %v", i+1, err)
		}
	}
	return l
}

func checkMark(t *testing.T, l *Ledger, watermark int64, above ...Range) {
	t.Helper()
	w, a := l.Progress()
	if w != at(watermark) || !slices.Equal(a, above) {
		t.Fatalf("mark is %v %v, want %v %v", w, a, watermark, above)
	}
}

func TestArticle(t *testing.T) {
	l := opened(t, 4)
	for _, step := range []struct {
		item, watermark int64
		above           []Range
		settled         bool
	}{
		{1, 1, nil, true},
		{3, 1, []Range{span(2, 3)}, true},
		{4, 1, []Range{span(2, 4)}, true},
		{2, 4, nil, true},
		{3, 4, nil, false},
	} {
		if got := l.Settle(span(step.item-1, step.item)); got != step.settled {
			t.Fatalf("Settle(%d) = %v, want %v", step.item, got, step.settled)
		}
		checkMark(t, l, step.watermark, step.above...)
	}
	if l.Pending() != 0 || l.Span() != 0 || l.Next() != at(4) || l.Watermark() != at(4) {
		t.Fatalf("pending %d, span %d, next %v, watermark %v", l.Pending(), l.Span(), l.Next(),
			l.Watermark())
	}
}

func TestPiecesAndStretches(t *testing.T) {
	l, _ := New(at(100), nil)
	for _, r := range []Range{span(100, 200), span(200, 300), span(300, 400)} {
		if err := l.Open(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		r         Range
		settled   bool
		pending   int
		watermark int64
		above     []Range
	}{
		{span(250, 260), true, 3, 100, []Range{span(250, 260)}},
		{span(260, 270), true, 3, 100, []Range{span(250, 270)}},
		{span(255, 265), false, 3, 100, []Range{span(250, 270)}},
		{span(280, 320), true, 3, 100, []Range{span(250, 270), span(280, 320)}},
		{span(100, 150), true, 3, 150, []Range{span(250, 270), span(280, 320)}},
		{span(0, 160), true, 3, 160, []Range{span(250, 270), span(280, 320)}},
		{span(240, 290), true, 3, 160, []Range{span(240, 320)}},
		{span(160, 400), true, 0, 400, nil},
		{span(160, 400), false, 0, 400, nil},
	} {
		if got := l.Settle(step.r); got != step.settled {
			t.Fatalf("Settle(%v) = %v, want %v", step.r, got, step.settled)
		}
		if l.Pending() != step.pending {
			t.Fatalf("Settle(%v): %d pending, want %d", step.r, l.Pending(), step.pending)
		}
		checkMark(t, l, step.watermark, step.above...)
	}
}

func TestNeverSettlesWhatWasNotOpened(t *testing.T) {
	l := opened(t, 3)
	for _, r := range []Range{span(2, 4), span(3, 4), span(1, 1), span(3, 1), span(-5, 0)} {
		if l.Settle(r) {
			t.Errorf("Settle(%v) settled something", r)
		}
	}
	checkMark(t, l, 0)
}

func TestResume(t *testing.T) {
	l, err := New(at(10), []Range{span(40, 50), span(20, 25), span(25, 30), span(22, 28),
		span(3, 12), span(60, 60), span(1, 9)})
	if err != nil {
		t.Fatal(err)
	}
	checkMark(t, l, 12, span(20, 30), span(40, 50))
	if end, ok := l.Limit(); l.Next() != at(12) || end != at(20) || !ok {
		t.Fatalf("next is (%v, %v] %v, want (12, 20]", l.Next(), end, ok)
	}
	for _, r := range []Range{span(12, 15), span(15, 20), span(30, 40), span(50, 70)} {
		if err := l.Open(r); err != nil {
			t.Fatalf("Open(%v): %v", r, err)
		}
	}
	if end, ok := l.Limit(); ok {
		t.Fatalf("a limit at %v, but nothing settled is ahead", end)
	}
	l.Settle(span(50, 60))
	checkMark(t, l, 12, span(20, 30), span(40, 60))
	l.Settle(span(15, 20))
	l.Settle(span(12, 15))
	checkMark(t, l, 30, span(40, 60))
	l.Settle(span(30, 70))
	checkMark(t, l, 70)
	if _, err := New(at(1), []Range{span(7, 5)}); err == nil ||
		!strings.Contains(err.Error(), "(7, 5]") {
		t.Fatalf("New with a reversed range: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	l, _ := New(at(10), []Range{span(20, 30)})
	if err := l.Open(span(10, 12)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    Range
		want string
	}{
		{span(14, 16), "ledger: open (14, 16]: (12, 14] before it was never opened; " +
			"open ranges in read order"},
		{span(10, 12), "ledger: open (10, 12]: everything up to 12 is open or settled already; " +
			"read on from there"},
		{span(12, 11), "ledger: open (12, 11]: it ends before it begins"},
		{span(12, 21), "ledger: open (12, 21]: (20, 30] of it was settled before the " +
			"restart; cut at 20"},
		{Range{at(12), Position{Num: 20, Key: "a"}},
			`ledger: open (12, 20 "a"]: (20, 30] of it was settled before the restart; cut at 20`},
	} {
		if err := l.Open(c.r); err == nil || err.Error() != c.want {
			t.Errorf("Open(%v): %v\nwant %s", c.r, err, c.want)
		}
	}
	if err := l.Open(span(12, 12)); err != nil || l.Pending() != 1 {
		t.Errorf("an empty range: %v, %d pending", err, l.Pending())
	}
}

func TestLimit(t *testing.T) {
	l := opened(t, MaxOpen)
	if l.Room() {
		t.Fatal("room after MaxOpen ranges")
	}
	if err := l.Open(span(MaxOpen, MaxOpen+1)); !errors.Is(err, ErrFull) {
		t.Fatalf("Open: %v, want ErrFull", err)
	}
	// Settle all but the first: they are joined to one range, so the memory does not grow.
	for i := int64(1); i < MaxOpen; i++ {
		l.Settle(span(i, i+1))
	}
	size := len(l.open.buf)
	for i := range int64(MaxOpen) {
		if err := l.Open(span(MaxOpen+i, MaxOpen+i+1)); err != nil {
			t.Fatal(err)
		}
		l.Settle(span(MaxOpen+i, MaxOpen+i+1))
	}
	checkMark(t, l, 0, span(1, 2*MaxOpen))
	if len(l.open.buf) != size {
		t.Fatalf("the ring grew from %d to %d entries while one range was pending", size,
			len(l.open.buf))
	}
	l.Settle(span(0, 1))
	checkMark(t, l, 2*MaxOpen)
}

func TestMarkAppends(t *testing.T) {
	l := opened(t, 6)
	l.Settle(span(1, 2))
	l.Settle(span(3, 5))
	held := []Range{span(0, 1)} // adjacent to the next range, and owned by the caller
	w, got := l.AppendProgress(held)
	if want := []Range{span(0, 1), span(1, 2), span(3, 5)}; w != at(0) ||
		!reflect.DeepEqual(got, want) {
		t.Fatalf("AppendProgress = %v %v, want 0 %v", w, got, want)
	}
}

func TestNoAllocationInOrder(t *testing.T) {
	l := opened(t, 64)
	next, first := int64(64), int64(0)
	marks := make([]Range, 0, 64)
	allocs := testing.AllocsPerRun(1000, func() {
		if l.Open(span(next, next+4)) != nil {
			t.Fatal("Open refused")
		}
		next += 4
		for range 4 { // first whole ranges, then ranges in four pieces
			l.Settle(span(first, first+1))
			first++
		}
		_, marks = l.AppendProgress(marks[:0])
	})
	if allocs != 0 {
		t.Fatalf("%v allocations a settle, want 0", allocs)
	}
}

func BenchmarkSettle(b *testing.B) {
	for _, open := range []int64{1, 128, 16384} {
		b.Run(fmt.Sprintf("in order, %d open", open), func(b *testing.B) {
			l := opened(b, open)
			b.ReportAllocs()
			for n := int64(0); b.Loop(); n++ {
				_ = l.Open(span(open+n, open+n+1))
				l.Settle(span(n, n+1))
			}
		})
		b.Run(fmt.Sprintf("newest first, %d open", open), func(b *testing.B) {
			l := opened(b, open)
			b.ReportAllocs()
			for n := int64(0); b.Loop(); n++ {
				_ = l.Open(span(open+n, open+n+1))
				l.Settle(span(open+n, open+n+1))
			}
		})
	}
}

// TestJoin checks that unordered ranges become ascending ones that are not adjacent.
func TestJoin(t *testing.T) {
	got := Join([]Range{span(7, 9), span(1, 3), span(3, 4), span(8, 12), span(2, 3)})
	if want := []Range{span(1, 4), span(7, 12)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Join(nil); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}
