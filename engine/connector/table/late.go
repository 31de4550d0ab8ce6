package table

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// lateness finds the late rows of one partition. A late row became visible only after rows with
// greater keys had been read, because its transaction was committed later. The late rows are handed
// out as a separate partition, in which a row's position is a number: the first late row found
// has number 1, the next one 2.
type lateness struct {
	part    stream.Partition
	state   journalState
	journal *journal // nil if the state is not stored
	entries []byte   // entries to write to the journal before their rows are handed out

	cursor     readers.Cursor  // after the last row handed out; Above is from earlier runs
	top        int64           // the highest number assigned
	skip       map[string]bool // keys of late rows that the main partition must skip
	next       time.Duration   // when the table may be searched again
	incomplete bool            // the last search was not complete: there may be more late rows
	last       bool            // with Once: the last search is done
}

// rescanShare bounds the searches for late rows: they take at most 1/rescanShare of the total time.
// rescanLeast is the minimum time between two searches.
const (
	rescanShare = 20
	rescanLeast = time.Second
)

// open restores the state of l from the journal and from the progress of the route. main is the
// progress in the partition, and own is the progress in the partition of its late rows. known
// reports whether the journal existed. most is the maximum number of rows to remember.
func (l *lateness) open(o stream.OpenOptions, main, own stream.Mark,
	most int) (known bool, err error) {
	l.state.seen.max = most
	if o.State != nil {
		dir, err := o.State()
		if err != nil {
			return false, err
		}
		if l.journal, known, err = openJournal(dir, l.part.ID, &l.state); err != nil {
			return false, fmt.Errorf("journal of %s: %w", l.part.Name, err)
		}
	}
	settled := func(key string) bool {
		has := func(r stream.Range) bool { return key > r.From.Key && key <= r.To.Key }
		return key <= main.Watermark.Key || slices.ContainsFunc(main.Above, has)
	}
	l.cursor = readers.Cursor{At: own.Watermark.Num, Above: slices.Clone(own.Above)}
	l.top = max(l.cursor.At, l.state.pruned)
	for _, r := range own.Above {
		l.top = max(l.top, r.To.Num)
	}
	l.skip = make(map[string]bool)
	for _, d := range l.state.found {
		l.top = max(l.top, d.num)
		if !settled(d.key) {
			l.skip[d.key] = true
		}
	}
	if !known { // the rows handed out before are unknown: treat all of them as seen
		l.state.seen.floor = main.Watermark.Key
		for _, r := range main.Above {
			l.state.seen.floor = max(l.state.seen.floor, r.To.Key)
		}
	} else {
		l.state.seen.filter(func(k string) bool { return settled(k) || l.skip[k] })
	}
	if l.journal != nil {
		err = l.journal.rewrite(&l.state)
	}
	return known, err
}

// recordRows adds rows to the remembered rows and to the journal entries, before they are handed
// out.
func (l *lateness) recordRows(rows []seenRow) {
	l.state.seen.add(rows)
	l.entries = appendRows(l.entries, entryRows, rows)
}

// found adds a late row with the given key to the state, and assigns its number.
func (l *lateness) found(key string) {
	l.top++
	d := discovery{l.top, key}
	l.state.found = append(l.state.found, d)
	l.state.seen.add([]seenRow{{key: key}})
	l.entries = appendFound(l.entries, d)
}

// save makes the entries durable. Their rows may be handed out only after that. save also removes
// late rows that are not needed any more, up to the first one that is needed. A late row is needed
// in two cases:
//
//   - The row itself is not durably settled: its number is greater than settled.
//   - The main partition is not durably settled up to the row: the row's key is greater than main.
//     After a crash, the main partition would read the row again and must skip it.
func (l *lateness) save(settled int64, main string) error {
	if n := l.state.prunable(settled, main); n > l.state.pruned {
		l.state.prune(n)
		l.entries = appendEntry(l.entries, entryPruned, binary.AppendUvarint(nil, uint64(n)))
	}
	if len(l.entries) == 0 || l.journal == nil {
		l.entries = l.entries[:0]
		return nil
	}
	err := l.journal.write(&l.state, l.entries)
	l.entries = l.entries[:0]
	if err != nil {
		return fmt.Errorf("write the journal of rows that were read: %w", err)
	}
	return nil
}

