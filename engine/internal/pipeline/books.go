//penstock:pure

package pipeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// books are the accounts of one route. They count the records that were read and their outcomes
// (delivered, dead-lettered or dropped). They also keep the progress of the partitions, and know
// which part of it is not yet in the checkpoint. A record with an outcome is "settled". Methods of
// books do no I/O. The route's mutex guards them.
type books struct {
	parts       map[string]*partition
	resume      func(id string) (stream.Mark, bool) // saved progress
	dirty       []*partition                        // with progress to save since the last takeUnsaved
	unannounced []*partition                        // new since the last takeNew; no earlier progress
	// noFinisher is set if the engine does not call Finish of the source. A partition is then
	// finished when it has been read to its end and all its data is settled.
	noFinisher bool
	tokens     map[string]string // by lane: the sink's resume tokens since the last takeUnsaved

	waiting waitIndex // ranges that wait for a retry; nil if the route has no store for them

	now     time.Duration // since the route started; the caller sets it before open and settle
	pending map[*partition]struct{}
	remnant bool // when the first batch was read, data after it was already settled

	counts       counts
	unsavedBytes int64 // settled by workers since the last takeUnsaved
	unsavedParts int   // new partitions since the last takeUnsaved
	assigned     *assigned
	// inherited counts the records and bytes that the previous run of the route read and did not
	// settle, and that this run has not read again yet. They are already in counts.
	inherited counts
}

// counts are numbers of source records and source bytes. They continue when the route restarts.
type counts struct {
	readRecords, readBytes    int64
	delivered, deliveredBytes int64
	dead, dropped             int64
	settledBytes              int64 // raw bytes of all settled batches
}

// unsettled returns the number of records read and not yet settled.
func (c *counts) unsettled() int64 { return c.readRecords - c.delivered - c.dead - c.dropped }

// partition is the account of one partition: its settled and unsettled ranges, and its end if
// known.
type partition struct {
	part      stream.Partition
	ledger    *ledger.Ledger
	keys      []string // the order keys of its batches: only the id of the partition
	sealed    bool
	sealedAt  stream.Position
	finished  bool // Finish has succeeded, or the source has no Finish
	handedOut bool // this run has read data of it
	dirty     bool
	// stalledSince is the time from which watermarkAge counts: the last advance of the watermark.
	// If that advance left no unsettled data, it is the time of the next read. It is valid while
	// the partition has unsettled data.
	stalledSince time.Duration

	assignment assignment // of a partition that a broker has assigned
}

// saving holds the progress that the next entry of the checkpoint stores.
type saving struct {
	marks    []stream.Mark
	tokens   map[string]string
	bytes    int64              // the part of unsavedBytes that this entry saves
	finished []stream.Partition // read and settled to the end; the source must still finish them
}

func newBooks(resume func(string) (stream.Mark, bool)) *books {
	return &books{
		parts: make(map[string]*partition), tokens: make(map[string]string),
		pending: make(map[*partition]struct{}), resume: resume,
	}
}

// continueFrom makes k continue with c, the counts of the previous run of the route. c also counts
// records that were read and not settled. This run reads them again, and must not count them a
// second time.
func (k *books) continueFrom(c *counts) {
	k.counts = *c
	k.inherited = counts{readRecords: c.unsettled(), readBytes: max(0, c.readBytes-c.settledBytes)}
}

// dropInherited is called when the source has returned no data for the time writeOffAfter. Records
// that the previous run read and did not settle should have been read again by now. If some were
// not, the source no longer has them, and dropInherited subtracts them from the read records.
func (k *books) dropInherited() {
	k.counts.readRecords -= k.inherited.readRecords
	k.counts.readBytes -= k.inherited.readBytes
	k.inherited = counts{}
}

// open counts the records of a batch that was read. It adds the batch's spans to the unsettled
// ranges of their partitions. It returns an error if a span does not follow the previous span of
// its partition, and errNotAssigned if the assignment of the batch is ending or has ended.
func (k *books) open(b *stream.Batch) error {
	if k.assigned != nil {
		if err := k.accept(b); err != nil {
			return err
		}
	}
	k.countRead(int64(b.Origins), b.RawBytes()-int64(b.Added))
	for i := range b.Spans {
		span := &b.Spans[i]
		p, err := k.partition(span.Part)
		if err != nil {
			return err
		}
		if span.From != span.To {
			p.handedOut = true
			if err := p.ledger.Open(span.Range); err != nil {
				return fmt.Errorf("partition %q: the source handed out a span that does not "+
					"follow: %w", span.Part.Name, err)
			}
			if p.ledger.Pending() == 1 {
				p.stalledSince = k.now
				k.pending[p] = struct{}{}
			}
		}
		if span.Last {
			p.sealed, p.sealedAt = true, span.To
		} else if p.sealed && span.To.Compare(p.sealedAt) > 0 {
			p.sealed, p.finished = false, false // the file grew after its end was handed out
		}
	}
	return nil
}

