package sqlspan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// Session is a connection on which a [Ledger] runs its statements. Only one goroutine at a time
// uses it. After an error, the owner of the session rolls back the transaction.
type Session interface {
	// Begin begins a transaction and runs statements in it. It needs one round trip if the driver
	// supports this.
	Begin(ctx context.Context, statements ...*Statement) error
	// Run runs statements in order. It needs one round trip if the driver supports this, and none
	// without statements.
	Run(ctx context.Context, statements ...*Statement) error
	// Commit makes all changes since Begin durable, or none of them, and ends the transaction.
	Commit(ctx context.Context) error
}

// Statement is an SQL statement with its arguments. An argument is a string, an int64 or a []byte,
// or a slice of one of these types.
type Statement struct {
	SQL  string
	Args []any
	// Dest has a pointer for each column of the result, of type *string, *int64, *[]byte or *bool.
	// It is nil for a statement without a result. Row may be nil. Otherwise it is called for each
	// row, when the values of the row are stored in Dest.
	Dest     []any
	Row      func()
	Affected int64 // rows changed, set by Run if Dest is nil
}

// Ledger is the ledger of one route in a database. It records which data the database contains, in
// the tables of docs/formats/sql-tables.md. All lanes (connections) of the route's sink share the
// ledger. It is safe for concurrent use after Open.
type Ledger struct {
	Name string // name of the ledger, as in its tables
	// ASCII means that the names of partitions are stored in ASCII, because the database may be
	// unable to store other characters.
	ASCII atomic.Bool

	d     Dialect
	route string // value of the column route; equal to Name unless keep is set
	fence string // key of the row with the epoch; equal to route unless keep is set

	// keep and own are set only in a ledger of RequestFormat. keep is the time for which requests
	// are kept, and own is the id of this process.
	//
	// Such a ledger has two kinds of rows in RoutesTable. All processes share the row with the key
	// Name, and each process has a row of its own with the key fence. The statements of byRoute
	// lock the shared row, and those of d lock the row of this process. In other formats, both are
	// the same row.
	keep    time.Duration
	own     string
	byRoute Dialect

	host  stream.Host
	whole string // name of the route's ledger if this one is for dead letters; or ""
	once  bool
	epoch atomic.Int64 // 0 before Load
	lost  chan error   // buffer of 1: why the route has to end

	shared atomic.Bool // set by the first Take: partitions have owners with epochs
	// The partitions that this process owns, each an ownership. The key is the number of the
	// assignment by which the broker has given a partition to this process. Used if shared is set.
	owners sync.Map
}

// NewLedger returns a ledger without a name. The ledger logs to h.
func NewLedger(h stream.Host) *Ledger { return &Ledger{host: h, lost: make(chan error, 1)} }

// Open sets the ledger's name and its SQL dialect. The name is the parameter configured or, if that
// is empty, PIPELINE/ROUTE. If o.OwnLetters is set, lettersSuffix follows. table is the name of the
// table for the data.
func (l *Ledger) Open(o stream.SinkOptions, configured, table string,
	dialect func(name string) Dialect) {
	route := o.Pipeline + "/" + o.Route
	l.once, l.Name = o.Once, cmp.Or(configured, route)
	if o.OwnLetters {
		l.whole, l.Name = l.Name, l.Name+lettersSuffix
	}
	l.route, l.fence, l.byRoute = l.Name, l.Name, dialect(l.Name)
	l.byRoute.complete()
	l.d = l.byRoute
	if o.Keep > 0 {
		l.keep, l.own = o.Keep, o.Own
		l.route = rowsOfTarget(l.Name, route, table)
		l.fence = fenceOf(l.route, l.own)
		l.d = dialect(l.fence)
		l.d.complete()
		l.host.Count(duplicateRequests, 0)
	}
}

// lettersSuffix ends the name of a ledger for dead letters that are sent again. Dead letters have
// such a separate ledger if the ledger of the route has SharedFormat
// ([stream.SinkOptions].OwnLetters). Names in the config contain no space, so no ledger in the
// config can have the name of the separate ledger.
const lettersSuffix = " letters"

// LedgerName implements [stream.TransactionalSink].
func (l *Ledger) LedgerName() string { return fmt.Sprintf("%s, route %q", l.d.Place, l.route) }

