package sqlspan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-io/penstock"
)

func at(n int) penstock.Position { return penstock.Position{Num: int64(n)} }

// TestFoldAgainstCells holds Fold against a naive model: a partition is cells, each settled or not.
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
			rows = append(rows, Row{"p", penstock.Range{From: at(from), To: at(to)}})
			for i := from; i < to; i++ {
				settled[i] = true
			}
		}
		var marks []penstock.Mark
		if watermark > 0 || round%2 == 0 {
			marks = []penstock.Mark{{Part: penstock.Partition{ID: "p", Name: "n"}, Watermark: at(watermark)}}
		}
		got := Fold(marks, rows)
		if len(got) == 0 {
			if len(rows)+len(marks) > 0 {
				t.Fatalf("round %d: nothing", round)
			}
			continue
		}
		want := penstock.Mark{}
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
			want.Above = append(want.Above, penstock.Range{From: at(from), To: at(i)})
		}
		if got[0].Watermark != want.Watermark || !slices.Equal(got[0].Above, want.Above) {
			t.Fatalf("round %d, seed %d: Fold(%v, %v) = %v, want %v", round, seed, marks, rows, got[0], want)
		}
	}
}

func TestJudge(t *testing.T) {
	part := &penstock.Partition{ID: "p"}
	span := func(from, to int) penstock.Span {
		return penstock.Span{Part: part, Range: penstock.Range{From: at(from), To: at(to)}}
	}
	end := func(n int) *penstock.Position { p := at(n); return &p }
	for _, c := range []struct {
		name   string
		spans  []penstock.Span
		stored []*penstock.Position
		mark   int // -1: none
		want   Presence
	}{
		{"new", []penstock.Span{span(0, 5)}, []*penstock.Position{nil}, -1, None},
		{"new above the mark", []penstock.Span{span(5, 9)}, []*penstock.Position{nil}, 5, None},
		{"the row is there", []penstock.Span{span(5, 9)}, []*penstock.Position{end(9)}, 5, All},
		{"a longer row is there", []penstock.Span{span(5, 9)}, []*penstock.Position{end(12)}, -1, All},
		{"a shorter row is there", []penstock.Span{span(5, 9)}, []*penstock.Position{end(7)}, -1, Part},
		{"below the mark", []penstock.Span{span(0, 5)}, []*penstock.Position{nil}, 5, All},
		{"across the mark", []penstock.Span{span(0, 5)}, []*penstock.Position{nil}, 3, Part},
		{"one of two", []penstock.Span{span(0, 5), span(7, 9)}, []*penstock.Position{end(5), nil}, -1, Part},
		{"both, one folded", []penstock.Span{span(0, 5), span(7, 9)}, []*penstock.Position{nil, end(9)}, 5, All},
	} {
		marks := map[string]penstock.Position{}
		if c.mark >= 0 {
			marks["p"] = at(c.mark)
		}
		if got := Judge(c.spans, c.stored, marks); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