// countRead counts records as read. It omits those that the previous run has already counted.
func (k *books) countRead(records, bytes int64) {
	again := counts{readRecords: min(k.inherited.readRecords, records),
		readBytes: min(k.inherited.readBytes, bytes)}
	k.inherited.readRecords -= again.readRecords
	k.inherited.readBytes -= again.readBytes
	k.counts.readRecords += records - again.readRecords
	k.counts.readBytes += bytes - again.readBytes
}

func (k *books) partition(part *stream.Partition) (*partition, error) {
	if p, ok := k.parts[part.ID]; ok {
		if p.part.Name != part.Name {
			p.part.Name = part.Name
			k.markDirty(p)
		}
		return p, nil
	}
	mark, known := k.resume(part.ID)
	l, err := ledger.New(mark.Watermark, mark.Above)
	if err != nil {
		return nil, fmt.Errorf("partition %q: the checkpoint's ranges: %w", part.Name, err)
	}
	p := &partition{part: *part, ledger: l, keys: []string{part.ID}}
	k.parts[part.ID] = p
	if !known {
		k.unannounced = append(k.unannounced, p)
		k.unsavedParts++
	}
	if !known || mark.Part.Name != part.Name {
		k.markDirty(p)
	}
	return p, nil
}

// takeNew returns the progress of the partitions that are new since the last takeNew: no progress
// of them was stored before.
func (k *books) takeNew() []stream.Mark {
	marks := make([]stream.Mark, 0, len(k.unannounced))
	for _, p := range k.unannounced {
		marks = append(marks, k.mark(p))
	}
	clear(k.unannounced)
	k.unannounced = k.unannounced[:0]
	return marks
}

// nothingSettled reports whether no data of b's partitions was settled before this run. b is the
// first batch of the run. The result matters if all records of b are refused. If nothing was
// settled before, the config is probably wrong. If something was settled, b may be the rest of an
// earlier batch: the refused records that were not yet dead letters when the process was killed.
func (k *books) nothingSettled(b *stream.Batch) bool {
	for i := range b.Spans {
		mark, _ := k.resume(b.Spans[i].Part.ID)
		if mark.Watermark != (stream.Position{}) || len(mark.Above) > 0 {
			return false
		}
	}
	return true
}

// noteSettledAbove is called with b, the first batch of a run. It records whether an earlier run
// has already settled data after b. In that case b may be the rest of an earlier batch: only those
// of its records that were not settled then. runError then returns nil even if the run delivers
// nothing.
func (k *books) noteSettledAbove(b *stream.Batch) {
	k.remnant = slices.ContainsFunc(b.Spans, func(s stream.Span) bool {
		mark, _ := k.resume(s.Part.ID)
		return len(mark.Above) > 0
	})
}

// runError returns an error if a finite run delivered nothing and dead-lettered at least one
// record. There is one exception: the first batch of the run was perhaps the rest of an earlier
// batch (see noteSettledAbove). An earlier run may then have delivered all good records, so
// runError returns nil.
func (k *books) runError() error {
	if k.remnant || k.counts.delivered > 0 || k.counts.dead == 0 {
		return nil
	}
	return fmt.Errorf("no record was delivered and %d became dead letters; look at their reasons "+
		"with penstock dead list", k.counts.dead)
}

func (k *books) markDirty(p *partition) {
	if !p.dirty {
		p.dirty = true
		k.dirty = append(k.dirty, p)
	}
}

// batchOutcome describes how a batch was settled.
type batchOutcome struct {
	lane, token  string
	deadLettered bool // its records are dead-lettered
	unsent       bool // no worker got it, so the sender does not count its bytes as unsaved
}

// settle settles the spans of b: it adds their ranges to the settled ranges of the partitions.
// Records in state stream.Kept count as delivered or, if end.deadLettered is set, as dead. If the
// assignment of b has ended, only the counts change. settle returns the number of source records by
// outcome.
func (k *books) settle(b *stream.Batch, end batchOutcome) (delivered, dead, dropped int64,
	err error) {
	late := k.assigned != nil && k.settleAssigned(b, end)
	if !late {
		if err := k.settleSpans(b); err != nil {
			return 0, 0, 0, err
		}
	}
	delivered, dead, dropped = countOutcomes(b, end.deadLettered)
	k.counts.delivered += delivered
	k.counts.dead += dead
	k.counts.dropped += dropped
	if !end.deadLettered {
		k.counts.deliveredBytes += b.RawBytes()
	}
	k.counts.settledBytes += b.RawBytes()
	if !end.unsent && !late {
		k.unsavedBytes += b.RawBytes()
	}
	if end.token != "" {
		k.tokens[end.lane] = end.token
	}
	return delivered, dead, dropped, nil
}

// settleSpans adds the spans of b to the settled ranges of their partitions.
func (k *books) settleSpans(b *stream.Batch) (err error) {
	for i := range b.Spans {
		span := &b.Spans[i]
		p, empty := k.parts[span.Part.ID], span.From == span.To
		if p == nil && empty {
			if _, known := k.resume(span.Part.ID); !known {
				continue // the source has reported the partition as deleted
			}
		}
		switch {
		case p != nil:
		case empty || k.waiting != nil: // the account was closed, perhaps while the batch waited
			if p, err = k.partition(span.Part); err != nil {
				return err
			}
		default:
			return fmt.Errorf("partition %q was settled and never opened", span.Part.ID)
		}
		if !empty {
			k.settleRange(p, span.Range)
		}
		k.markDirty(p)
	}
	return nil
}

