package stream

import "bytes"

// Split fills Records with one record for each line of each span. The text of a record does not
// include LF or CRLF. A reader whose records are not lines fills Records itself. Split does nothing
// if Records exist.
func (b *Batch) Split() {
	if len(b.Records) > 0 {
		return
	}
	if cap(b.Records) < b.Origins {
		b.Records = make([]Record, 0, b.Origins)
	}
	off := uint32(0)
	for s := range b.Spans {
		off = appendLines(b, uint32(s), off)
	}
}

// appendLines appends the lines of span s, whose bytes begin at off, and returns their end. A
// line's position is the source offset after it. The last line of a span gets the span's end as its
// position, because its line end may not be in the source: the reader may have added it.
func appendLines(b *Batch, s, off uint32) uint32 {
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
// each old record. Example: with extra = [0, 2, 0], three records become five, and index is [0, 1,
// 4]. The new records have the origin of record i, and different Subs. The caller fills them in.
// The cost depends only on the number of resulting records.
func (b *Batch) Expand(extra []int) (index []int) {
	total := len(b.Records)
	for _, n := range extra {
		total += n
	}
	records, index := make([]Record, 0, total), make([]int, len(b.Records))
	var number uint32 // Sub of the next new record of the origin
	for i, r := range b.Records {
		if i == 0 || !SameOrigin(b.Records, i-1, i) {
			number = 0
			for k := i; k < len(b.Records) && (k == i || SameOrigin(b.Records, i, k)); k++ {
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

// CanReadAgain reports whether reading the spans of b again would give the same records. It returns
// false if a record is a dead letter. It also returns false for a piece in which a source record
// has become several records, because the piece may lack some of them.
func CanReadAgain(b *Batch) bool {
	for i := range b.Records {
		if b.Records[i].State == Dead || b.parent != nil && b.Records[i].Sub > 0 {
			return false
		}
	}
	return true
}

// SameOrigin reports whether records i and j of a batch come from one source record.
func SameOrigin(records []Record, i, j int) bool {
	return records[i].Span == records[j].Span && records[i].Origin == records[j].Origin
}

// Middle returns the index at which Cut should divide the batch, so that both pieces have about
// half of the kept records. Records that were made from one source record stay together, and each
// piece has at least one kept record. Middle returns 0 if no index meets these conditions.
func (b *Batch) Middle() int {
	b.Split()
	kept, half := b.Kept(), 0
	best := 0
	for i := range b.Records {
		if half > 0 && half < kept && !SameOrigin(b.Records, i-1, i) {
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
