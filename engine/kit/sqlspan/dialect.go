package sqlspan

import (
	"cmp"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// Dialect is the SQL of a ledger's tables in one database. In its texts $routes, $marks, $spans
// and $epochs stand for the tables.
type Dialect struct {
	// Place names the tables for messages: `table "s"."penstock_marks"`.
	Place string
	// Names replaces the tables' names in a text; see [Beside].
	Names func(text string) string
	// Present is a query that returns whether the tables exist. If it is set, Create must create
	// all of them or none. If it is empty, Create always runs.
	Present Statement
	Create  []string

	// Alone waits until the transactions of earlier processes have ended. Load runs it. For that
	// purpose all other transactions run Share, and Lock is appended to the query for the epoch.
	Alone, Share []Statement
	Lock         string

	// Bump raises a route's epoch; arguments: route, format. Empty if Alone does.
	Bump string
	// SetMark raises a mark, never lowers it; arguments: route, part, name, num, key.
	SetMark string
	// InsertSpan inserts a row unless one is there; arguments: route, part, from_num, from_key,
	// to_num, to_key.
	InsertSpan string

	// Arrays means that statements over several rows take arrays as arguments after the route, and
	// that parameters are $1, $2. InsertSpan then returns part, from_num and from_key of inserted
	// rows, and the texts below are required. Otherwise they have defaults.
	Arrays bool
	// SpanEnd returns rows of spans; arguments: route, part, from_num, from_key.
	SpanEnd string
	// MarkOf returns part, num and key of a mark; arguments: route, part.
	MarkOf string
	// FoldSpans deletes rows at or below a position; arguments: route, part, num, key.
	FoldSpans string
	// PruneMarks and PruneSpans delete rows of a partition; arguments: route, part.
	PruneMarks, PruneSpans string

	// Claim inserts the mark of a request unless one is there, and locks an existing one.
	// Arguments: route, part, name, num, key. With Arrays it returns part of the inserted ones.
	Claim string
	// BeforeClaim and AfterClaim begin and end a time limit for Claim, which waits for
	// transactions of other processes.
	BeforeClaim, AfterClaim []Statement
	// PruneRequests deletes marks with a name like a pattern, or below a bound; arguments:
	// route, part, pattern, bound. PruneOrphans deletes rows of spans of partitions without a mark;
	// arguments: route, part.
	PruneRequests, PruneOrphans string

	// PresentEpochs and CreateEpochs correspond to Present and Create, for the table of epochs by
	// partition. Only a ledger with several owners has this table.
	PresentEpochs Statement
	CreateEpochs  string
	// TakeParts returns statements that wait for all transactions of partitions, before the epochs
	// of these are raised. For that purpose other transactions run the statements of ShareParts,
	// and Lock is appended to the query for the epochs. Both functions are nil if Lock suffices, or
	// if the database has one writer at a time. Ids are sorted.
	TakeParts, ShareParts func(ids []string) []*Statement
	// RaiseEpoch inserts 1 or raises the epoch of a partition; arguments: route, part.
	RaiseEpoch string
	// EpochOf returns part and epoch; arguments: route, part.
	EpochOf string
	// SpansOf returns all rows of spans of a partition; arguments: route, part.
	SpansOf string

	// ID returns a route or partition id as an argument. Nil means the string.
	ID func(id string) any
}

// Beside returns a replacer of the names of the ledger's tables, which are in the schema of the
// data's table.
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

// shared replaces the names of tables and, with arrays, the parameters in a text of all dialects.
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