func (k *books) settleRange(p *partition, r stream.Range) {
	before := p.ledger.Watermark()
	p.ledger.Settle(r)
	if p.ledger.Pending() == 0 {
		delete(k.pending, p)
	} else if p.ledger.Watermark() != before {
		p.stalledSince = k.now
	}
}

// watermarkAge returns the longest time for which a partition has had unsettled data and its
// watermark has not advanced. It returns 0 if no data is unsettled.
func (k *books) watermarkAge(now time.Duration) (age time.Duration) {
	for p := range k.pending {
		age = max(age, now-p.stalledSince)
	}
	return age
}

// countOutcomes counts the source records of b by outcome. Processors may turn one source record
// into several records. The source record then counts as delivered if any of these records is kept,
// else as dead if any is dead, else as dropped. If deadLettered is set, kept records count as dead.
func countOutcomes(b *stream.Batch, deadLettered bool) (delivered, dead, dropped int64) {
	if len(b.Records) == 0 || b.Untouched() {
		if deadLettered {
			return 0, int64(b.Origins), 0
		}
		return int64(b.Origins), 0, 0
	}
	for i := 0; i < len(b.Records); {
		kept, died := false, false
		first := b.Records[i]
		for ; i < len(b.Records) && b.Records[i].Span == first.Span && b.Records[i].Origin == first.Origin; i++ {
			kept = kept || b.Records[i].State == stream.Kept
			died = died || b.Records[i].State == stream.Dead
		}
		switch {
		case kept && !deadLettered:
			delivered++
		case kept || died:
			dead++
		default:
			dropped++
		}
	}
	return delivered, dead, dropped
}

// takeUnsaved returns the progress that is not in the checkpoint. From then on, this progress
// counts as saved. If writing it fails, the caller must call restore.
func (k *books) takeUnsaved() saving {
	s := saving{bytes: k.unsavedBytes}
	k.unsavedBytes, k.unsavedParts = 0, 0
	if k.assigned != nil {
		if k.assigned.stores {
			s.bytes = 0 // the method stored counts them
		}
		s.bytes += k.assigned.freed
		k.assigned.freed = 0
	}
	for _, p := range k.dirty {
		p.dirty = false
		if k.done(p) && !p.finished {
			if k.noFinisher {
				p.finished = true
			} else {
				s.finished = append(s.finished, p.part)
			}
		}
		s.marks = append(s.marks, k.mark(p))
	}
	k.dirty = k.dirty[:0]
	if len(k.tokens) > 0 {
		s.tokens = k.tokens
		k.tokens = make(map[string]string)
	}
	return s
}

// marks returns the progress of every partition with an open account.
func (k *books) marks() []stream.Mark {
	marks := make([]stream.Mark, 0, len(k.parts))
	for _, p := range k.parts {
		marks = append(marks, k.mark(p))
	}
	return marks
}

// restore undoes takeUnsaved after a failed write. Newer resume tokens are kept.
func (k *books) restore(s saving) {
	if k.assigned != nil {
		k.assigned.freed += s.bytes
	} else {
		k.unsavedBytes += s.bytes
	}
	for i := range s.marks {
		if p := k.parts[s.marks[i].Part.ID]; p != nil {
			k.markDirty(p)
		}
	}
	for lane, token := range s.tokens {
		if _, newer := k.tokens[lane]; !newer {
			k.tokens[lane] = token
		}
	}
}

func (k *books) done(p *partition) bool {
	watermark, above := p.ledger.Progress()
	return p.sealed && !k.waits(p.part.ID) && len(above) == 0 && watermark.Compare(p.sealedAt) >= 0
}

func (k *books) mark(p *partition) stream.Mark {
	watermark, above := p.ledger.Progress()
	return stream.Mark{
		Part: p.part, Watermark: watermark, Above: above, Finished: p.finished, Waiting: k.waits(p.part.ID),
		Assignment: p.assignment.number,
	}
}

// finish is called when the source has finished a partition, for example renamed its file. It does
// nothing and returns false in two cases: the account of the partition (its progress in memory) is
// closed, or the partition has grown since, and is not read and settled to its new end.
func (k *books) finish(id string) bool {
	p := k.parts[id]
	if p == nil || !k.done(p) {
		return false
	}
	p.finished = true
	k.markDirty(p)
	return true
}

// keysOf returns the ids of b's partitions. The sender keeps batches with a common id in order.
func (k *books) keysOf(b *stream.Batch) []string {
	if len(b.Spans) == 1 {
		return k.parts[b.Spans[0].Part.ID].keys
	}
	keys := make([]string, 0, len(b.Spans))
	for i := range b.Spans {
		if id := b.Spans[i].Part.ID; len(keys) == 0 || keys[len(keys)-1] != id {
			keys = append(keys, id)
		}
	}
	return keys
}
