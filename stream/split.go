package stream

import (
	"bytes"
	"slices"
)

// Split fills Records: one for each line of each span, its text without LF or CRLF. A reader whose
// records are not lines fills Records itself. Split does nothing if Records exist.
func (b *Batch) Split() {
	if len(b.Records) > 0 {
		return
	}
	if cap(b.Records) < b.Origins {
		b.Records = make([]Record, 0, b.Origins)
	}
	off := uint32(0)
	for s := range b.Spans {
		off = b.splitSpan(uint32(s), off)
	}
}

// splitSpan appends the lines of span s, whose bytes begin at off, and returns their end. A line's
// position is the source offset after it. The position of the last line is the span's end, because
// the reader may have added its line end.
func (b *Batch) splitSpan(s, off uint32) uint32 {
	span := &b.Spans[s]
	end := off + uint32(span.Bytes)
	start := off
	for off < end {
		next := end
		if i := bytes.IndexByte(b.Data[off:end], '\n'); i >= 0 {
			next = off + uint32(i) + 1
		}
		text := next
		if b.Data[text-1] == '\n' {
			text--
			if text > off && b.Data[text-1] == '\r' {
				text--
			}
		}
		at := Position{Num: span.From.Num + int64(next-start)}
		if next == end {
			at = span.To
		}
		b.Records = append(b.Records, Record{Off: off, Len: text - off, Span: s, Origin: at})
		off = next
	}
	return end
}

// Expand inserts extra[i] empty records after record i, for each i, and returns the new index of
// each old record. The new records have the origin of record i and their own numbers; the caller
// fills them in. Its cost depends on the number of resulting records only.
func (b *Batch) Expand(extra []int) (index []int) {
	total := len(b.Records)
	for _, n := range extra {
		total += n
	}
	records, index := make([]Record, 0, total), make([]int, len(b.Records))
	var number uint32 // of the next new record of the origin
	for i, r := range b.Records {
		if i == 0 || !b.sameOrigin(i-1, i) {
			number = 0
			for k := i; k < len(b.Records) && (k == i || b.sameOrigin(i, k)); k++ {
				number = max(number, b.Records[k].Sub+1)
			}
		}
		index[i] = len(records)
		records = append(records, r)
		for range extra[i] {
			records = append(records, Record{Span: r.Span, Sub: number, Origin: r.Origin})
			number++
		}
	}
	b.Records, b.changed = records, true
	if len(b.reasons) > 0 {
		moved := make(map[int]error, len(b.reasons))
		for i, reason := range b.reasons {
			moved[index[i]] = reason
		}
		b.reasons = moved
	}
	return index
}

// CanReadAgain reports whether reading the spans of b again gives the same records: no record is a
// dead letter, and b is no piece of a batch in which one source record became several, because a
// piece may contain only some of those.
func CanReadAgain(b *Batch) bool {
	for i := range b.Records {
		if b.Records[i].State == Dead || b.parent != nil && b.Records[i].Sub > 0 {
			return false
		}
	}
	return true
}

// sameOrigin reports whether records i and j come from one source record.
func (b *Batch) sameOrigin(i, j int) bool {
	return b.Records[i].Span == b.Records[j].Span && b.Records[i].Origin == b.Records[j].Origin
}

// Middle returns an index that halves the kept records, for Cut: the start of an origin, with kept
// records on both sides, or 0 if they cannot be cut.
func (b *Batch) Middle() int {
	b.Split()
	kept, half := b.Kept(), 0
	best := 0
	for i := range b.Records {
		if half > 0 && half < kept && b.Records[i].State == Kept && !b.sameOrigin(i-1, i) {
			best = i
			if half >= kept/2 {
				return best
			}
		}
		if b.Records[i].State == Kept {
			half++
		}
	}
	return best
}

// Cut returns records i to j-1 as a batch that shares the arena and holds b until its last Release.
// Neither end may be inside an origin. Cuts that tile the records also tile the spans: a span
// without records goes to the piece before it, or to the first. It calls Split.
func (b *Batch) Cut(i, j int) *Batch {
	b.Split()
	if i < 0 || j > len(b.Records) || i >= j || i > 0 && b.sameOrigin(i-1, i) ||
		j < len(b.Records) && b.sameOrigin(j-1, j) {
		panic("penstock: BUG: Cut inside an origin or out of range")
	}
	p := b.piece()
	p.Records = slices.Clone(b.Records[i:j])
	b.takeReasons(p, func(k int) (int, bool) { return k - i, k >= i && k < j })
	p.cover(b, i, j)
	p.lo, p.hi = b.rawOf(i, j)
	p.Origins = p.countOrigins()
	return p
}

