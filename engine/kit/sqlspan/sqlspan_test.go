package sqlspan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

func at(n int) stream.Position { return stream.Position{Num: int64(n)} }

// TestFoldAgainstCells compares Fold with a naive model: a partition is an array of cells, each
// settled or not.
func TestFoldAgainstCells(t *testing.T) {
	const seed, cells = 1, 40
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 2000 {
		var settled [cells]bool
		watermark := random.IntN(10)
		for i := range watermark {
			settled[i] = true
		}
		var rows []Row
		for range random.IntN(12) {
			from := random.IntN(cells - 1)
			to := from + 1 + random.IntN(min(6, cells-from-1))
			rows = append(rows, Row{"p", stream.Range{From: at(from), To: at(to)}})
			for i := from; i < to; i++ {
				settled[i] = true
			}
		}
		var marks []stream.Mark
		if watermark > 0 || round%2 == 0 {
			marks = []stream.Mark{{Part: stream.Partition{ID: "p", Name: "n"},
				Watermark: at(watermark)}}
		}
		got, err := Fold(marks, rows)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			if len(rows)+len(marks) > 0 {
				t.Fatalf("round %d: nothing", round)
			}
			continue
		}
		want := stream.Mark{}
		i := 0
		for ; i < cells && settled[i]; i++ {
			want.Watermark = at(i + 1)
		}
		for ; i < cells; i++ {
			if !settled[i] {
				continue
			}
			from := i
			for i < cells && settled[i] {
				i++
			}
			want.Above = append(want.Above, stream.Range{From: at(from), To: at(i)})
		}
		if got[0].Watermark != want.Watermark || !slices.Equal(got[0].Above, want.Above) {
			t.Fatalf("round %d, seed %d: Fold(%v, %v) = %v, want %v", round, seed, marks, rows,
				got[0], want)
		}
	}
}

func TestJudge(t *testing.T) {
	part := &stream.Partition{ID: "p"}
	span := func(from, to int) stream.Span {
		return stream.Span{Part: part, Range: stream.Range{From: at(from), To: at(to)}}
	}
	end := func(n int) *stream.Position { p := at(n); return &p }
	for _, c := range []struct {
		name   string
		spans  []stream.Span
		stored []*stream.Position
		mark   int // -1 means none
		want   Presence
	}{
		{"new", []stream.Span{span(0, 5)}, []*stream.Position{nil}, -1, None},
		{"new above the mark", []stream.Span{span(5, 9)}, []*stream.Position{nil}, 5, None},
		{"the row is there", []stream.Span{span(5, 9)}, []*stream.Position{end(9)}, 5, All},
		{"a longer row is there", []stream.Span{span(5, 9)}, []*stream.Position{end(12)}, -1, All},
		{"a shorter row is there", []stream.Span{span(5, 9)}, []*stream.Position{end(7)}, -1, Part},
		{"below the mark", []stream.Span{span(0, 5)}, []*stream.Position{nil}, 5, All},
		{"across the mark", []stream.Span{span(0, 5)}, []*stream.Position{nil}, 3, Part},
		{"one of two", []stream.Span{span(0, 5), span(7, 9)}, []*stream.Position{end(5), nil},
			-1, Part},
		{"both, one folded", []stream.Span{span(0, 5), span(7, 9)}, []*stream.Position{nil, end(9)},
			5, All},
	} {
		marks := map[string]stream.Position{}
		if c.mark >= 0 {
			marks["p"] = at(c.mark)
		}
		if got := Judge(c.spans, c.stored, marks); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestFoldRefusesNonsense checks that Fold returns an error for a row that ends before it begins.
func TestFoldRefusesNonsense(t *testing.T) {
	row := Row{"p", stream.Range{From: at(5), To: at(3)}}
	if marks, err := Fold(nil, []Row{row}); err == nil {
		t.Errorf("a row %v became %v", row.Range, marks)
	}
}
