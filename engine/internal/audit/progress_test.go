package audit

import (
	"slices"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

func between(from, to int64) stream.Range {
	return stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}}
}

func TestProgress(t *testing.T) {
	m := stream.Mark{Watermark: stream.Position{Num: 10},
		Above: []stream.Range{between(20, 30), between(40, 50)}}
	for _, c := range []struct {
		r    stream.Range
		want []stream.Range
	}{
		{between(0, 10), nil},
		{between(5, 11), []stream.Range{between(10, 11)}},
		{between(10, 20), []stream.Range{between(10, 20)}},
		{between(0, 60), []stream.Range{between(10, 20), between(30, 40), between(50, 60)}},
		{between(25, 45), []stream.Range{between(30, 40)}},
		{between(20, 30), nil},
		{between(55, 60), []stream.Range{between(55, 60)}},
	} {
		if got := without(c.r, settled(m)); !slices.Equal(got, c.want) {
			t.Errorf("%v without what is settled: %v, want %v", c.r, got, c.want)
		}
	}
	for at, want := range map[int64]bool{
		1: true, 10: true, 11: false, 20: false, 21: true, 30: true, 31: false, 50: true, 51: false,
	} {
		if got := contains(settled(m), stream.Position{Num: at}); got != want {
			t.Errorf("%d is settled: %v, want %v", at, got, want)
		}
	}
	if got := without(between(0, 9), settled(stream.Mark{})); !slices.Equal(
		got,
		[]stream.Range{between(0, 9)},
	) {
		t.Errorf("without a mark: %v", got)
	}
}
