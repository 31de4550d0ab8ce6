package table

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// partition is one reader's state of a table, or of a stripe of a table: the rows with a range of
// values in the first column of order_by. While a fetcher works on the partition, only that fetcher
// may use it. At all other times, only the goroutine that calls Read may use it.
type partition struct {
	part     stream.Partition
	relation *relation // a copy of its own
	maker    rowMaker
	stripe   *stripe // nil for the whole table

	busy     bool          // a fetcher uses it: the fields after endCheck must not be accessed
	done     bool          // with Once: all existing rows were handed out
	endCheck checkSchedule // when its end is checked again

	pos     string         // the key up to which rows were handed out
	limit   string         // the key up to which rows may be handed out
	above   []stream.Range // ranges settled before this run, ascending
	horizon horizon
	fixed   bool      // with Once: the limit is the end observed at the start
	late    *lateness // nil if late rows are not searched for
	ended   bool      // without late: at the last check, the table ended before pos
	end     string    // if ended is set: the last key of the table at that check
	span    uint32    // index of the current span
}

// openPartition opens a partition at the position at which reading must continue.
func (r *reader) openPartition(t *reading, id, name string, s *stripe) (*partition, error) {
	own := *t.relation // a copy, because fetchers store their findings in it
	p := &partition{part: stream.Partition{ID: id, Name: name}, relation: &own, maker: t.maker,
		stripe: s}
	mark, err := t.relation.mark(r.o, id)
	if err != nil {
		return nil, err
	}
	p.pos, p.limit, p.above = mark.Watermark.Key, mark.Watermark.Key, slices.Clone(mark.Above)
	if len(p.above) > 0 { // these rows were visible before, so they may be read at once
		p.limit = p.above[len(p.above)-1].To.Key
	}
	if r.s.o.Rescan == 0 {
		return p, nil
	}
	p.late = &lateness{part: stream.Partition{ID: id + lateSuffix, Name: name + lateSuffix}}
	late, _ := r.o.Resume(id + lateSuffix)
	known, err := p.late.open(r.o, mark, late, r.s.o.Rescan)
	if err == nil && !known && mark.Watermark.Key != "" && r.o.State != nil {
		r.s.h.Log().Warn("no journal of earlier rows exists; only late rows that are committed "+
			"from now on are found",
			"table", name)
	}
	return p, err
}

// isLate reports whether the row with this key is handed out in the partition of late rows.
func (p *partition) isLate(key []byte) bool {
	return p.late != nil && len(p.late.skip) > 0 && p.late.skip[string(key)]
}

// ready reports whether there are rows that may be handed out: rows up to the limit, or late rows.
func (p *partition) ready() bool {
	return p.pos < p.limit || p.late != nil && p.late.cursor.At < p.late.top
}

// fill reads rows into b until b is full or the limit is reached. Then it adds late rows.
func (p *partition) fill(ctx context.Context, db database, b *stream.Batch, f *filling) error {
	for p.pos < p.limit && !f.more {
		if len(p.above) > 0 && p.above[0].From.Key <= p.pos {
			p.pos = max(p.pos, p.above[0].To.Key)
			p.above = p.above[1:]
			continue
		}
		bound := p.limit
		if len(p.above) > 0 {
			bound = min(bound, p.above[0].From.Key)
		}
		if err := p.page(ctx, db, b, f, bound); err != nil {
			return err
		}
	}
	if p.late != nil && !f.more {
		return p.late.fill(ctx, db, p, b, f)
	}
	return nil
}

// watchEnd detects reused keys if there are no rows after pos, the position of the partition. Each
// call remembers the last row of the table. If the next call finds a greater last row that is still
// before pos, the key of this row was used before, and watchEnd returns an error. Example: pos is
// 10, and rows 6 to 10 are deleted. The first call remembers row 5. If the next call finds a row 6,
// its key is reused.
//
// A finite run (--once) calls watchEnd only once, so that it can only log a warning. If p.late is
// set, watchEnd does nothing: p.late detects reused keys by the rows that it remembers.
func (p *partition) watchEnd(ctx context.Context, db database, r *reader) error {
	if p.late != nil || p.pos == "" || r.s.o.ReusedKeys == ignoreReuse {
		return nil
	}
	now, err := db.observe(ctx, p.relation, rowQuery{stripe: p.stripe})
	if err != nil || now.last >= p.pos {
		p.ended = false
		return err
	}
	if p.ended && now.last > p.end {
		return replacedError(p.relation, now.last, p.pos)
	}
	p.ended, p.end = true, now.last
	if r.o.Once && now.last != "" && endsBefore(ctx, db, p, now.last) != nil {
		r.s.h.Log().Warn("the table ends before the position of the checkpoint; rows with "+
			"reused keys are lost",
			"table", p.part.Name, "last", p.relation.keys.show(now.last), "read_to",
			p.relation.keys.show(p.pos),
			"remedy", "leave out `rescan: 0`")
	}
	return nil
}

// page runs one query and reads its rows into b as one span. bound is the key of the last row that
// it may read. If page returns an error, b has the rows that were read before the error.
func (p *partition) page(ctx context.Context, db database, b *stream.Batch, f *filling,
	bound string) error {
	f.part, f.prev, f.keys, f.ends = p, p.pos, f.keys[:0], f.ends[:0]
	f.passed = f.passed[:0]
	p.span = uint32(len(b.Spans))
	data, first := len(b.Data), len(b.Records)
	// Request one row more than fits. It is not added, but compared with the row before it: two
	// rows with the same key must not be separated by the end of a page.
	f.limit, f.offered = f.maker.guess(f.records, f.bytes)+1, 0
	err := db.rows(ctx, p.relation, rowQuery{after: p.pos, upTo: bound, stripe: p.stripe,
		limit: f.limit}, f)
	if err == nil {
		err = f.err
	}
	if f.duplicate && len(f.ends) > 0 { // keep both rows on one side of the position
		f.maker.drop()
		f.ends = f.ends[:len(f.ends)-1]
	}
	to, part := bound, err != nil || f.offered == f.limit || f.more
	if part {
		to = p.pos
	}
	f.maker.learn(len(f.ends), len(b.Data)-data)
	if n := len(f.ends); n > 0 {
		all := string(f.keys[:f.ends[n-1]])
		rows := make([]seenRow, n)
		from := 0
		for i, end := range f.ends {
			rows[i].key, from = all[from:end], end
			b.Records[first+i].Origin.Key = rows[i].key
		}
		if p.late != nil {
			for i := max(0, n-p.late.state.seen.max); i < n; i++ {
				rows[i].digest = f.maker.digest(p.relation, first+i)
			}
			p.late.recordRows(rows)
		}
		if part {
			to = strings.Clone(rows[n-1].key)
		}
	}
	if part && string(f.passed) > to {
		to = string(f.passed)
	}
	if to > p.pos {
		b.Spans = append(b.Spans, stream.Span{
			Part: &p.part, Bytes: len(b.Data) - data,
			Range: stream.Range{From: stream.Position{Key: p.pos}, To: stream.Position{Key: to}},
		})
		p.pos = to
	}
	return err
}
