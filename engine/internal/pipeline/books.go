//penstock:pure

package pipeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// books are the accounts of one route: records read, their outcomes, and progress not yet in the
// checkpoint. They are pure; the route's mutex guards them.
type books struct {
	parts       map[string]*partition
	resume      func(id string) (stream.Mark, bool) // progress before this run
	dirty       []*partition                        // settled since the last take, in the order of first settlement
	unannounced []*partition                        // first seen since the last takeNew, without an earlier mark
	// ends is set if the source has no Finish. Sealed and settled partitions then count as
	// finished.
	ends   bool
	places map[string]string // by lane, since the last take

	waiting waitIndex // ranges that wait; nil if the route has no store for them

	now     time.Duration // since the route started; the owner sets it before open and settle
	pending map[*partition]struct{}
	remnant bool // the first batch resumes below settled ranges

	counts       counts
	unsavedBytes int64 // settled by workers and not yet taken: the bytes that a kill would repeat
	unsavedParts int   // partitions without a stored mark that were opened since the last take
	assigned     *assigned
	// inherited counts records and bytes that an earlier run of the route read and did not settle.
	// This route reads them again.
	inherited counts
}

// counts are source records and source bytes of this run.
type counts struct {
	readRecords, readBytes           int64
	delivered, deliveredBytes        int64
	dead, dropped                    int64
	settledBatches, finishedPartials int64
	settledBytes                     int64 // raw bytes of all settled batches
}

// unsettled returns the number of records read and not yet settled.
func (c *counts) unsettled() int64 { return c.readRecords - c.delivered - c.dead - c.dropped }

// partition is one partition's account.
type partition struct {
	part      stream.Partition
	ledger    *ledger.Ledger
	keys      []string // the partition's id, as an order key
	sealed    bool
	sealedAt  stream.Position
	finished  bool // the source has finished it, or has no Finish
	handedOut bool // a span of it was handed out in this run
	dirty     bool
	// stood is set while the partition is pending: the time of the last watermark advance, or of
	// the first read above the watermark.
	stood time.Duration

	assignment assignment // of a partition that a broker has assigned
}

// saving holds the contents of one checkpoint entry.
type saving struct {
	marks    []stream.Mark
	places   map[string]string
	bytes    int64              // subtracted from the replay bound after the entry was written
	finished []stream.Partition // sealed and settled; the source must still finish them
}

func newBooks(resume func(string) (stream.Mark, bool)) *books {
	return &books{
		parts: make(map[string]*partition), places: make(map[string]string),
		pending: make(map[*partition]struct{}), resume: resume,
	}
}

// continueFrom makes k the books of a restarted route, where c are the counts of the route before.
// Records that were read and not settled still count as read. They are not counted again when they
// are read again.
func (k *books) continueFrom(c *counts) {
	k.counts = *c
	k.inherited = counts{readRecords: c.unsettled(), readBytes: max(0, c.readBytes-c.settledBytes)}
}

// dropInherited is called at the end of the data. Inherited records that were not read again no
// longer exist, so they no longer count as read.
func (k *books) dropInherited() {
	k.counts.readRecords -= k.inherited.readRecords
	k.counts.readBytes -= k.inherited.readBytes
	k.inherited = counts{}
}

// open records the spans of a batch that was read.
func (k *books) open(b *stream.Batch) error {
	if k.assigned != nil {
		if err := k.accept(b); err != nil {
			return err
		}
	}
	records, bytes := int64(b.Origins), b.RawBytes()-int64(b.Added)
	again := counts{readRecords: min(k.inherited.readRecords, records),
		readBytes: min(k.inherited.readBytes, bytes)}
	k.inherited.readRecords -= again.readRecords
	k.inherited.readBytes -= again.readBytes
	k.counts.readRecords += records - again.readRecords
	k.counts.readBytes += bytes - again.readBytes
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
				p.stood = k.now
				k.pending[p] = struct{}{}
			}
		}
		if span.Last {
			p.sealed, p.sealedAt = true, span.To
		} else if p.sealed && span.To.Compare(p.sealedAt) > 0 {
			p.sealed, p.finished = false, false // it grew after it was sealed
		}
	}
	return nil
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

// takeNew returns the marks of partitions first seen since the last takeNew.
func (k *books) takeNew() []stream.Mark {
	marks := make([]stream.Mark, 0, len(k.unannounced))
	for _, p := range k.unannounced {
		marks = append(marks, k.mark(p))
	}
	clear(k.unannounced)
	k.unannounced = k.unannounced[:0]
	return marks
}

// nothingSettled reports whether no data of b's partitions was settled before this run. If some
// was, a batch may consist only of records that were refused before a kill. Such a batch does not
// show that the config is wrong.
func (k *books) nothingSettled(b *stream.Batch) bool {
	for i := range b.Spans {
		mark, _ := k.resume(b.Spans[i].Part.ID)
		if mark.Watermark != (stream.Position{}) || len(mark.Above) > 0 {
			return false
		}
	}
	return true
}

