//penstock:pure

package kafka

import (
	"slices"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// progress is the settled part of a source partition (delivered, dead-lettered or dropped): the
// offsets below a watermark, and ranges of offsets above it. A progress is immutable.
type progress struct {
	watermark int64
	above     []stream.Range // ascending, disjoint, not adjacent
}

// progressOf returns the progress of a mark.
func progressOf(m *stream.Mark) progress {
	return progress{watermark: m.Watermark.Num}.with(m.Above)
}

// mark returns p as the mark of a partition.
func (p progress) mark(part stream.Partition) stream.Mark {
	return stream.Mark{Part: part, Watermark: stream.Position{Num: p.watermark},
		Above: slices.Clone(p.above)}
}

// with returns p with ranges added to the settled part.
func (p progress) with(ranges []stream.Range) progress {
	above := ledger.Join(slices.Concat(p.above, ranges))
	at, n := p.watermark, 0
	for n < len(above) && above[n].From.Num <= at {
		at = max(at, above[n].To.Num)
		n++
	}
	return progress{at,
		slices.DeleteFunc(above[n:], func(r stream.Range) bool { return r.From == r.To })}
}

// equal reports whether p and q are equal.
func (p progress) equal(q progress) bool {
	return p.watermark == q.watermark && slices.Equal(p.above, q.above)
}

// coverage is the share of the offsets in a list of ranges that is already settled (delivered,
// dead-lettered or dropped): all, some or none.
type coverage uint8

const (
	uncovered coverage = iota
	partlyCovered
	covered
)

// coverageOf reports whether p contains all, some or none of the offsets of ranges. Empty ranges
// are ignored. If all ranges are empty, the result is uncovered.
func (p progress) coverageOf(ranges []stream.Range) coverage {
	ranges = slices.DeleteFunc(slices.Clone(ranges),
		func(r stream.Range) bool { return r.From.Num >= r.To.Num })
	some, all := false, len(ranges) > 0
	for _, r := range ranges {
		touched, whole := p.contains(r)
		some, all = some || touched, all && whole
	}
	switch {
	case all:
		return covered
	case some:
		return partlyCovered
	}
	return uncovered
}

// contains reports whether p contains a part of r, and whether it contains all of r.
func (p progress) contains(r stream.Range) (some, whole bool) {
	if r.From.Num < p.watermark {
		return true, r.To.Num <= p.watermark
	}
	for _, a := range p.above {
		if a.From.Num < r.To.Num && r.From.Num < a.To.Num {
			return true, a.From.Num <= r.From.Num && r.To.Num <= a.To.Num
		}
	}
	return false, false
}