// Watch waits until the route must end, and returns the reason. For example, another process may
// have become the owner of the ledger. If ctx ends first, Watch returns nil.
func (l *Ledger) Watch(ctx context.Context) error {
	select {
	case err := <-l.lost:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Note returns err unchanged. If err must end the route ([Ends]), Note also makes Watch return it.
func (l *Ledger) Note(err error) error {
	if last := Ends(err); last != nil {
		select {
		case l.lost <- last:
		default: // the first one is enough
		}
	}
	return err
}

// check compares seen, the epoch in the database, with the epoch of this process. If they differ,
// another process has taken over the ledger, and check returns a FencedError.
func (l *Ledger) check(seen int64) error {
	if own := l.epoch.Load(); own != seen {
		return &FencedError{Ledger: l.Name, Own: own, Seen: seen}
	}
	return nil
}

// Time limits for uses of the ledger.
const (
	LoadAttempt = 30 * time.Second // one attempt of Load
	BookBound   = 30 * time.Second // one change of the ledger, such as Compact or Store
	loadOnce    = time.Minute      // all attempts of Load in a finite run
)

var loadBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Full()

// Await calls attempt, with backoff between the calls, until attempt succeeds, or returns an error
// that is not transient or must end the route ([Ends]). The function transient reports whether an
// error is transient, such as that of a server that is not running yet. In a finite run (--once),
// Await waits for at most loadOnce.
func (l *Ledger) Await(
	ctx context.Context, attempt func(ctx context.Context) ([]stream.Mark, error),
	transient func(error) bool,
) ([]stream.Mark, error) {
	if l.once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, loadOnce,
			errors.New("the database could not be reached in time"))
		defer cancel()
	}
	return retry.Value(ctx, attempt, retry.Options{Policy: loadBackoff, MaxAttempts: -1,
		Classify: func(err error) retry.Action {
			if Ends(err) != nil || !transient(err) {
				return retry.Fail
			}
			return retry.Retry
		},
		OnEvent: func(_ context.Context, e retry.Event) {
			if e.Kind == retry.AttemptFailed && e.Action == retry.Retry {
				l.host.Log().Warn("the ledger cannot be read yet; retrying",
					"again_in", e.Wait, "error", e.Err)
			}
		}})
}

// statement returns a statement with the given route as its only argument.
func (l *Ledger) statement(route, text string, dest ...any) *Statement {
	return &Statement{SQL: l.d.shared(text), Args: []any{route}, Dest: dest}
}

func (l *Ledger) readRoute(route, lock string, format, epoch *int64) *Statement {
	return l.statement(route, routeText+lock, format, epoch)
}

