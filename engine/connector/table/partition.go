package table

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// partition is a table, or a stripe of one, as one reader reads it. It belongs to the fetcher that
// is at work on it, else to the goroutine that calls Read.
type partition struct {
	part     stream.Partition
	relation *relation // its own
	maker    rowMaker
	stripe   *stripe // nil: the whole table

	busy bool // a fetcher has it: what follows turn may not be looked at
	done bool // Once: all that was there has been handed out
	turn turn // when its end is looked at again

	pos     string         // the key up to which it was handed out
	limit   string         // and up to which it may be
	above   []stream.Range // settled before this run, ascending
	horizon horizon
	fixed   bool      // Once: the limit is the end as it was seen
	late    *lateness // nil: nobody looks for late rows
	ended   bool      // without late: the table was seen to end before pos,
	end     string    // at this key
	span    uint32    // index of the span that is being filled
}

// openPartition finds the place from which it is read.
func (r *reader) openPartition(t *reading, id, name string, s *stripe) (*partition, error) {
	own := *t.relation // what a look at the table finds out is noted there
	p := &partition{part: stream.Partition{ID: id, Name: name}, relation: &own, maker: t.maker, stripe: s}
	mark, err := t.relation.mark(r.o, id)
	if err != nil {
		return nil, err
	}
	p.pos, p.limit, p.above = mark.Watermark.Key, mark.Watermark.Key, slices.Clone(mark.Above)
	if len(p.above) > 0 { // what lies below was seen: it may be read at once
		p.limit = p.above[len(p.above)-1].To.Key
	}
	if r.s.o.Rescan == 0 {
		return p, nil
	}
	p.late = &lateness{part: stream.Partition{ID: id + lateSuffix, Name: name + lateSuffix}}
	late, _ := r.o.Resume(id + lateSuffix)
	known, err := p.late.open(r.o, mark, late, r.s.o.Rescan)
	if err == nil && !known && mark.Watermark.Key != "" && r.o.State != nil {
		r.s.h.Log().Warn("nothing is remembered of the rows that were read before; rows that came late are found from here on only",
			"table", name)
	}
	return p, err
}

// isLate says whether a row belongs to the partition of late rows.
func (p *partition) isLate(key []byte) bool {
	return p.late != nil && len(p.late.skip) > 0 && p.late.skip[string(key)]
}

// ready says whether there is something to hand out.
func (p *partition) ready() bool {
	return p.pos < p.limit || p.late != nil && p.late.handed < p.late.top
}

// fill reads on into b until it is full, or up to the limit.
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

// watchEnd is called where no rows are remembered and there are none behind pos. A table that ends
// before pos and grows there again reuses its keys: that is an error. A finite run, which looks
// once, only warns.
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
		r.s.h.Log().Warn("the table ends before the place up to which it was read; rows under reused keys are lost",
			"table", p.part.Name, "last", p.relation.keys.show(now.last), "read_to", p.relation.keys.show(p.pos),
			"remedy", "leave out `rescan: 0`")
	}
	return nil
}

// page reads rows up to bound into b, as one span. What was read before an error stays.
func (p *partition) page(ctx context.Context, db database, b *stream.Batch, f *filling, bound string) error {
	f.part, f.prev, f.keys, f.ends = p, p.pos, f.keys[:0], f.ends[:0]
	f.passed = f.passed[:0]
	p.span = uint32(len(b.Spans))
	data, first := len(b.Data), len(b.Records)
	f.limit, f.offered = f.maker.guess(f.room, f.bytes)+1, 0 // one more is looked at, and not taken
	err := db.rows(ctx, p.relation, rowQuery{after: p.pos, upTo: bound, stripe: p.stripe, limit: f.limit}, f)
	if err == nil {
		err = f.err
	}
	if len(f.ends) > len(b.Records)-first { // the last row broke off
		f.maker.undo()
		f.ends = f.ends[:len(f.ends)-1]
	}
	if f.twin && len(f.ends) > 0 { // the mark may not lie behind one of two rows that share it
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
			for i := max(0, n-p.late.memory.seen.max); i < n; i++ {
				rows[i].digest = f.maker.digest(p.relation, first+i)
			}
			p.late.note(rows)
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
