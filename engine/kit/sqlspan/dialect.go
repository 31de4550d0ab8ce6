package sqlspan

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// Dialect has the SQL statements for a ledger's tables in one kind of database. In the statements,
// $routes, $marks, $spans and $epochs stand for the names of the tables. docs/formats/sql-tables.md
// describes the tables: $marks has the watermarks of partitions, and $spans has the delivered
// ranges above them. The comment of each statement lists its arguments in order; part is the id of
// a partition. A position has two arguments, a number and a key.
type Dialect struct {
	// Place describes the location of the tables in messages. Example: `table
	// "s"."penstock_marks"`.
	Place string
	// Names replaces $routes, $marks, $spans and $epochs in a text; see [Beside].
	Names func(text string) string
	// Present is a query that returns whether the ledger's tables exist. Create runs only if they
	// do not exist. If Present checks only one of them, Create must create all of them or none.
	Present Statement
	Create  []string

	// Alone has the statements by which Load waits until the transactions of earlier processes have
	// ended. For this to work, every transaction that checks the route's epoch runs the statements
	// in Share. Alone and Share are empty if Bump itself waits: either every such transaction
	// appends Lock to its query for the epoch, or the database has one writer at a time.
	Alone, Share []Statement
	Lock         string

	// Bump increments the epoch of a route, which fences earlier processes. Arguments: route,
	// format.
	Bump string
	// SetMark inserts the row of a partition in $marks, or raises the watermark in this row. It
	// never lowers the watermark. Arguments: route, part, name, num, key.
	SetMark string
	// InsertSpan inserts the row of a span, unless there is a row with the same start. Arguments:
	// route, part, from_num, from_key, to_num, to_key.
	InsertSpan string

	// Arrays means that one statement stores several rows: it has an array for each argument after
	// the route. Its parameters are written $1, $2 and so on. InsertSpan then returns part,
	// from_num and from_key of the inserted rows. The method complete sets defaults of some texts
	// below. These defaults are for dialects without Arrays.
	Arrays bool
	// SpanEnd returns the row of $spans with a given start. Arguments: route, part, from_num,
	// from_key.
	SpanEnd string
	// FoldSpans deletes the rows of a partition's spans that end at or before a position.
	// Arguments: route, part, num, key.
	FoldSpans string

	// Claim inserts the row of a request in $marks, or locks this row if it exists
	// ([RequestFormat]). Arguments: route, part, name, num, key. With Arrays, Claim returns the
	// part of each inserted row.
	Claim string
	// BeforeClaim and AfterClaim begin and end a time limit for Claim, which waits for transactions
	// of other processes that store the same requests.
	BeforeClaim, AfterClaim []Statement
	// PruneRequests deletes the row of a request in $marks if its name matches a pattern (this
	// process wrote it last) or is less than a bound (the request has expired). Arguments: route,
	// part, pattern, bound.
	PruneRequests string
	// SkipLocked is appended to a query that must omit rows that other transactions lock, if the
	// database supports this.
	SkipLocked string

	// PresentEpochs and CreateEpochs are Present and Create for the table $epochs. This table has
	// the epoch of each partition. It exists only if several processes own partitions of the
	// ledger.
	PresentEpochs Statement
	CreateEpochs  string
	// TakeParts returns statements that wait for all transactions that write to the given
	// partitions. They run before the epochs of the partitions are raised. For this to work, every
	// transaction that checks these epochs runs the statements of ShareParts, and appends Lock to
	// its query for the epochs. TakeParts and ShareParts are nil if Lock is sufficient, or if the
	// database has one writer at a time. ids must be sorted.
	TakeParts, ShareParts func(ids []string) []*Statement
	// RaiseEpoch increments the epoch of a partition, which fences its earlier owner. If the
	// partition has no epoch, RaiseEpoch inserts 1. Arguments: route, part.
	RaiseEpoch string

	// statements that all dialects have in common; set by complete
	markOf, spansOf, epochOf             string
	pruneMarks, pruneSpans, pruneOrphans string
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

// complete sets defaults, and inserts the table names into statements.
func (d *Dialect) complete() {
	d.SpanEnd = cmp.Or(d.SpanEnd, spansText+" AND part = ? AND from_num = ? AND from_key = ?")
	d.FoldSpans = cmp.Or(d.FoldSpans, `DELETE FROM $spans WHERE route = ? AND part = ? AND `+
		`(to_num, to_key) <= (?, ?)`)
	d.PruneRequests = cmp.Or(d.PruneRequests,
		`DELETE FROM $marks WHERE route = ? AND part = ? AND (name LIKE ? OR name < ?)`)
	d.markOf, d.spansOf, d.epochOf = d.shared(markText), d.shared(partText), d.shared(epochText)
	d.pruneMarks, d.pruneSpans = d.shared(pruneMarks), d.shared(pruneSpans)
	d.pruneOrphans = d.shared(pruneOrphans)
	texts := []*string{&d.Claim, &d.PruneRequests, &d.CreateEpochs, &d.RaiseEpoch,
		&d.Bump, &d.SetMark, &d.InsertSpan, &d.SpanEnd, &d.FoldSpans}
	for i := range d.Create {
		texts = append(texts, &d.Create[i])
	}
	for _, text := range texts {
		*text = d.Names(*text)
	}
}

// shared converts the text of a statement that all dialects have in common. It inserts the names of
// the tables and, with Arrays, changes the form of the parameters: the parameter of part is then an
// array.
func (d *Dialect) shared(text string) string {
	if d.Arrays {
		text = strings.Replace(text, "part = ?", "part = ANY (?::text[])", 1)
	}
	for i := 1; d.Arrays && strings.Contains(text, "?"); i++ {
		text = strings.Replace(text, "?", "$"+strconv.Itoa(i), 1)
	}
	return d.Names(text)
}

// expiredText returns the parts (ids) of at most maxExpired expired requests, in ascending order,
// from the first one after the argument part. The name of a request in $marks contains its time of
// arrival. The request has expired if this name is less than the bound. Arguments: route, part,
// bound.
var expiredText = `SELECT part FROM $marks WHERE route = ? AND part LIKE '` + requests +
	`' AND part > ? AND name LIKE '` + arrival + `%' AND name < ? ORDER BY part LIMIT ` +
	strconv.Itoa(maxExpired)

// Statements that all dialects have in common. In the first group, the only argument is the route,
// except in moveMarks and moveSpans, which have the new and the old route. In the second group, the
// arguments are the route and the id of a partition (part).
const (
	routeText   = `SELECT format, epoch FROM $routes WHERE route = ?`
	marksText   = `SELECT part, name, num, "key" FROM $marks WHERE route = ?`
	requestText = `UPDATE $routes SET format = 3 WHERE route = ?`
	forgetText  = `DELETE FROM $routes WHERE route = ?`
	moveMarks   = `UPDATE $marks SET route = ? WHERE route = ?`
	moveSpans   = `UPDATE $spans SET route = ? WHERE route = ?`
	shareText   = `UPDATE $routes SET format = 2 WHERE route = ?`
	spansText   = `SELECT part, from_num, from_key, to_num, to_key FROM $spans WHERE route = ?`

	markText   = `SELECT part, num, "key" FROM $marks WHERE route = ? AND part = ?`
	partText   = spansText + ` AND part = ?` // all spans of a partition
	epochText  = `SELECT part, epoch FROM $epochs WHERE route = ? AND part = ?`
	pruneMarks = `DELETE FROM $marks WHERE route = ? AND part = ?`
	pruneSpans = `DELETE FROM $spans WHERE route = ? AND part = ?`
	// deletes the spans of a partition that has no row in $marks
	pruneOrphans = pruneSpans + ` AND NOT EXISTS (SELECT 1 FROM $marks m
		WHERE m.route = $spans.route AND m.part = $spans.part)`
)