// noteSettledAbove records whether a range above b, the first batch of a run, was settled before.
// If so, b may be the unsettled rest of an earlier batch.
func (k *books) noteSettledAbove(b *stream.Batch) {
	k.remnant = slices.ContainsFunc(b.Spans, func(s stream.Span) bool {
		mark, _ := k.resume(s.Part.ID)
		return len(mark.Above) > 0
	})
}

// runError returns an error if a finite run delivered nothing and dead-lettered at least one
// record. It returns nil for a run that resumed below settled ranges, because only refused records
// may have been left to deliver.
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

// batchOutcome is the outcome of a batch.
type batchOutcome struct {
	lane, place  string
	deadLettered bool // its records are dead-lettered
	unsent       bool // no worker had it, so the sender must not be told that its bytes are saved
}

// settle closes b's spans and counts its kept records as delivered, or as dead if end.deadLettered is
// set.
func (k *books) settle(b *stream.Batch, end batchOutcome) (delivered, dead, dropped int64,
	err error) {
	late := k.assigned != nil && k.settleAssigned(b, end)
	for i := range b.Spans {
		if late {
			break
		}
		span := &b.Spans[i]
		p := k.parts[span.Part.ID]
		if p == nil && span.From == span.To { // it only seals; the account is closed
			if _, known := k.resume(span.Part.ID); !known {
				continue // the partition was forgotten
			}
			if p, err = k.partition(span.Part); err != nil {
				return 0, 0, 0, err
			}
		}
		if p == nil && k.waiting != nil { // the account was closed while the batch waited
			if p, err = k.partition(span.Part); err != nil {
				return 0, 0, 0, err
			}
		}
		if p == nil {
			return 0, 0, 0, fmt.Errorf("partition %q was settled and never opened", span.Part.ID)
		}
		if span.From != span.To {
			k.settleRange(p, span.Range)
		}
		k.markDirty(p)
	}
	delivered, dead, dropped = countOutcomes(b, end.deadLettered)
	k.counts.delivered += delivered
	k.counts.dead += dead
	k.counts.dropped += dropped
	if !end.deadLettered {
		k.counts.deliveredBytes += b.RawBytes()
	}
	k.counts.settledBatches++
	k.counts.settledBytes += b.RawBytes()
	if !end.unsent && !late {
		k.unsavedBytes += b.RawBytes()
	}
	if end.place != "" {
		k.places[end.lane] = end.place
	}
	return delivered, dead, dropped, nil
}

func (k *books) settleRange(p *partition, r stream.Range) {
	before := p.ledger.Watermark()
	p.ledger.Settle(r)
	if p.ledger.Pending() == 0 {
		delete(k.pending, p)
	} else if p.ledger.Watermark() != before {
		p.stood = k.now
	}
}

// watermarkAge returns the age of the oldest watermark with unsettled data above it, or 0 if there
// is none.
func (k *books) watermarkAge(now time.Duration) (age time.Duration) {
	for p := range k.pending {
		age = max(age, now-p.stood)
	}
	return age
}

// countOutcomes counts the origins of b by outcome: delivered if any record of the origin is kept, else
// dead if any is dead, else dropped.
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

// takeUnsaved returns the progress that is not in the checkpoint, and marks it as saved. If the
// caller cannot write it, the caller passes it to restore.
func (k *books) takeUnsaved() saving {
	s := saving{bytes: k.unsavedBytes}
	k.unsavedBytes, k.unsavedParts = 0, 0
	if k.assigned != nil {
		if k.assigned.stores {
			s.bytes = 0 // see stored
		}
		s.bytes += k.assigned.freed
		k.assigned.freed = 0
	}
	for _, p := range k.dirty {
		p.dirty = false
		if k.done(p) && !p.finished {
			if k.ends {
				p.finished = true
				k.counts.finishedPartials++
			} else {
				s.finished = append(s.finished, p.part)
			}
		}
		s.marks = append(s.marks, k.mark(p))
	}
	k.dirty = k.dirty[:0]
	if len(k.places) > 0 {
		s.places = k.places
		k.places = make(map[string]string)
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

// restore undoes takeUnsaved after a failed write. Progress that was settled in the meantime takes
// precedence.
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
	for lane, place := range s.places {
		if _, newer := k.places[lane]; !newer {
			k.places[lane] = place
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

// finish records that the source has finished a partition. It returns false if the partition has
// grown in the meantime.
func (k *books) finish(id string) bool {
	p := k.parts[id]
	if p == nil || !k.done(p) {
		return false
	}
	p.finished = true
	k.counts.finishedPartials++
	k.markDirty(p)
	return true
}

// keysOf returns the order keys of b: the ids of its partitions.
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