// Pick returns the given records, ascending, as a batch with exactly their spans. Records that are
// not kept, and spans without records, go with the previous kept record, or with the first one.
// Picks that divide the kept records therefore tile b. It calls Split.
func (b *Batch) Pick(index []int) *Batch {
	b.Split()
	p := b.piece()
	p.changed = true
	at := make(map[int]int, len(index))
	for n := 0; n < len(index); {
		from := b.stretchStart(index[n])
		end := n + 1
		to := b.stretchEnd(index[n])
		for end < len(index) && index[end] <= to {
			to = b.stretchEnd(index[end])
			end++
		}
		base := len(p.Records)
		for k := from; k < to; k++ {
			at[k] = base + k - from
		}
		p.Records = append(p.Records, b.Records[from:to]...)
		p.coverFrom(b, from, to, base)
		n = end
	}
	b.takeReasons(p, func(k int) (int, bool) { n, ok := at[k]; return n, ok })
	p.lo, p.hi = 0, 0
	for s := range p.Spans {
		p.hi += uint32(p.Spans[s].Bytes)
	}
	p.Origins = p.countOrigins()
	return p
}

// stretchStart returns the first record that goes with kept record k: k itself, or, for the first
// kept record, the leading records.
func (b *Batch) stretchStart(k int) int {
	for i := k - 1; i >= 0; i-- {
		if b.Records[i].State == Kept {
			return k
		}
	}
	return 0
}

// stretchEnd returns the end of the records that go with kept record k.
func (b *Batch) stretchEnd(k int) int {
	for k++; k < len(b.Records) && b.Records[k].State != Kept; k++ {
	}
	return k
}

func (b *Batch) piece() *Batch {
	b.Retain()
	p := &Batch{
		Data: b.Data, Names: b.Names, Types: b.Types, Fields: b.Fields, Time: b.Time,
		limits: b.limits, parent: b, changed: b.changed,
	}
	p.refs.Store(1)
	return p
}

func (b *Batch) takeReasons(p *Batch, move func(int) (int, bool)) {
	for k, err := range b.reasons {
		if n, ok := move(k); ok {
			if p.reasons == nil {
				p.reasons = make(map[int]error)
			}
			p.reasons[n] = err
		}
	}
}

func (b *Batch) countOrigins() int {
	n := 0
	for i := range b.Records {
		if i == 0 || !b.sameOrigin(i-1, i) {
			n++
		}
	}
	return n
}

// rawOf returns the bounds of the raw bytes of records i to j-1; undefined, and unused, after
// records were added.
func (b *Batch) rawOf(i, j int) (lo, hi uint32) {
	lo, hi = b.rawBounds()
	if i > 0 {
		lo = b.Records[i].Off
	}
	if j < len(b.Records) {
		hi = b.Records[j].Off
	}
	return lo, hi
}

// cover sets the spans of b to those of records i to j-1 of whole.
func (b *Batch) cover(whole *Batch, i, j int) { b.coverFrom(whole, i, j, 0) }

// coverFrom appends the spans of records i to j-1 of whole, which are the records of b from base
// on, and renumbers their Span.
func (b *Batch) coverFrom(whole *Batch, i, j, base int) {
	first, last := int(whole.Records[i].Span), int(whole.Records[j-1].Span)
	if i == 0 {
		first = 0
	}
	if j == len(whole.Records) {
		last = len(whole.Spans) - 1
	} else if int(whole.Records[j].Span) > last {
		last = int(whole.Records[j].Span) - 1 // spans without records go to the previous piece
	}
	shift := len(b.Spans) - first
	for s := first; s <= last; s++ {
		span := whole.Spans[s]
		if i > 0 && int(whole.Records[i-1].Span) == s {
			span.From = whole.Records[i-1].Origin
		}
		if j < len(whole.Records) && int(whole.Records[j].Span) == s {
			span.To, span.Last = whole.Records[j-1].Origin, false
		}
		b.Spans = append(b.Spans, span)
	}
	for k := base; k < len(b.Records); k++ {
		b.Records[k].Span = uint32(int(b.Records[k].Span) + shift)
	}
	b.countBytes(whole, i, j, shift)
}

// countBytes sets the bytes of the added spans, by the raw ends of their records.
func (b *Batch) countBytes(whole *Batch, i, j, shift int) {
	for k := i; k < j; {
		s := int(whole.Records[k].Span)
		from := k
		for k < j && int(whole.Records[k].Span) == s {
			k++
		}
		if (from == 0 || int(whole.Records[from-1].Span) != s) &&
			(k == len(whole.Records) || int(whole.Records[k].Span) != s) {
			continue // the whole span: its count is unchanged
		}
		n := 0
		for r := from; r < k; r++ {
			if whole.Records[r].Sub == 0 {
				n += len(whole.Raw(r))
			}
		}
		b.Spans[s+shift].Bytes = n
	}
}
