package sqlspan

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// The types of the arguments of statements, with one letter for each argument: t for a text, n for
// a position's number, k for a position's key.
const (
	kindsOfMark     = "ttnk" // part, name, num, key
	kindsOfPosition = "tnk"  // part, num, key
	kindsOfSpan     = "tnknk"
	kindsOfPart     = "t"
	kindsOfPrune    = "ttt" // part, pattern and bound of the name
)

// over returns statements with the given SQL text and the arguments in rows. There is one statement
// for each row or, with Dialect.Arrays, a single statement for all rows. Without rows there is
// none. A row has the arguments that follow the route, and kinds has their types.
func (l *Ledger) over(text, kinds string, rows [][]any) []*Statement {
	if len(rows) == 0 {
		return nil
	}
	return preparable(l, text, kinds, rows)
}

// preparable is like over, but with Dialect.Arrays it also returns a statement if there are no
// rows. So a lane can prepare the statements of batches before it gets the first batch.
func preparable(l *Ledger, text, kinds string, rows [][]any) []*Statement {
	if !l.d.Arrays {
		statements := make([]*Statement, len(rows))
		for i, row := range rows {
			statements[i] = &Statement{SQL: text, Args: append([]any{l.route}, row...)}
		}
		return statements
	}
	args := []any{l.route}
	for k, kind := range kinds {
		switch kind {
		case 'n':
			args = append(args, array[int64](rows, k))
		case 'k':
			args = append(args, array[[]byte](rows, k))
		default:
			args = append(args, array[string](rows, k))
		}
	}
	return []*Statement{{SQL: text, Args: args}}
}

// reading makes statements store their results in dest and call row for each row, and returns them.
func reading(statements []*Statement, row func(), dest ...any) []*Statement {
	for _, s := range statements {
		s.Row, s.Dest = row, dest
	}
	return statements
}

// overParts is like over, for statements with a single argument after the route: the id of a
// partition.
func (l *Ledger) overParts(text string, ids []string) []*Statement {
	return l.over(text, kindsOfPart, asRows(ids))
}

// asRows returns the ids of partitions as rows of arguments.
func asRows(ids []string) [][]any {
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{id}
	}
	return rows
}

func array[T any](rows [][]any, k int) []T {
	values := make([]T, len(rows))
	for i, row := range rows {
		values[i] = row[k].(T)
	}
	return values
}

// place identifies a span's row in the spans table, among the rows of one route.
type place struct {
	part string
	from stream.Position
}

func placeOf(s *stream.Span) place { return place{s.Part.ID, s.From} }

// entry stores the spans of a batch ([stream.Span], a range in a partition) in the ledger, and
// finds out which spans were already stored.
type entry struct {
	ledger   *Ledger
	spans    []stream.Span
	insert   []*Statement
	inserted map[place]bool // rows that were inserted; set if Dialect.Arrays is set
	marks    map[string]stream.Position
}

func (l *Ledger) entry(spans []stream.Span) *entry {
	e := &entry{ledger: l, spans: spans, marks: make(map[string]stream.Position)}
	rows := make([][]any, len(spans))
	for i := range spans {
		s := &spans[i]
		rows[i] = []any{s.Part.ID, s.From.Num, []byte(s.From.Key), s.To.Num, []byte(s.To.Key)}
	}
	e.insert = preparable(l, l.d.InsertSpan, kindsOfSpan, rows)
	if l.d.Arrays {
		e.inserted = make(map[place]bool, len(spans))
		var p place
		var key []byte
		reading(e.insert, func() {
			p.from.Key = string(key)
			e.inserted[p] = true
		}, &p.part, &p.from.Num, &key)
	}
	return e
}

// statements returns the statements that store the spans and then read the watermarks of their
// partitions.
func (e *entry) statements() []*Statement { return append(e.insert, e.readMarks()...) }

func (e *entry) readMarks() []*Statement {
	var ids []string
	for i := range e.spans {
		if id := e.spans[i].Part.ID; i == 0 || id != e.spans[i-1].Part.ID {
			ids = append(ids, id)
		}
	}
	return e.ledger.marksOf(ids, e.marks)
}

// marksOf returns the statements that read the watermarks of partitions, and store them in marks.
func (l *Ledger) marksOf(ids []string, marks map[string]stream.Position) []*Statement {
	var part string
	var at stream.Position
	var key []byte
	return reading(preparable(l, l.d.markOf, kindsOfPart, asRows(ids)), func() {
		at.Key = string(key)
		marks[part] = at
	}, &part, &at.Num, &key)
}

// readParts returns the watermarks of the given partitions, and their rows of the spans table.
func readParts(ctx context.Context, l *Ledger, s Session,
	ids []string) (marks map[string]stream.Position, rows []Row, err error) {
	marks = make(map[string]stream.Position, len(ids))
	statements := l.overParts(l.d.spansOf, ids)
	found := readSpans(statements...)
	err = s.Run(ctx, append(l.marksOf(ids, marks), statements...)...)
	return marks, *found, err
}

// judge reports whether none, all or a part of the spans were already stored. Call it after the
// statements have run.
func (e *entry) judge(ctx context.Context, s Session) (Presence, error) {
	before, folded, err := e.before(ctx, s)
	if err == nil && folded {
		err = s.Run(ctx, e.readMarks()...)
	}
	if err != nil {
		return None, err
	}
	presence := Judge(e.spans, before, e.marks)
	if presence == Part {
		return presence, &PartError{Ledger: e.ledger.Name, Span: e.spans[0]}
	}
	return presence, nil
}

// before returns an element for each span. If this transaction has inserted the row of the span,
// the element is nil. Otherwise it is the end of the row with the same start, which was stored
// earlier.
//
// folded means that a row prevented the insert and has disappeared since then. This happens if an
// earlier attempt has delivered the batch and its result arrived late. Another transaction has then
// deleted the row, and raised the watermark, so e.marks is out of date.
func (e *entry) before(ctx context.Context,
	s Session) (ends []*stream.Position, folded bool, err error) {
	ends = make([]*stream.Position, len(e.spans))
	var missing []int
	var rows [][]any
	for i := range e.spans {
		at := &e.spans[i]
		if e.inserted[placeOf(at)] || e.inserted == nil && e.insert[i].Affected > 0 {
			continue
		}
		missing = append(missing, i)
		rows = append(rows, []any{at.Part.ID, at.From.Num, []byte(at.From.Key)})
	}
	statements := e.ledger.over(e.ledger.d.SpanEnd, kindsOfPosition, rows)
	stored := readSpans(statements...)
	if err := s.Run(ctx, statements...); err != nil {
		return nil, false, err
	}
	there := make(map[place]stream.Position)
	for _, r := range *stored {
		there[place{r.Part, r.From}] = r.To
	}
	for _, i := range missing {
		if end, ok := there[placeOf(&e.spans[i])]; ok {
			ends[i] = &end
		} else {
			folded = true
		}
	}
	return ends, folded, nil
}
