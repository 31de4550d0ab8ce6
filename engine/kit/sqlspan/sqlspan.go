//penstock:pure

// Package sqlspan implements the ledger of SQL sinks: span rows, written in the transaction of the
// data, that record which batches a table contains.
//
// A sink keeps three tables beside the data's, described in docs/formats/sql-tables.md: one row for
// each route with the epoch that fences off earlier processes, one mark for each partition, and one
// row for each span above its mark. If a broker assigns the partitions, a fourth table has an epoch
// for each partition, so that several processes share the ledger. [Fold] combines marks and rows
// into the progress from which a route resumes. [Judge] reports whether a batch was delivered. A
// sink with several connections, one transaction at a time each, embeds [Connections]: [Lane]s,
// which write with [Deliver], and their shared [Ledger]. The package contains no SQL of a
// particular database, starts no goroutine of its own, and depends on no driver.
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

// The names of the tables and the version of their format, which each route's row stores.
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

// Fold returns the progress of a route. For each partition it advances the mark over the rows that
// follow without a gap, and joins the remaining rows above it. A partition without a mark begins at
// the zero position. The result is sorted by partition id.
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
			return nil, fmt.Errorf("the ledger's rows of partition %s were changed by hand: %w",
				id, err)
		}
		m.Watermark, m.Above = l.Progress()
		out = append(out, *m)
	}
	return out, nil
}

// Covering appends the non-empty spans to dst. Empty ones only seal a partition and have no row.
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
	Part                 // a part, which no process of a route can cause
)

// Judge returns how much of spans a ledger contains. stored holds the end of each span's existing
// row, nil for none; marks holds the watermarks of partitions with a mark.
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

// FencedError means that another process has taken over the route's ledger. It ends the route.
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

// Is reports that e is a supervise.ErrStop and a stream.ErrTakenOver. The route must not restart:
// it would take the ledger back, and the two processes would alternate forever.
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
	if e.Format == SharedFormat {
		return fmt.Sprintf("the ledger %q has format %d, with partitions that a broker assigns "+
			"to several processes, but this source has no such partitions: give the route its "+
			"own `ledger:` name", e.Ledger, e.Format)
	}
	if e.Format == RequestFormat {
		return fmt.Sprintf("the ledger %q has format %d, with requests that several processes "+
			"receive, but this source has no such requests: give the route its own `ledger:` "+
			"name", e.Ledger, e.Format)
	}
	return fmt.Sprintf("the ledger %q has format %d, but this penstock reads %d to %d: use the "+
		"version that wrote it, or a newer one", e.Ledger, e.Format, Format, RequestFormat)
}

// Is reports that e is a supervise.ErrStop: a restart finds the same format.
func (e *FormatError) Is(target error) bool { return target == supervise.ErrStop }

// PartError means that a ledger contains a part of a batch. No process can cause that; the tables
// were changed by hand. It ends the route.
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

// Ends returns the error in err that ends a route, because no later attempt can succeed, or nil.
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