// search searches the last rows of p, up to its current position, for rows that were not seen
// before. It returns the number of rows found.
//
// The query of a search returns at most about twice as many rows as are remembered. If there are
// more late rows than that, a later search finds the others.
//
// If a remembered row was deleted, search forgets it. A row that is inserted later under the same
// key is then a late row. If search detects that a row was replaced by another one with the same
// key, it returns an error, unless onReuse is ignoreReuse.
func (l *lateness) search(ctx context.Context, db database, p *partition,
	onReuse string) (n int, err error) {
	s := &l.state.seen
	q := rowQuery{after: s.floor, upTo: p.pos, stripe: p.stripe, limit: 2*s.max + 1}
	if p.pos == "" {
		return 0, nil
	}
	search := s.search()
	var late []string
	rows := 0
	if q.after < q.upTo {
		err = db.keys(ctx, p.relation, q, func(key []byte) bool {
			if rows++; search.late(key) {
				late = append(late, string(key))
			}
			return true
		})
	}
	if err != nil {
		return 0, err
	}
	if l.incomplete = rows == q.limit; !l.incomplete {
		search.end(p.pos)
	}
	if onReuse != ignoreReuse {
		if err := compare(ctx, db, p, &search); err != nil {
			return 0, err
		}
	}
	if rows == 0 {
		if err := l.lowerFloor(ctx, db, p, len(search.absent) > 0 && onReuse != ignoreReuse); err != nil {
			return 0, err
		}
	}
	if len(search.absent) > 0 {
		s.remove(search.absent)
		l.entries = appendRows(l.entries, entryAbsent, search.absent)
	}
	for _, key := range late {
		l.found(key)
	}
	return len(late), nil
}

// compare checks the last remembered rows that still exist in the table. It returns an error if a
// row was replaced by another row with the same key. If the last of these rows is unchanged,
// compare does not check the rows before it, because a database reuses keys at the end of a table
// first. In a view or query, all values may change, for example sums. Therefore compare ignores
// changes there, unless the last of the remembered rows were deleted.
func compare(ctx context.Context, db database, p *partition, search *lateSearch) error {
	var pairs []pair
	for _, was := range slices.Backward(search.present) {
		if was.digest == (rowDigest{}) {
			continue // unknown, or the row consists of its key only
		}
		now, found, err := digestOf(ctx, db, p, was.key)
		if err != nil {
			return err
		}
		if found {
			pairs = append(pairs, pair{was.key, was.digest, now})
		}
		if len(pairs) == 1 && pairs[0].old == pairs[0].current {
			return nil
		}
	}
	slices.Reverse(pairs)
	gone := search.tailDeleted()
	if !p.relation.table && !gone {
		return nil // the values of a view may all change, for example sums
	}
	if first, over := startedOver(pairs, gone); over {
		return replacedError(p.relation, first, p.pos)
	}
	return nil
}

// digestOf returns the digest of the row with the given key.
func digestOf(ctx context.Context, db database, p *partition,
	key string) (d rowDigest, found bool, err error) {
	b := stream.NewBatch(stream.BatchLimits{})
	maker := newRowMaker(p.relation)
	maker.begin(b)
	if err = addRow(ctx, db, p.relation, key, &maker, 0); err != nil || len(b.Records) == 0 {
		return d, false, err
	}
	return maker.digest(p.relation, 0), true, nil
}

// addRow adds the row with the given key to the batch of maker, unless the row was deleted.
func addRow(ctx context.Context, db database, r *relation, key string, maker *rowMaker,
	span uint32) error {
	f := filling{maker: maker, part: &partition{relation: r, span: span}, records: 1,
		bytes: math.MaxInt, limit: 2}
	if err := db.rows(ctx, r, rowQuery{exact: key, limit: f.limit}, &f); err != nil {
		return err
	}
	return f.err
}

