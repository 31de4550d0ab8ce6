//penstock:pure

package kafka

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// phase is the state of a partition in this process.
//
//	assigning ──▶ reading
//	    │            │
//	    └────────────┴──▶ stopped
//
// When the group takes the partition away, its phase becomes revoking, regardless of its previous
// phase. The partition then leaves the reader's list.
type phase uint8

const (
	assigning phase = iota // the engine has not returned an assignment yet
	reading
	revoking // no more records are handed out
	stopped  // no more records are fetched, but the partition stays assigned
)

// partition is the state of one partition during one assignment. A position is the offset of the
// next record.
type partition struct {
	key    topicPartition
	part   *stream.Partition
	phase  phase
	number uint32 // number of the assignment; 0 until the engine has returned it
	next   int64
	above  []stream.Range // settled ranges beyond next
	end    int64          // end of the log at the assignment
	stored int64          // marks below this offset are not committed

	fetched []*kgo.Record // not handed out yet
	ready   time.Duration // since the reader's start: fetched records wait for more until then
	bytes   int64         // memory of fetched
	epochs  []epochStart  // ascending
}

// epochStart states that the records from the offset `after` on have the leader epoch `epoch`, up
// to the next epochStart.
type epochStart struct {
	after int64
	epoch int32
}

// recordOverhead is the memory of a fetched record in addition to its bytes.
const recordOverhead = 200

func sizeOf(r *kgo.Record) int64 {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// add appends fetched records and returns their size. It takes ownership of records.
func (p *partition) add(records []*kgo.Record) (bytes int64) {
	for _, r := range records {
		bytes += sizeOf(r)
	}
	if len(p.fetched) == 0 {
		p.fetched = slices.Clip(records)
	} else {
		p.fetched = append(p.fetched, records...)
	}
	p.bytes += bytes
	return bytes
}

// fills reports whether the fetched records fill a batch.
func (p *partition) fills(l stream.BatchLimits) bool {
	return len(p.fetched) >= l.Records || p.bytes-int64(recordOverhead*len(p.fetched)) >= int64(l.Bytes)
}

// fetchedTo returns the position after the last fetched record, or p.next if there is none.
func (p *partition) fetchedTo() int64 {
	if n := len(p.fetched); n > 0 {
		return p.fetched[n-1].Offset + 1
	}
	return p.next
}

// discard drops the fetched records and returns their size.
func (p *partition) discard() (bytes int64) {
	bytes, p.fetched, p.bytes = p.bytes, nil, 0
	return bytes
}

// fill appends records to b, up to its limits or the next settled range (delivered, dead-lettered
// or dropped records), and adds the span that covers them. If b already has a span, fill extends it
// to p.next. It returns the appended records, and the memory of all records that it has taken from
// p.fetched.
//
// Some offsets have no record to deliver, because the record was removed by compaction, belongs to
// an aborted transaction, or is a control record. The span includes such offsets, also those after
// the last record. It may consist only of them.
func (p *partition) fill(b *stream.Batch) (used []*kgo.Record, bytes int64) {
	from, taken := p.next, 0
	for taken < len(p.fetched) && !b.Full() {
		r := p.fetched[taken]
		if len(p.above) > 0 && r.Offset >= p.above[0].From.Num {
			if from < p.above[0].From.Num || len(b.Spans) > 0 {
				p.next = p.above[0].From.Num // the offsets before the range have no records
				break
			}
			p.next = max(p.next, p.above[0].To.Num)
			p.above, from = p.above[1:], p.next
			continue
		}
		taken++
		bytes += sizeOf(r)
		if r.Offset < p.next {
			continue // settled, or before the position
		}
		p.next = r.Offset + 1
		p.noteEpoch(r)
		if r.Attrs.IsControl() {
			continue
		}
		readers.AppendRecord(b, r.Value, stream.Position{Num: r.Offset + 1})
		if used == nil {
			used = make([]*kgo.Record, 0, min(len(p.fetched)-taken+1, b.Limits().Records))
		}
		used = append(used, r)
	}
	clear(p.fetched[:taken])
	p.fetched = p.fetched[taken:]
	p.bytes -= bytes
	readers.ExtendSpan(b, stream.Span{Part: p.part, Assignment: p.number}, from, p.next)
	return used, bytes
}

func (p *partition) noteEpoch(r *kgo.Record) {
	if n := len(p.epochs); n == 0 || p.epochs[n-1].epoch != r.LeaderEpoch {
		p.epochs = append(p.epochs, epochStart{r.Offset, r.LeaderEpoch})
	}
}

// epochAt returns the leader epoch of the last record before a position, or -1 if it is not known.
// A commit of the position must contain this epoch. epochAt also drops the epochs that only earlier
// positions need.
func (p *partition) epochAt(position int64) int32 {
	i := 0
	for i < len(p.epochs) && p.epochs[i].after < position {
		i++
	}
	if i == 0 {
		return -1
	}
	p.epochs = slices.Delete(p.epochs, 0, i-1)
	return p.epochs[0].epoch
}

// atEnd reports whether the partition was read to the end that its log had when it was assigned. A
// stopped partition counts as read.
func (p *partition) atEnd() bool {
	if p.phase == stopped {
		return true
	}
	return p.phase == reading && progress{watermark: p.next}.with(p.above).watermark >= p.end
}
