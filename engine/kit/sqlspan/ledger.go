package sqlspan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// Session is a connection on which a [Ledger] runs its statements. One goroutine uses it at a time.
// After an error the transaction is left to its owner, who rolls it back.
type Session interface {
	// Begin begins a transaction and runs statements in it, in one round trip if the driver can.
	Begin(ctx context.Context, statements ...*Statement) error
	// Run runs statements in order, in one round trip if the driver can.
	Run(ctx context.Context, statements ...*Statement) error
	// Commit ends the transaction: everything since Begin is durable, or nothing of it.
	Commit(ctx context.Context) error
}

// Statement is one statement with its arguments: string, int64, []byte, and slices of those.
type Statement struct {
	SQL      string
	Args     []any
	Row      func(scan func(dest ...any) error) error // called with each row; dest are *string, *int64, *[]byte, *bool
	Affected int64                                    // rows changed, set by Run if Row is nil
}

// Dialect is the SQL of a ledger's tables in one database. In its texts $routes, $marks and $spans
// stand for the tables.
type Dialect struct {
	// Place names the tables for messages: `table "s"."penstock_marks"`.
	Place string
	// Names replaces the tables' names in a text; see [Beside].
	Names func(text string) string
	// Present asks whether the tables exist. Without SQL Create runs always.
	Present Statement
	Create  []string

	// Alone waits for the transactions of earlier processes, in Load's transaction. Share lets Load
	// wait for any other transaction, and Lock, behind the query for the epoch, does the same.
	Alone, Share []Statement
	Lock         string

	// Bump raises a route's epoch; arguments: route, format. Empty if Alone does.
	Bump string
	// SetMark raises a mark, never lowers it; arguments: route, part, name, num, key.
	SetMark string
	// InsertSpan inserts a row unless one is there; arguments: route, part, from_num, from_key,
	// to_num, to_key.
	InsertSpan string

	// Arrays means that statements over many rows take arrays, as arguments behind the route, and
	// parameters are $1, $2. InsertSpan then returns part, from_num and from_key of inserted rows, and
	// the texts below are required. They have defaults otherwise.
	Arrays bool
	// SpanEnd returns rows of spans; arguments: route, part, from_num, from_key.
	SpanEnd string
	// MarkOf returns part, num and key of a mark; arguments: route, part.
	MarkOf string
	// FoldSpans deletes rows at or below a position; arguments: route, part, num, key.
	FoldSpans string
	// PruneMarks and PruneSpans delete rows of a partition; arguments: route, part.
	PruneMarks, PruneSpans string

	// ID returns a route or partition id as an argument. Nil means the string.
	ID func(id string) any
}

// Beside returns a replacer of the names of the ledger's tables, which stand in the schema of the
// data's table.
func Beside(name sqltable.Name) func(text string) string {
	return strings.NewReplacer(
		"$routes", name.Beside(RoutesTable).String(), "$marks", name.Beside(MarksTable).String(),
		"$spans", name.Beside(SpansTable).String(),
	).Replace
}