// Load returns the progress of all partitions of the route. Before that, it creates missing tables
// and raises the epoch. The new epoch fences earlier processes: their transactions cannot commit
// any more. In a ledger of [RequestFormat], the new epoch fences only earlier runs of the route in
// this process, and Load returns at most maxRequests requests.
func (l *Ledger) Load(ctx context.Context, s Session) ([]stream.Mark, error) {
	if err := l.Create(ctx, s); err != nil {
		return nil, err
	}
	if l.keep > 0 {
		if err := adopt(ctx, l, s); err != nil {
			return nil, err
		}
		if err := expire(ctx, l, s); err != nil {
			return nil, err
		}
	}
	format, epoch, err := advance(ctx, l, s, l.d.Alone, l.fence)
	if err != nil {
		return nil, err
	}
	if format != Format {
		return nil, &FormatError{Ledger: l.Name, Format: format}
	}
	// This ledger is only for dead letters. Those that were delivered before the route's ledger got
	// SharedFormat have entries in the route's ledger. Move these entries here, so that the dead
	// letters are not delivered again.
	if l.whole != "" {
		if err := s.Run(ctx, move(l, l.whole, " AND part LIKE 'letter.%'")...); err != nil {
			return nil, err
		}
	}
	var marks []stream.Mark
	if l.keep > 0 { // without fold, because other processes write at the same time
		marks, err = readRequests(ctx, l, s)
	} else if marks, err = l.read(ctx, s); err == nil {
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

// advance begins a transaction that waits until those of earlier processes have ended. It raises
// the epoch of a route. It returns the route's format and the new epoch. alone has the statements
// of Dialect.Alone for this route.
func advance(ctx context.Context, l *Ledger, s Session, alone []Statement,
	route string) (format, epoch int64, err error) {
	if err = s.Begin(ctx, pointers(alone)...); err != nil {
		return 0, 0, fmt.Errorf("waiting for the transactions of earlier processes: %w", err)
	}
	bump := &Statement{SQL: l.d.Bump, Args: []any{route, int64(Format)}}
	if err = s.Run(ctx, bump, l.readRoute(route, "", &format, &epoch)); err != nil {
		return 0, 0, fmt.Errorf("raise the epoch, after transactions of earlier processes: %w", err)
	}
	return format, epoch, nil
}

// convert converts the ledger from Format to another format. For this it calls the function change
// in a transaction. convert fences every process that has loaded the ledger in the old format: each
// transaction of such a process has ended, or will find a different epoch and fail.
func convert(ctx context.Context, l *Ledger, s Session, to int64, change func() error) error {
	var format, epoch int64
	err := s.Run(ctx, l.readRoute(l.Name, "", &format, &epoch))
	if err != nil || format == to {
		return err
	}
	if format, _, err = advance(ctx, l, s, l.byRoute.Alone, l.Name); err != nil {
		return err
	}
	switch format {
	case Format:
		err = change()
	case to: // another process has converted it
	default:
		err = &FormatError{Ledger: l.Name, Format: format}
	}
	if err != nil {
		return err
	}
	return s.Commit(ctx)
}

// Create creates the ledger's tables if they are missing.
func (l *Ledger) Create(ctx context.Context, s Session) error {
	return l.create(ctx, s, l.d.Present, l.d.Create)
}

func (l *Ledger) create(ctx context.Context, s Session, present Statement, texts []string) error {
	if exist, err := report(ctx, s, present); exist || err != nil {
		return err
	}
	for _, text := range texts {
		if err := s.Run(ctx, &Statement{SQL: text}); err != nil {
			return fmt.Errorf("create the ledger's tables: %w", err)
		}
	}
	return nil
}

// report runs a query that returns a boolean.
func report(ctx context.Context, s Session, query Statement) (yes bool, err error) {
	query.Dest = []any{&yes}
	err = s.Run(ctx, &query)
	return yes, err
}

// read reads the ledger's tables and returns the progress of all partitions, as [Fold] combines it
// from watermarks and spans.
func (l *Ledger) read(ctx context.Context, s Session) ([]stream.Mark, error) {
	marks, rows, err := readRows(ctx, l, s, marksText)
	if err != nil {
		return nil, err
	}
	return Fold(marks, rows)
}

// readRows returns the rows that the queries in texts select from the marks table, and all rows of
// the spans table.
func readRows(ctx context.Context, l *Ledger, s Session,
	texts ...string) (marks []stream.Mark, _ []Row, err error) {
	var m stream.Mark
	var key []byte
	row := func() {
		m.Watermark.Key = string(key)
		if stream.IsRequest(m.Part.ID) {
			m.Part.Name, _, _ = strings.Cut(m.Part.Name, writtenBy)
		}
		marks = append(marks, m)
	}
	var statements []*Statement
	for _, text := range texts {
		statements = append(statements, l.statement(l.route, text))
	}
	reading(statements, row, &m.Part.ID, &m.Part.Name, &m.Watermark.Num, &key)
	spans := l.statement(l.route, spansText)
	rows := readSpans(spans)
	err = s.Run(ctx, append(statements, spans)...)
	return marks, *rows, err
}

// readSpans makes statements, which select rows of the spans table, append these rows to the
// result.
func readSpans(statements ...*Statement) (rows *[]Row) {
	rows = new([]Row)
	var r Row
	var from, to []byte
	reading(statements, func() {
		r.From.Key, r.To.Key = string(from), string(to)
		*rows = append(*rows, r)
	}, &r.Part, &r.From.Num, &from, &r.To.Num, &to)
	return rows
}

// fold raises the watermarks of partitions to those in the parameter marks, and deletes the rows of
// spans at or below the new watermarks. Both changes must be in one transaction: when a late second
// copy of a batch can insert its span again, it already sees the raised watermark, and is detected.
// fold locks the rows of the marks table in the order of the partition ids. The statements of
// claims lock them in the same order, so two transactions cannot deadlock on these rows.
func (l *Ledger) fold(ctx context.Context, s Session, marks []stream.Mark) error {
	marks = slices.SortedFunc(slices.Values(marks),
		func(a, b stream.Mark) int { return cmp.Compare(a.Part.ID, b.Part.ID) })
	set, at := make([][]any, len(marks)), make([][]any, len(marks))
	for i, m := range marks {
		set[i] = []any{m.Part.ID, l.markName(&m.Part), m.Watermark.Num, []byte(m.Watermark.Key)}
		at[i] = []any{m.Part.ID, m.Watermark.Num, []byte(m.Watermark.Key)}
	}
	statements := l.over(l.d.SetMark, kindsOfMark, set)
	return s.Run(ctx, append(statements, l.over(l.d.FoldSpans, kindsOfPosition, at)...)...)
}

// Compact implements [stream.TransactionalSink], over the session s: it raises watermarks and
// deletes the rows of spans that they cover.
func (l *Ledger) Compact(ctx context.Context, s Session, marks []stream.Mark) error {
	if l.shared.Load() {
		return l.compactOwned(ctx, s, marks)
	}
	return l.change(ctx, s, func() error { return l.fold(ctx, s, marks) })
}

// Prune implements [stream.TransactionalSink], over the session s: it deletes the partitions with
// the given ids. It keeps requests that other processes still need.
func (l *Ledger) Prune(ctx context.Context, s Session, ids []string) error {
	if l.shared.Load() {
		return errors.New("BUG: a ledger with several owners prunes no partitions")
	}
	var requests []string
	if l.keep > 0 {
		requests = slices.DeleteFunc(slices.Clone(ids),
			func(id string) bool { return !stream.IsRequest(id) })
		ids = slices.DeleteFunc(slices.Clone(ids), stream.IsRequest)
	}
	statements := slices.Concat(pruneRequests(l, requests),
		l.overParts(l.d.pruneSpans, ids), l.overParts(l.d.pruneMarks, ids))
	for _, id := range ids {
		if l.keep > 0 { // the id is that of an earlier process: delete its epoch
			statements = append(statements, l.statement(fenceOf(l.route, id), forgetText))
		}
	}
	return l.change(ctx, s, func() error { return s.Run(ctx, statements...) })
}

// Store stores spans in the ledger without data, for batches of which no record is to be written.
func (l *Ledger) Store(ctx context.Context, s Session, spans []stream.Span) error {
	presence, err := l.Enter(ctx, s, &stream.Batch{Spans: spans})
	if err != nil || presence == All {
		return err
	}
	return s.Commit(ctx)
}

// change begins a transaction, which checks the epoch, calls f in it, and commits it.
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

// Begin begins a transaction, and checks that the epoch of the route in the ledger is still that of
// this process. This epoch cannot change until the transaction ends. If another process has become
// the owner of the ledger, Begin returns a FencedError.
//
// If the ledger has several owners, Begin checks no epoch, and Add checks the epochs of the
// partitions.
func (l *Ledger) Begin(ctx context.Context, s Session) error {
	return l.guarded(ctx, s.Begin, nil)
}

// guarded calls run, which is the method Begin or Run of a session, with the statements and those
// of guard. It returns an error if the epochs in the ledger are not those of this process.
func (l *Ledger) guarded(ctx context.Context, run func(context.Context, ...*Statement) error,
	spans []stream.Span, statements ...*Statement) error {
	locks, check, err := l.guard(spans)
	if err == nil {
		err = run(ctx, append(locks, statements...)...)
	}
	if err != nil {
		return err
	}
	return check()
}

// Enter begins a transaction, checks the epochs as Begin and Add do, and stores the rows of the
// spans of b, which must have been split. It runs the statements of the parameter more together
// with its own. The result reports how much of b was already stored:
//
//   - None: the caller must write the records of b.
//   - All: the batch was already delivered, and the transaction must be rolled back.
//   - Part: another process has stored the records of b, but not all of its spans. The caller must
//     write no records, and commit the transaction.
//
// If the ledger was changed by hand, the error is a PartError. If another process has stored some
// of the records, it is a [stream.Split].
func (l *Ledger) Enter(ctx context.Context, s Session, b *stream.Batch,
	more ...*Statement) (Presence, error) {
	spans := Covering(nil, b.Spans)
	own, c, statements := l.entries(spans)
	if err := l.guarded(ctx, s.Begin, spans, append(statements, more...)...); err != nil {
		return None, err
	}
	return judge(ctx, l, s, b, own, c)
}

// entries divides spans in two groups. The result own stores the spans of partitions that only this
// process reads. The result c stores the spans of requests, which several processes may receive
// ([RequestFormat]). own is nil if all spans are of requests, and c is nil if none are. statements
// has the statements of both groups.
func (l *Ledger) entries(spans []stream.Span) (own *entry, c *claims, statements []*Statement) {
	others, requests := l.partition(spans)
	if len(others) > 0 || len(requests) == 0 {
		own = l.entry(others)
		statements = own.statements()
	}
	if c = claim(l, requests); c != nil {
		statements = append(append(statements, pointers(l.d.BeforeClaim)...), c.insert...)
		statements = append(statements, pointers(l.d.AfterClaim)...)
	}
	return own, c, statements
}

// Add is like Enter, but in a transaction that Begin has begun.
func (l *Ledger) Add(ctx context.Context, s Session, b *stream.Batch) (Presence, error) {
	spans := Covering(nil, b.Spans)
	own, c, statements := l.entries(spans)
	var err error
	if l.shared.Load() {
		err = l.guarded(ctx, s.Run, spans, statements...)
	} else { // Begin has checked the epoch
		err = s.Run(ctx, statements...)
	}
	if err != nil {
		return None, err
	}
	return judge(ctx, l, s, b, own, c)
}

// move returns the statements that move the marks and spans of the route with the key from to this
// ledger. condition is "", or further SQL for the WHERE clause that selects them.
func move(l *Ledger, from, condition string) []*Statement {
	args := []any{l.route, from}
	return []*Statement{{SQL: l.d.shared(moveMarks + condition), Args: args},
		{SQL: l.d.shared(moveSpans + condition), Args: args}}
}

// pointers returns pointers to copies of the statements.
func pointers(statements []Statement) []*Statement {
	out := make([]*Statement, len(statements), len(statements)+4)
	for i, s := range statements { // copies, because other goroutines use those of the dialect
		out[i] = &s
	}
	return out
}
