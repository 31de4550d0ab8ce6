package table

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock"
)

// lateness finds the rows of one partition that became visible behind the place that was read already, and hands them out as a
// partition of their own, whose positions count them.
type lateness struct {
	part    penstock.Partition
	memory  memory
	journal *journal // nil: nothing outlives the process
	entries []byte   // to be written to the journal before what they speak of is handed out

	handed int64            // the highest number that was handed out
	top    int64            // the highest that was given
	above  []penstock.Range // settled before this run, ascending
	skip   map[string]bool  // keys above the partition's mark that belong to this one
	next   time.Duration    // when the table may be looked through again
	left   bool             // the last search ended at its bound: there may be more
	last   bool             // Once: it was looked through for the last time
}

// rescanShare bounds what looking for late rows may cost: one part in so many of the time; and rescanLeast is its least spacing.
const (
	rescanShare = 20
	rescanLeast = time.Second
)

// open begins from what was settled of the partition (main) and of its late rows (own), and from the journal.
func (l *lateness) open(o penstock.OpenOptions, main, own penstock.Mark, most int) (known bool, err error) {
	l.memory.seen.max = most
	if o.State != nil {
		dir, err := o.State()
		if err != nil {
			return false, err
		}
		if l.journal, known, err = openJournal(dir, l.part.ID, &l.memory); err != nil {
			return false, fmt.Errorf("what is remembered of %s: %w", l.part.Name, err)
		}
	}
	settled := func(key string) bool {
		if key <= main.Watermark.Key {
			return true
		}
		for _, r := range main.Above {
			if key > r.From.Key && key <= r.To.Key {
				return true
			}
		}
		return false
	}
	l.handed, l.above = own.Watermark.Num, slices.Clone(own.Above)
	l.top = max(l.handed, l.memory.forgotten)
	for _, r := range own.Above {
		l.top = max(l.top, r.To.Num)
	}
	l.skip = make(map[string]bool)
	for _, d := range l.memory.found {
		l.top = max(l.top, d.num)
		if !settled(d.key) {
			l.skip[d.key] = true
		}
	}
	if !known { // of what was handed out before, nothing is known: it counts as seen
		l.memory.seen.floor = main.Watermark.Key
		for _, r := range main.Above {
			l.memory.seen.floor = max(l.memory.seen.floor, r.To.Key)
		}
	} else {
		l.memory.seen.keep(func(k string) bool { return settled(k) || l.skip[k] })
	}
	if l.journal != nil {
		err = l.journal.rewrite(&l.memory)
	}
	return known, err
}

// note remembers keys that are to be handed out.
func (l *lateness) note(keys []string) {
	l.memory.seen.add(keys)
	l.entries = appendKeys(l.entries, keys)
}

// found gives a key its number.
func (l *lateness) found(key string) {
	l.top++
	d := discovery{l.top, key}
	l.memory.found = append(l.memory.found, d)
	l.memory.seen.add([]string{key})
	l.entries = appendFound(l.entries, d)
}

// save makes durable what is about to be handed out. Late rows up to the number given are settled for good, and so is their
// partition up to main: those that lie below both are forgotten. One above main has still to be passed over there after a crash.
func (l *lateness) save(settled int64, main string) error {
	if n := l.memory.forgettable(settled, main); n > l.memory.forgotten {
		l.memory.forget(n)
		l.entries = appendEntry(l.entries, entryForgotten, binary.AppendUvarint(nil, uint64(n)))
	}
	if len(l.entries) == 0 || l.journal == nil {
		l.entries = l.entries[:0]
		return nil
	}
	err := l.journal.write(&l.memory, l.entries)
	l.entries = l.entries[:0]
	if err != nil {
		return fmt.Errorf("remembering which rows were read: %w", err)
	}
	return nil
}

// look searches the last rows of p, up to where it was read, for ones that were not seen there. More are asked for than can have
// been seen: where its bound ends it, it has found some, and what it has not come to is still above the floor.
func (l *lateness) look(ctx context.Context, db database, p *partition) (n int, err error) {
	q := rowQuery{after: l.memory.seen.floor, upTo: p.pos, stripe: p.stripe, limit: 2*l.memory.seen.max + 1}
	if q.after >= q.upTo {
		return 0, nil
	}
	search := l.memory.seen.search()
	var late []string
	rows := 0
	err = db.keys(ctx, p.relation, q, func(key []byte) bool {
		if rows++; search.late(key) {
			late = append(late, string(key))
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	for _, key := range late {
		l.found(key)
	}
	l.left = rows == q.limit
	return len(late), nil
}

// fill hands out what was found and not handed out yet, and what was not settled in an earlier run.
func (l *lateness) fill(ctx context.Context, db database, p *partition, b *penstock.Batch, f *filling) error {
	for l.handed < l.top && !f.more {
		if len(l.above) > 0 && l.above[0].From.Num <= l.handed {
			l.handed = max(l.handed, l.above[0].To.Num)
			l.above = l.above[1:]
			continue
		}
		to := l.top
		if len(l.above) > 0 {
			to = min(to, l.above[0].From.Num)
		}
		if err := l.stretch(ctx, db, p, b, f, to); err != nil {
			return err
		}
	}
	return nil
}

// stretch hands out the numbers up to to as one span. A row that is gone by now leaves its number empty.
func (l *lateness) stretch(ctx context.Context, db database, p *partition, b *penstock.Batch, f *filling, to int64) error {
	from, data := l.handed, len(b.Data)
	span := uint32(len(b.Spans))
	for _, d := range l.memory.found {
		if d.num <= l.handed {
			continue
		}
		if d.num > to {
			break
		}
		if f.room <= 0 || f.maker.size() >= f.bytes {
			f.more = true
			to = d.num - 1
			break
		}
		before := len(b.Records)
		one := *f
		one.part, one.keys, one.ends, one.prev = &partition{relation: p.relation, span: span}, nil, nil, ""
		one.limit, one.offered = 2, 0
		if err := db.rows(ctx, p.relation, rowQuery{exact: d.key, limit: one.limit}, &one); err != nil {
			return err
		}
		if one.err != nil {
			return one.err
		}
		f.room = one.room
		for i := before; i < len(b.Records); i++ {
			b.Records[i].Origin = penstock.Position{Num: d.num}
		}
	}
	if to == from {
		return nil
	}
	l.handed = to
	b.Spans = append(b.Spans, penstock.Span{
		Part: &l.part, Bytes: len(b.Data) - data,
		Range: penstock.Range{From: penstock.Position{Num: from}, To: penstock.Position{Num: to}},
	})
	return nil
}
