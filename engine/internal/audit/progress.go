//penstock:pure

package audit

import (
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// progress has the progress of a route in each partition. The keys are partition ids.
type progress map[string]stream.Mark

// settled returns the settled ranges of a partition in ascending order. They include the range from
// the zero position to the watermark.
func settled(m stream.Mark) []stream.Range {
	out := []stream.Range{}
	if m.Watermark != (stream.Position{}) {
		out = append(out, stream.Range{To: m.Watermark})
	}
	return append(out, m.Above...)
}

// contains reports whether p is in one of the ranges, which must be in ascending order.
func contains(ranges []stream.Range, p stream.Position) bool {
	i, _ := slices.BinarySearchFunc(ranges, p, func(r stream.Range, p stream.Position) int {
		return r.To.Compare(p)
	})
	return i < len(ranges) && p.Compare(ranges[i].From) > 0
}

// without returns the parts of r that no range in taken covers. The ranges must be in ascending
// order and must not overlap.
func without(r stream.Range, taken []stream.Range) []stream.Range {
	var out []stream.Range
	for _, t := range taken {
		if t.To.Compare(r.From) <= 0 {
			continue
		}
		if t.From.Compare(r.To) >= 0 {
			break
		}
		if r.From.Compare(t.From) < 0 {
			out = append(out, stream.Range{From: r.From, To: t.From})
		}
		if r.From = t.To; r.From.Compare(r.To) >= 0 {
			return out
		}
	}
	return append(out, r)
}
