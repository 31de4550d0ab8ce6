package stream

// Cut returns a piece of b: records i to j-1 as a batch that shares the memory of b and holds b
// until its last Release. Records that were made from one source record must stay together. If
// several Cuts together cover all records, they also cover all spans: a span without records goes
// to the piece before it, or to the first piece. Cut calls Split.
func (b *Batch) Cut(i, j int) *Batch {
	b.Split()
	if i < 0 || j > len(b.Records) || i >= j || i > 0 && SameOrigin(b.Records, i-1, i) ||
		j < len(b.Records) && SameOrigin(b.Records, j-1, j) {
		panic("penstock: BUG: Cut inside an origin or out of range")
	}
	p := newPiece(b)
	p.appendRecords(i, j)
	p.takeReasons(func(k int) (int, bool) { return k - i, k >= i && k < j })
	p.lo, p.hi = rawOf(b, i, j)
	p.Origins = countOrigins(p.Records)
	return p.Batch
}

// Pick returns a piece of b that has the records with the given ascending indexes. The records must
// be kept, that is, neither dropped nor dead-lettered. Kept records that were made from one source
// record must stay together. The piece covers exactly the parts of the spans that belong to its
// records.
//
// A record that is not kept goes into the piece of a kept record that was made from the same source
// record. If there is none, it goes into the piece of the kept record before it, or of the first
// kept record. So does a span without records. So if several Picks divide the kept records among
// them, each part of b is in exactly one piece. Example: of the records 0 to 4, records 1 and 2 are
// dropped. Pick of record 0 covers the positions of records 0 to 2, and Pick of records 3 and 4
// those of records 3 and 4. If records 2 and 3 were made from one source record, Pick of record 0
// covers only the positions of records 0 and 1. Pick calls Split.
func (b *Batch) Pick(index []int) *Batch {
	b.Split()
	p := newPiece(b)
	p.changed = true
	at := make(map[int]int, len(index))
	for n := 0; n < len(index); {
		from := stretchStart(b.Records, index[n])
		end := n + 1
		to := stretchEnd(b.Records, index[n])
		for end < len(index) && stretchStart(b.Records, index[end]) <= to {
			to = stretchEnd(b.Records, index[end])
			end++
		}
		base := len(p.Records)
		for k := from; k < to; k++ {
			at[k] = base + k - from
		}
		p.appendRecords(from, to)
		n = end
	}
	p.takeReasons(func(k int) (int, bool) { n, ok := at[k]; return n, ok })
	p.lo, p.hi = 0, 0
	for s := range p.Spans {
		p.hi += uint32(p.Spans[s].Bytes)
	}
	p.Origins = countOrigins(p.Records)
	return p.Batch
}

// stretchStart returns the start of the stretch of kept record k. A stretch is a kept record and
// the records that go into the same piece as it does (see Pick). It starts at the first record that
// is not kept and has the origin of k, or at k if there is none before k. If k is the first kept
// record, it starts at the first record of the batch.
func stretchStart(records []Record, k int) int {
	start := k
	for i := k - 1; i >= 0; i-- {
		if records[i].State == Kept {
			return start
		}
		if SameOrigin(records, i, k) {
			start = i
		}
	}
	return 0
}

// stretchEnd returns the end of the stretch of kept record k: the start of the stretch of the next
// kept record, or the number of records if there is none.
func stretchEnd(records []Record, k int) int {
	end := k + 1
	for end < len(records) && records[end].State != Kept {
		end++
	}
	if end == len(records) {
		return end
	}
	return stretchStart(records, end)
}

// piece is a new batch that Cut or Pick fills with some records of another batch (whole).
type piece struct {
	*Batch
	whole *Batch
}

// newPiece returns a piece without records, which shares the arena of whole and holds whole.
func newPiece(whole *Batch) piece {
	whole.Retain()
	b := &Batch{
		Data: whole.Data, Names: whole.Names, Types: whole.Types, Fields: whole.Fields, Time: whole.Time,
		limits: whole.limits, parent: whole, changed: whole.changed,
	}
	b.refs.Store(1)
	return piece{b, whole}
}

// takeReasons copies the reasons of dead-lettered records from whole to the piece. For record k of
// whole, move returns its index in the piece, and whether the piece has the record.
func (p piece) takeReasons(move func(k int) (int, bool)) {
	for k, err := range p.whole.reasons {
		if n, ok := move(k); ok {
			if p.reasons == nil {
				p.reasons = make(map[int]error)
			}
			p.reasons[n] = err
		}
	}
}

// countOrigins returns the number of source records that records come from.
func countOrigins(records []Record) int {
	n := 0
	for i := range records {
		if i == 0 || !SameOrigin(records, i-1, i) {
			n++
		}
	}
	return n
}

// rawOf returns the bounds in b.Data of the raw bytes of records i to j-1 of b. If records were
// added to b, the result is meaningless and must not be used.
func rawOf(b *Batch, i, j int) (lo, hi uint32) {
	lo, hi = b.rawBounds()
	if i > 0 {
		lo = b.Records[i].Off
	}
	if j < len(b.Records) {
		hi = b.Records[j].Off
	}
	return lo, hi
}

// appendRecords appends records i to j-1 of whole and their spans. It converts the field Span of
// the records to the index of the span in the piece.
func (p piece) appendRecords(i, j int) {
	whole, base := p.whole, len(p.Records)
	p.Records = append(p.Records, whole.Records[i:j]...)
	first, last := int(whole.Records[i].Span), int(whole.Records[j-1].Span)
	if i == 0 {
		first = 0
	}
	if j == len(whole.Records) {
		last = len(whole.Spans) - 1
	} else if int(whole.Records[j].Span) > last {
		last = int(whole.Records[j].Span) - 1 // spans without records go to the previous piece
	}
	shift := len(p.Spans) - first
	for s := first; s <= last; s++ {
		span := whole.Spans[s]
		if i > 0 && int(whole.Records[i-1].Span) == s {
			span.From = whole.Records[i-1].Origin
		}
		if j < len(whole.Records) && int(whole.Records[j].Span) == s {
			span.To, span.Last = whole.Records[j-1].Origin, false
		}
		p.Spans = append(p.Spans, span)
	}
	for k := base; k < len(p.Records); k++ {
		p.Records[k].Span = uint32(int(p.Records[k].Span) + shift)
	}
	p.countBytes(i, j, shift)
}

// countBytes sets Bytes of those spans of the piece that cover only a part of a span of the whole
// batch. The value is the sum of the raw lengths of the source records in this part. The span s of
// the whole batch is the span s+shift of the piece.
func (p piece) countBytes(i, j, shift int) {
	whole := p.whole
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
		p.Spans[s+shift].Bytes = n
	}
}
