//penstock:pure

// Package sqlspan implements the ledger of SQL sinks. The ledger records which data the database
// contains. A batch has data and spans: the ranges of the source's partitions from which the data
// came ([stream.Span]). A sink writes the data and the spans of a batch in one transaction, so that
// no batch is stored twice.
//
// The ledger has three tables (docs/formats/sql-tables.md):
//
//	routes   one row for each route, with its epoch, which fences earlier processes
//	marks    one row for each partition, with its watermark
//	spans    one row for each delivered span above the watermark
//
// If a broker assigns the partitions, several processes share the ledger. A fourth table then has
// an epoch for each partition. [Fold] combines marks and spans to the progress from which a route
// resumes. [Judge] reports whether a batch was delivered.
//
// A sink with several connections embeds [Connections]. Connections have a [Lane] for each
// connection, and one [Ledger] for all of them. [Deliver] writes a batch over a connection. The
// package contains no SQL of a particular database, starts goroutines only with [stream.Host].Go,
// and depends on no driver.
package sqlspan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// The names of the tables, and the versions of their format. The row of each route in the routes
// table contains the version.
const (
	RoutesTable = "penstock_routes"
	MarksTable  = "penstock_marks"
	SpansTable  = "penstock_spans"
	EpochsTable = "penstock_epochs" // only in ledgers of SharedFormat

	Format       = 1 // one owner, fenced by the epoch in RoutesTable
	SharedFormat = 2 // one owner for each partition, fenced by the epochs in EpochsTable
)

// Row is a stored span.
type Row struct {
	Part string // the partition's id
	stream.Range
}

// Fold returns the progress of a route from its marks and its rows of spans. For each partition, it
// advances the watermark over the rows that follow without a gap, and joins adjacent rows above the
// watermark. Example: the watermark 10 and the rows 10-20, 30-40 and 40-50 become the watermark 20
// and the range 30-50. A partition without a mark begins at the zero position. The result is sorted
// by partition id.
func Fold(marks []stream.Mark, rows []Row) ([]stream.Mark, error) {
	above := make(map[string][]stream.Range)
	for _, r := range rows {
		above[r.Part] = append(above[r.Part], r.Range)
	}
	out := make([]stream.Mark, 0, len(marks)+len(above))
	for _, m := range marks {
		m.Above = slices.Concat(m.Above, above[m.Part.ID])
		delete(above, m.Part.ID)
		out = append(out, m)
	}
	for id, ranges := range above {
		out = append(out, stream.Mark{Part: stream.Partition{ID: id}, Above: ranges})
	}
	for i := range out {
		m := &out[i]
		if len(m.Above) == 0 { // as for nearly all requests of a ledger, which may be many
			continue
		}
		l, err := ledger.New(m.Watermark, m.Above)
		if err != nil {
			return nil, fmt.Errorf("the ledger's rows of partition %s were changed by hand: %w",
				m.Part.ID, err)
		}
		m.Watermark, m.Above = l.Progress()
	}
	slices.SortFunc(out, func(a, b stream.Mark) int { return strings.Compare(a.Part.ID, b.Part.ID) })
	return out, nil
}

// Covering appends the non-empty spans to dst. An empty span only marks the end of a partition, and
// the ledger has no row for it.
func Covering(dst, spans []stream.Span) []stream.Span {
	for _, s := range spans {
		if s.From != s.To {
			dst = append(dst, s)
		}
	}
	return dst
}

// Presence is the part of a batch that a ledger contains.
type Presence uint8

// The values of Presence.
const (
	None Presence = iota // nothing: the batch may be written
	All                  // everything: the batch was delivered
	Part                 // a part; see [Judge] and [Ledger.Enter]
)

// Judge reports whether a ledger contains none, all or a part of spans. A part means that the
// ledger was changed by hand. stored has an element for each span: the end of the existing row with
// the same start, or nil. marks has the watermarks by partition.
func Judge(spans []stream.Span, stored []*stream.Position,
	marks map[string]stream.Position) Presence {
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

// FencedError means that another process has taken over the ledger of the route. It ends the route.
type FencedError struct {
	Ledger    string
	Own, Seen int64 // epochs
}

// Error returns the problem and its remedy.
func (e *FencedError) Error() string {
	return fmt.Sprintf("another process delivers to the ledger %q (its epoch is %d, this "+
		"process has %d): stop one of them, or give each its own `ledger:` "+
		"name", e.Ledger, e.Seen, e.Own)
}

// Is makes errors.Is report e as supervise.ErrStop and as stream.ErrTakenOver. The route must not
// restart: it would take the ledger back, and the two processes would alternate forever.
func (e *FencedError) Is(target error) bool {
	return target == supervise.ErrStop || target == stream.ErrTakenOver
}

// FormatError means that a ledger has a format that cannot be used. It ends the route.
type FormatError struct {
	Ledger string
	Format int64
}

// Error returns the problem and its remedy.
func (e *FormatError) Error() string {
	const text = "the ledger %q has format %d, with %s that %s, but this source has no such " +
		"%[3]s: give the route its own `ledger:` name"
	switch e.Format {
	case SharedFormat:
		return fmt.Sprintf(text, e.Ledger, e.Format, "partitions",
			"a broker assigns to several processes")
	case RequestFormat:
		return fmt.Sprintf(text, e.Ledger, e.Format, "requests", "several processes receive")
	}
	return fmt.Sprintf("the ledger %q has format %d, but this penstock reads %d to %d: use the "+
		"version that wrote it, or a newer one", e.Ledger, e.Format, Format, RequestFormat)
}

// Is makes errors.Is report e as supervise.ErrStop, because a restart would find the same format.
func (e *FormatError) Is(target error) bool { return target == supervise.ErrStop }

// PartError means that a ledger contains only a part of the spans of a batch. Except for those of
// requests ([RequestFormat]), the spans of a batch are stored together, so the tables were probably
// changed by hand. The error ends the route.
type PartError struct {
	Ledger string
	Span   stream.Span // the first span of the batch
}

// Error returns the problem and its remedy.
func (e *PartError) Error() string {
	return fmt.Sprintf("the ledger %q has only a part of the batch that begins with %s %v: its "+
		"tables were changed by hand; restart penstock to resume from their current "+
		"content", e.Ledger, e.Span.Part.ID,
		e.Span.Range)
}

// Ends returns the error in err that must end the route, because no later attempt can succeed. It
// returns nil if err contains no such error.
func Ends(err error) error {
	if e, ok := errors.AsType[*FencedError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*FormatError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*PartError](err); ok {
		return e
	}
	return nil
}
