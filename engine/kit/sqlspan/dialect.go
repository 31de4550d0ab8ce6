package sqlspan

import (
	"cmp"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// Dialect is the SQL of a ledger's tables in one kind of database. In its texts, $routes, $marks,
// $spans and $epochs stand for the names of the tables. docs/formats/sql-tables.md describes the
// tables. Each statement has the listed arguments, in this order.
type Dialect struct {
	// Place describes the location of the tables in messages. Example: `table
	// "s"."penstock_marks"`.
	Place string
	// Names replaces $routes, $marks, $spans and $epochs in a text; see [Beside].
	Names func(text string) string
	// Present is a query that returns whether the tables exist. If it is set, Create must create
	// all of them or none. If it is empty, Create always runs.
	Present Statement
	Create  []string

	// Load runs Alone, which waits until the transactions of earlier processes have ended. To make
	// this possible, every other transaction runs Share, and Lock is appended to its query for the
	// epoch.
	Alone, Share []Statement
	Lock         string

	// Bump increments the epoch of a route. Arguments: route, format. It is empty if Alone also
	// increments the epoch.
	Bump string
	// SetMark raises the watermark of a mark, and never lowers it. Arguments: route, part, name,
	// num, key.
	SetMark string
	// InsertSpan inserts the row of a span, unless there is a row with the same start. Arguments:
	// route, part, from_num, from_key, to_num, to_key.
	InsertSpan string

	// Arrays means that a statement for several rows has an array for each argument after the
	// route, and that parameters are written $1, $2 and so on. InsertSpan then returns part,
	// from_num and from_key of the inserted rows. With Arrays, the texts below are required.
	// Without it, they have defaults.
	Arrays bool
	// SpanEnd returns the row of the span with a given start. Arguments: route, part, from_num,
	// from_key.
	SpanEnd string
	// MarkOf returns part, num and key of a mark. Arguments: route, part.
	MarkOf string
	// FoldSpans deletes the rows of spans that end at or before a position. Arguments: route, part,
	// num, key.
	FoldSpans string
	// PruneMarks and PruneSpans delete the rows of a partition. Arguments: route, part.
	PruneMarks, PruneSpans string

	// Claim inserts the mark of a request, or locks the mark if it exists. Arguments: route, part,
	// name, num, key. With Arrays, Claim returns the part of each inserted mark.
	Claim string
	// BeforeClaim and AfterClaim begin and end a time limit for Claim, which waits for transactions
	// of other processes that store the same requests.
	BeforeClaim, AfterClaim []Statement
	// PruneRequests deletes a mark if its name matches a pattern or is less than a bound.
	// Arguments: route, part, pattern, bound. PruneOrphans deletes the spans of a partition that
	// has no mark. Arguments: route, part.
	PruneRequests, PruneOrphans string

	// PresentEpochs and CreateEpochs are Present and Create for the table $epochs, which has the
	// epoch of each partition. Only a ledger with several owners has this table.
	PresentEpochs Statement
	CreateEpochs  string
	// TakeParts returns statements that wait for all transactions of the given partitions, before
	// their epochs are raised. To make this possible, all other transactions run the statements of
	// ShareParts, and Lock is appended to their query for the epochs. Both functions are nil if
	// Lock suffices, or if the database has one writer at a time. ids must be sorted.
	TakeParts, ShareParts func(ids []string) []*Statement
	// RaiseEpoch increments the epoch of a partition. If the partition has none, RaiseEpoch inserts
	// 1. Arguments: route, part.
	RaiseEpoch string
	// EpochOf returns part and epoch of a partition. Arguments: route, part.
	EpochOf string
	// SpansOf returns the rows of all spans of a partition. Arguments: route, part.
	SpansOf string

	// ID returns the id of a route or partition as an argument of a statement. If ID is nil, the
	// argument is the id as a string.
	ID func(id string) any
}

// Beside returns a function that replaces $routes, $marks, $spans and $epochs by the names of the
// ledger's tables. These tables are in the schema of the data's table.
func Beside(name sqltable.Name) func(text string) string {
	return strings.NewReplacer(
		"$routes", name.Beside(RoutesTable).String(), "$marks", name.Beside(MarksTable).String(),
		"$spans", name.Beside(SpansTable).String(),
		"$epochs", name.Beside(EpochsTable).String(),
	).Replace
}

// complete sets defaults and replaces the table names in all texts.
func (d *Dialect) complete() {
	d.SpanEnd = cmp.Or(d.SpanEnd, spansText+" AND part = ? AND from_num = ? AND from_key = ?")
	d.MarkOf = cmp.Or(d.MarkOf, `SELECT part, num, "key" FROM $marks WHERE route = ? AND part = ?`)
	d.FoldSpans = cmp.Or(d.FoldSpans, `DELETE FROM $spans WHERE route = ? AND part = ? AND `+
		`(to_num, to_key) <= (?, ?)`)
	d.PruneMarks = cmp.Or(d.PruneMarks, `DELETE FROM $marks WHERE route = ? AND part = ?`)
	d.PruneSpans = cmp.Or(d.PruneSpans, `DELETE FROM $spans WHERE route = ? AND part = ?`)
	d.EpochOf = cmp.Or(d.EpochOf, `SELECT part, epoch FROM $epochs WHERE route = ? AND part = ?`)
	d.SpansOf = cmp.Or(d.SpansOf, spansText+" AND part = ?")
	d.PruneRequests = cmp.Or(d.PruneRequests,
		`DELETE FROM $marks WHERE route = ? AND part = ? AND (name LIKE ? OR name < ?)`)
	d.PruneOrphans = cmp.Or(d.PruneOrphans, `DELETE FROM $spans WHERE route = ? AND part = ? AND `+
		`NOT EXISTS (SELECT 1 FROM $marks m WHERE m.route = $spans.route AND m.part = $spans.part)`)
	texts := []*string{&d.Claim, &d.PruneRequests, &d.PruneOrphans,
		&d.CreateEpochs, &d.RaiseEpoch, &d.EpochOf, &d.SpansOf,
		&d.Bump, &d.SetMark, &d.InsertSpan, &d.SpanEnd, &d.MarkOf, &d.FoldSpans,
		&d.PruneMarks, &d.PruneSpans}
	for i := range d.Alone {
		texts = append(texts, &d.Alone[i].SQL)
	}
	for i := range d.Create {
		texts = append(texts, &d.Create[i])
	}
	for _, text := range texts {
		*text = d.Names(*text)
	}
	if d.ID == nil {
		d.ID = func(id string) any { return id }
	}
}

// shared prepares one of the texts of all dialects. It replaces the names of tables and, with
// Arrays, the parameters.
func (d *Dialect) shared(text string) string {
	if d.Arrays {
		text = strings.Replace(text, "?", "$1", 1)
		text = strings.Replace(text, "?", "$2", 1)
	}
	return d.Names(text)
}

// Texts of all dialects. Their only argument is the route. moveMarks and moveSpans have two
// arguments: the new and the old route.
const (
	routeText   = `SELECT format, epoch FROM $routes WHERE route = ?`
	marksText   = `SELECT part, name, num, "key" FROM $marks WHERE route = ?`
	requestText = `UPDATE $routes SET format = 3 WHERE route = ?`
	forgetText  = `DELETE FROM $routes WHERE route = ?`
	moveMarks   = `UPDATE $marks SET route = ? WHERE route = ?`
	moveSpans   = `UPDATE $spans SET route = ? WHERE route = ?`
	shareText   = `UPDATE $routes SET format = 2 WHERE route = ?`
	spansText   = `SELECT part, from_num, from_key, to_num, to_key FROM $spans WHERE route = ?`
)