// complete puts the tables' names into all texts.
func (d *Dialect) complete() {
	d.SpanEnd = cmp.Or(d.SpanEnd, spansText+" AND part = ? AND from_num = ? AND from_key = ?")
	d.MarkOf = cmp.Or(d.MarkOf, `SELECT part, num, "key" FROM $marks WHERE route = ? AND part = ?`)
	d.FoldSpans = cmp.Or(d.FoldSpans, `DELETE FROM $spans WHERE route = ? AND part = ? AND (to_num, to_key) <= (?, ?)`)
	d.PruneMarks = cmp.Or(d.PruneMarks, `DELETE FROM $marks WHERE route = ? AND part = ?`)
	d.PruneSpans = cmp.Or(d.PruneSpans, `DELETE FROM $spans WHERE route = ? AND part = ?`)
	texts := []*string{&d.Bump, &d.SetMark, &d.InsertSpan, &d.SpanEnd, &d.MarkOf, &d.FoldSpans, &d.PruneMarks, &d.PruneSpans}
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

// Texts of all dialects, with one argument: the route.
const (
	routeText = `SELECT format, epoch FROM $routes WHERE route = ?`
	marksText = `SELECT part, name, num, "key" FROM $marks WHERE route = ?`
	spansText = `SELECT part, from_num, from_key, to_num, to_key FROM $spans WHERE route = ?`
)

// Ledger is a route's ledger in a database, shared by the lanes of its sink. It is safe for
// concurrent use after Open.
type Ledger struct {
	Name string // in the ledger's tables

	d     Dialect
	route any // Name as an argument
	host  stream.Host
	once  bool
	epoch atomic.Int64 // 0 before Load
	lost  chan error   // takes one: why the route has to end
}

// NewLedger returns a ledger without a name. The host gets its log lines.
func NewLedger(h stream.Host) *Ledger { return &Ledger{host: h, lost: make(chan error, 1)} }

// Open sets the ledger's name, configured or by default PIPELINE/ROUTE, and its dialect.
func (l *Ledger) Open(o stream.SinkOptions, configured string, dialect func(name string) Dialect) {
	l.once, l.Name = o.Once, cmp.Or(configured, o.Pipeline+"/"+o.Route)
	l.d = dialect(l.Name)
	l.d.complete()
	l.route = l.d.ID(l.Name)
}

// LedgerName implements [stream.TransactionalSink].
func (l *Ledger) LedgerName() string { return fmt.Sprintf("%s, route %q", l.d.Place, l.Name) }

// Watch returns the reason why the route has to end, such as another process that has taken its
// ledger over, or nil when ctx ends.
func (l *Ledger) Watch(ctx context.Context) error {
	select {
	case err := <-l.lost:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Note returns err, and lets Watch return it if it ends the route.
func (l *Ledger) Note(err error) error {
	if last := Ends(err); last != nil {
		select {
		case l.lost <- last:
		default: // one is enough
		}
	}
	return err
}

// check returns a FencedError if the epoch in the database is not the process's own.
func (l *Ledger) check(seen int64) error {
	if own := l.epoch.Load(); own != seen {
		return &FencedError{Ledger: l.Name, Own: own, Seen: seen}
	}
	return nil
}

// Bounds of statements for the ledger alone.
const (
	LoadAttempt = 30 * time.Second // one attempt of Load
	BookBound   = 30 * time.Second // one fold, or one storing of spans
	loadOnce    = time.Minute      // all attempts of a finite run
)

var loadBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Full()

// Await retries attempt with backoff while its errors are transient, for a server that is not there
// yet. A finite run waits for at most a minute.
func (l *Ledger) Await(
	ctx context.Context, attempt func(ctx context.Context) ([]stream.Mark, error), transient func(error) bool,
) ([]stream.Mark, error) {
	if l.once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, loadOnce, errors.New("the database could not be reached in time"))
		defer cancel()
	}
	o := retry.Options{Policy: loadBackoff, MaxAttempts: -1}
	o.Classify = func(err error) retry.Action {
		if Ends(err) != nil || !transient(err) {
			return retry.Fail
		}
		return retry.Retry
	}
	o.OnEvent = func(_ context.Context, e retry.Event) {
		if e.Kind == retry.AttemptFailed && e.Action == retry.Retry {
			l.host.Log().Warn("the database does not say yet what it holds; it is asked again", "again_in", e.Wait, "error", e.Err)
		}
	}
	return retry.Value(ctx, attempt, o)
}

// statement returns a statement with the route as its only argument.
func (l *Ledger) statement(text string, row func(scan func(dest ...any) error) error) *Statement {
	if l.d.Arrays {
		text = strings.Replace(text, "?", "$1", 1)
	}
	return &Statement{SQL: l.d.Names(text), Args: []any{l.route}, Row: row}
}

func (l *Ledger) readRoute(lock string, format, epoch *int64) *Statement {
	return l.statement(routeText+lock, func(scan func(dest ...any) error) error { return scan(format, epoch) })
}

// Load makes the tables if they are missing, takes the next epoch, which fences off earlier
// processes, and returns the progress of all partitions, folded.
func (l *Ledger) Load(ctx context.Context, s Session) ([]stream.Mark, error) {
	if err := l.Create(ctx, s); err != nil {
		return nil, err
	}
	if err := s.Begin(ctx, pointers(l.d.Alone)...); err != nil {
		return nil, fmt.Errorf("waiting for the transactions of earlier processes: %w", err)
	}
	var format, epoch int64
	statements := []*Statement{l.readRoute("", &format, &epoch)}
	if l.d.Bump != "" {
		statements = append([]*Statement{{SQL: l.d.Bump, Args: []any{l.route, int64(Format)}}}, statements...)
	}
	if err := s.Run(ctx, statements...); err != nil {
		return nil, err
	}
	if format != Format {
		return nil, fmt.Errorf("the ledger %q is of format %d, and this penstock knows %d: use the version that wrote it, or a newer one",
			l.Name, format, Format)
	}
	marks, err := l.read(ctx, s)
	if err == nil {
		err = l.fold(ctx, s, marks)
	}
	if err == nil {
		err = s.Commit(ctx)
	}
	if err != nil {
		return nil, err
	}
	l.epoch.Store(epoch)
	return marks, nil
}

// Create makes the tables if they are missing.
func (l *Ledger) Create(ctx context.Context, s Session) error {
	there := false
	if l.d.Present.SQL != "" {
		ask := l.d.Present
		ask.Row = func(scan func(dest ...any) error) error { return scan(&there) }
		if err := s.Run(ctx, &ask); err != nil {
			return err
		}
	}
	for _, text := range l.d.Create {
		if there {
			break
		}
		if err := s.Run(ctx, &Statement{SQL: text}); err != nil {
			return fmt.Errorf("making the ledger's tables: %w", err)
		}
	}
	return nil
}

// read returns the folded progress in the tables.
func (l *Ledger) read(ctx context.Context, s Session) ([]stream.Mark, error) {
	var marks []stream.Mark
	var rows []Row
	err := s.Run(ctx, l.statement(marksText, func(scan func(dest ...any) error) error {
		var m stream.Mark
		var key []byte
		err := scan(&m.Part.ID, &m.Part.Name, &m.Watermark.Num, &key)
		m.Watermark.Key = string(key)
		marks = append(marks, m)
		return err
	}), l.statement(spansText, func(scan func(dest ...any) error) error {
		r, err := scanRow(scan)
		rows = append(rows, r)
		return err
	}))
	if err != nil {
		return nil, err
	}
	return Fold(marks, rows)
}

func scanRow(scan func(dest ...any) error) (r Row, err error) {
	var from, to []byte
	err = scan(&r.Part, &r.From.Num, &from, &r.To.Num, &to)
	r.From.Key, r.To.Key = string(from), string(to)
	return r, err
}

// fold raises marks and deletes the rows at or below them. One transaction does both, which keeps
// out a late copy of a batch: its span row is free again only when the mark is visible.
func (l *Ledger) fold(ctx context.Context, s Session, marks []stream.Mark) error {
	if len(marks) == 0 {
		return nil
	}
	set, at := make([][]any, len(marks)), make([][]any, len(marks))
	for i, m := range marks {
		name := strings.ToValidUTF8(strings.ReplaceAll(m.Part.Name, "\x00", ""), "\uFFFD")
		set[i] = []any{m.Part.ID, name, m.Watermark.Num, []byte(m.Watermark.Key)}
		at[i] = []any{m.Part.ID, m.Watermark.Num, []byte(m.Watermark.Key)}
	}
	statements := l.over(l.d.SetMark, kindsOfMark, set)
	return s.Run(ctx, append(statements, l.over(l.d.FoldSpans, kindsOfPosition, at)...)...)
}

// Compact implements the method of [stream.TransactionalSink] over s.
func (l *Ledger) Compact(ctx context.Context, s Session, marks []stream.Mark) error {
	return l.change(ctx, s, func() error { return l.fold(ctx, s, marks) })
}

// Prune implements the method of [stream.TransactionalSink] over s.
func (l *Ledger) Prune(ctx context.Context, s Session, ids []string) error {
	parts := make([][]any, len(ids))
	for i, id := range ids {
		parts[i] = []any{id}
	}
	return l.change(ctx, s, func() error {
		return s.Run(ctx, append(l.over(l.d.PruneSpans, kindsOfPart, parts), l.over(l.d.PruneMarks, kindsOfPart, parts)...)...)
	})
}

// Store stores spans without data.
func (l *Ledger) Store(ctx context.Context, s Session, spans []stream.Span) error {
	presence, err := l.Enter(ctx, s, spans)
	if err != nil || presence == All {
		return err
	}
	return s.Commit(ctx)
}

// change calls f in a transaction of the process's own epoch.
func (l *Ledger) change(ctx context.Context, s Session, f func() error) error {
	err := l.Begin(ctx, s)
	if err == nil {
		err = f()
	}
	if err == nil {
		err = s.Commit(ctx)
	}
	return err
}

// Begin begins a transaction of the process's own epoch, which stays so until the end, and runs
// more in it. It returns a FencedError if another process has taken the ledger over.
func (l *Ledger) Begin(ctx context.Context, s Session, more ...*Statement) error {
	var format, epoch int64
	statements := append(pointers(l.d.Share), l.readRoute(l.d.Lock, &format, &epoch))
	if err := s.Begin(ctx, append(statements, more...)...); err != nil {
		return err
	}
	return l.check(epoch)
}

// Enter begins a transaction of the process's own epoch, stores the rows of spans, and reports how
// much of them was there before; a PartError if it is a part. more runs in the same round trip.
// With All nothing is left to do, and the transaction is to be rolled back.
func (l *Ledger) Enter(ctx context.Context, s Session, spans []stream.Span, more ...*Statement) (Presence, error) {
	e := l.entry(spans)
	if err := l.Begin(ctx, s, append(e.statements(), more...)...); err != nil {
		return None, err
	}
	return e.judge(ctx, s)
}

// Add is Enter in a transaction that Begin has begun.
func (l *Ledger) Add(ctx context.Context, s Session, spans []stream.Span) (Presence, error) {
	if len(spans) == 0 {
		return None, nil
	}
	e := l.entry(spans)
	if err := s.Run(ctx, e.statements()...); err != nil {
		return None, err
	}
	return e.judge(ctx, s)
}

// pointers returns copies of statements.
func pointers(statements []Statement) []*Statement {
	out := make([]*Statement, len(statements), len(statements)+4)
	for i, s := range statements { // a copy: others run the dialect's at the same time
		out[i] = &s
	}
	return out
}