// lowerFloor lowers the floor, the key up to which rows are not remembered. It does so if the table
// has no rows between the floor and the position of p, because they were deleted. Rows that are
// inserted there later are new and must be found as late rows. The new floor is the last row before
// the old floor.
//
// With strict, lowerFloor returns an error if the new floor is the last row of the table (see
// endsBefore). In this case the database may give the deleted keys to new rows, and nothing
// distinguishes such a row from a row that was read before.
func (l *lateness) lowerFloor(ctx context.Context, db database, p *partition, strict bool) error {
	s := &l.state.seen
	if s.floor == "" || len(s.rows) > 0 && s.rows[len(s.rows)-1].key > p.pos {
		return nil
	}
	last, err := db.observe(ctx, p.relation, rowQuery{upTo: s.floor, stripe: p.stripe})
	if err != nil || last.last >= s.floor {
		return err
	}
	if strict && last.last != "" {
		if err := endsBefore(ctx, db, p, last.last); err != nil {
			return err
		}
	}
	s.floor = last.last
	l.entries = appendEntry(l.entries, entryFloor, []byte(s.floor))
	return nil
}

// endsBefore returns an error if the table has no rows after the position of p, because the
// database may then generate the keys up to this position again. last is the last row of the table.
// There is no error if a generator (a sequence or AUTO_INCREMENT) makes the keys and has reached
// the position: it will not return lower keys again.
func endsBefore(ctx context.Context, db database, p *partition, last string) error {
	above, err := db.observe(ctx, p.relation, rowQuery{after: p.pos, stripe: p.stripe})
	if err != nil || above.last != "" {
		return err
	}
	given, known, err := db.lastGiven(ctx, p.relation)
	if err != nil {
		return err
	}
	if pos, err := p.relation.keys.decode(p.pos); err != nil || known && len(pos) == 1 &&
		pos[0].n <= given {
		return err
	}
	return behindError(p.relation, last, p.pos)
}

// fill hands out the late rows that were not handed out in this run yet. It leaves out late rows
// that an earlier run has settled (delivered, dead-lettered or dropped).
func (l *lateness) fill(ctx context.Context, db database, p *partition, b *stream.Batch,
	f *filling) error {
	for l.cursor.At < l.top && !f.more {
		if l.cursor.IsSettled() {
			l.cursor.Skip()
			continue
		}
		if err := l.stretch(ctx, db, p, b, f, min(l.top, l.cursor.Border(nil))); err != nil {
			return err
		}
	}
	return nil
}

// stretch adds the next late rows to b, as one span. The parameter to is the number of the last of
// these rows. If a row was deleted meanwhile, the span has no record for its number. If reading a
// row fails, the span ends before that row, and stretch returns the error.
func (l *lateness) stretch(ctx context.Context, db database, p *partition, b *stream.Batch,
	f *filling, to int64) error {
	from, data := l.cursor.At, len(b.Data)
	span := uint32(len(b.Spans))
	var failed error
	for _, d := range l.state.found {
		if d.num <= from {
			continue
		}
		if d.num > to {
			break
		}
		if f.records <= 0 || f.maker.size() >= f.bytes {
			f.more = true
			to = d.num - 1
			break
		}
		before := len(b.Records)
		if failed = addRow(ctx, db, p.relation, d.key, f.maker, span); failed != nil {
			if len(b.Records) > before {
				f.maker.drop()
			}
			to = d.num - 1
			break
		}
		if len(b.Records) > before {
			f.records--
			l.recordRows([]seenRow{{d.key, f.maker.digest(p.relation, before)}})
			b.Records[before].Origin = stream.Position{Num: d.num}
		}
	}
	if to == from {
		return failed
	}
	l.cursor.At = to
	b.Spans = append(b.Spans, stream.Span{
		Part: &l.part, Bytes: len(b.Data) - data,
		Range: stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}},
	})
	return failed
}
