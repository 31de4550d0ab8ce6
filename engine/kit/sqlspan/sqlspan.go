//penstock:pure

// Package sqlspan knows what the span rows of a SQL sink mean: they say, in the transaction of the
// data, what a table has.
//
// A sink keeps three tables beside the data's, described in docs/formats/sql-tables.md: one row for
// each route with the epoch that fences off earlier processes, one mark for each partition, and one
// row for each span above its mark. [Fold] makes of marks and rows what a route resumes from,
// [Judge] says whether a batch was delivered. A sink whose workers are connections of its own, each
// a transaction at a time, embeds [Connections]: [Lane]s, which write by [Deliver], and the [Books]
// that they share. The package writes no SQL, starts no goroutine of its own, and knows no driver.
package sqlspan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// The tables' names and the version of their form, which stands in each route's row.
const (
	RoutesTable = "penstock_routes"
	MarksTable  = "penstock_marks"
	SpansTable  = "penstock_spans"
	Format      = 1
)

// Row is one span that is stored.
type Row struct {
	Part string // the partition's id
	stream.Range
}

// Fold returns what a route has settled: for each partition the mark, moved up over the rows that
// follow it without a hole, and the rest of the rows above it, joined. A partition without a mark
// begins at the zero position, before everything. The result is sorted by partition id.
func Fold(marks []stream.Mark, rows []Row) ([]stream.Mark, error) {
	all := make(map[string]*stream.Mark, len(marks))
	for _, m := range marks {
		m.Above = slices.Clone(m.Above)
		all[m.Part.ID] = &m
	}
	for _, r := range rows {
		m := all[r.Part]
		if m == nil {
			m = &stream.Mark{Part: stream.Partition{ID: r.Part}}
			all[r.Part] = m
		}
		m.Above = append(m.Above, r.Range)
	}
	out := make([]stream.Mark, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		m := all[id]
		l, err := ledger.New(m.Watermark, m.Above)
		if err != nil {
			return nil, fmt.Errorf("the ledger's rows of partition %s were changed by hand: %w", id, err)
		}
		m.Watermark, m.Above = l.Mark()
		out = append(out, *m)
	}
	return out, nil
}

// Covering appends to dst the spans that cover anything: the others say only that a partition is
// sealed, and have no row.
func Covering(dst, spans []stream.Span) []stream.Span {
	for _, s := range spans {
		if s.From != s.To {
			dst = append(dst, s)
		}
	}
	return dst
}

// Presence is how much of a batch a ledger has.
type Presence uint8

// The presences.
const (
	None Presence = iota // nothing: it may be written
	All                  // everything: it was delivered
	Part                 // a part, which no single process of a route can bring about
)

// Judge says how much of spans a ledger has, where stored holds the end of each span's row that was
// there before, nil for none, and marks the watermark of each partition that has one.
func Judge(spans []stream.Span, stored []*stream.Position, marks map[string]stream.Position) Presence {
	there := 0
	for i, s := range spans {
		mark, marked := marks[s.Part.ID]
		switch {
		case marked && s.To.Compare(mark) <= 0:
			there++
		case marked && s.From.Compare(mark) < 0:
			return Part
		case stored[i] != nil && s.To.Compare(*stored[i]) <= 0:
			there++
		case stored[i] != nil:
			return Part
		}
	}
	switch there {
	case 0:
		return None
	case len(spans):
		return All
	}
	return Part
}

// FencedError says that another process has taken over the route's ledger. It ends the route.
type FencedError struct {
	Ledger    string
	Own, Seen int64 // epochs
}

// Error says what happened and what to do.
func (e *FencedError) Error() string {
	return fmt.Sprintf("another process delivers to the ledger %q (its epoch is %d, this one's was %d): stop one of the two, "+
		"or give each a `ledger:` name of its own", e.Ledger, e.Seen, e.Own)
}

// Is says that it is a supervise.ErrStop: a route that was started again would take the ledger
// back, and so on for ever.
func (e *FencedError) Is(target error) bool { return target == supervise.ErrStop }

// PartError says that a ledger has a part of a batch, which should be impossible: somebody changed
// its tables by hand. It ends the route.
type PartError struct {
	Ledger string
	Span   stream.Span // the batch's first
}

// Error says what happened and what to do.
func (e *PartError) Error() string {
	return fmt.Sprintf("the ledger %q has a part of the batch that begins with %s %v, and not the rest: its tables were changed "+
		"by hand; restart penstock to go on from what they say now", e.Ledger, e.Span.Part.ID, e.Span.Range)
}

// Ends returns the error in err that ends a route, nil where there is none: no attempt will ever go
// better.
func Ends(err error) error {
	if e, ok := errors.AsType[*FencedError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*PartError](err); ok {
		return e
	}
	return nil
}
