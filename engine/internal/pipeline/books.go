//penstock:pure

package pipeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// books are the accounts of one route: what was read, what became of it, and what of it the
// checkpoint does not yet know. They are pure; the route's mutex guards them.
type books struct {
	parts  map[string]*partition
	resume func(id string) (stream.Mark, bool) // what was settled before this run
	dirty  []*partition                        // settled since the last take, in the order of their first settle
	met    []*partition                        // of which there was no mark, since the last meet
	ends   bool                                // the source has nothing to finish: what is sealed and settled is finished
	places map[string]string                   // by lane, since the last take

	waiting waitIndex // ranges that wait; nil: none do

	now     time.Duration // since the route started; the owner sets it before open and settle
	pending map[*partition]struct{}
	remnant bool // the first batch resumes below settled ranges

	counts       counts
	unsavedBytes int64 // settled and not yet taken, of what a worker had: what a kill would repeat
	assigned     *assigned
	owed         counts // readRecords, readBytes: what an earlier route has read and not settled, and this one will read again
}

// counts are in source records and source bytes, of this run.
type counts struct {
	readRecords, readBytes           int64
	delivered, deliveredBytes        int64
	dead, dropped                    int64
	settledBatches, finishedPartials int64
	settledBytes                     int64 // raw bytes of whatever has met its end
}

// unsettled is what was read and has met no end yet.
func (c *counts) unsettled() int64 { return c.readRecords - c.delivered - c.dead - c.dropped }

// partition is one partition's account.
type partition struct {
	part     stream.Partition
	ledger   *ledger.Ledger
	keys     []string // the partition's id, as an order key
	sealed   bool
	sealedAt stream.Position
	finished bool // the source was told
	handed   bool // something of it was handed out in this run
	dirty    bool
	stood    time.Duration // since when, while it is pending: its watermark moved, or what is above it was read

	assignment assignment // of a partition that a broker has assigned
}

// saving is what one checkpoint entry holds.
type saving struct {
	marks    []stream.Mark
	places   map[string]string
	bytes    int64              // that need not count against the replay bound once it is written
	finished []stream.Partition // sealed and wholly settled, not yet told to the source
}

func newBooks(resume func(string) (stream.Mark, bool)) *books {
	return &books{
		parts: make(map[string]*partition), places: make(map[string]string), pending: make(map[*partition]struct{}), resume: resume,
	}
}

// goOn makes these the books of the route that follows on one with the accounts c. What that one
// had read and not settled goes on to count as read; it is not counted again when it is read again.
func (k *books) goOn(c *counts) {
	k.counts = *c
	k.owed = counts{readRecords: c.unsettled(), readBytes: max(0, c.readBytes-c.settledBytes)}
}

// forgive is for the end of the data: what was owed and did not come is no longer there, so it was
// not read.
func (k *books) forgive() {
	k.counts.readRecords -= k.owed.readRecords
	k.counts.readBytes -= k.owed.readBytes
	k.owed = counts{}
}

// open takes what a reader has put into b into the accounts.
func (k *books) open(b *stream.Batch) error {
	if k.assigned != nil {
		if err := k.accept(b); err != nil {
			return err
		}
	}
	records, bytes := int64(b.Origins), b.RawBytes()-int64(b.Added)
	again := counts{readRecords: min(k.owed.readRecords, records), readBytes: min(k.owed.readBytes, bytes)}
	k.owed.readRecords -= again.readRecords
	k.owed.readBytes -= again.readBytes
	k.counts.readRecords += records - again.readRecords
	k.counts.readBytes += bytes - again.readBytes
	for i := range b.Spans {
		span := &b.Spans[i]
		p, err := k.partition(span.Part)
		if err != nil {
			return err
		}
		if span.From != span.To {
			p.handed = true
			if err := p.ledger.Open(span.Range); err != nil {
				return fmt.Errorf("partition %q: the source handed out a span that does not follow: %w", span.Part.Name, err)
			}
			if p.ledger.Pending() == 1 {
				p.stood = k.now
				k.pending[p] = struct{}{}
			}
		}
		if span.Last {
			p.sealed, p.sealedAt = true, span.To
		} else if p.sealed && span.To.Compare(p.sealedAt) > 0 {
			p.sealed, p.finished = false, false // it grew after all
		}
	}
	return nil
}

func (k *books) partition(part *stream.Partition) (*partition, error) {
	if p, ok := k.parts[part.ID]; ok {
		if p.part.Name != part.Name {
			p.part.Name = part.Name
			k.touch(p)
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
		k.met = append(k.met, p)
	}
	if !known || mark.Part.Name != part.Name {
		k.touch(p)
	}
	return p, nil
}

// meet returns the marks of the partitions that have been met since the last meet.
func (k *books) meet() []stream.Mark {
	marks := make([]stream.Mark, 0, len(k.met))
	for _, p := range k.met {
		marks = append(marks, k.mark(p))
	}
	clear(k.met)
	k.met = k.met[:0]
	return marks
}

// fresh says whether nothing of b's partitions was settled before this run. What a kill has left of
// a batch may be its refused records alone; so such a batch does not show that the config is wrong.
func (k *books) fresh(b *stream.Batch) bool {
	for i := range b.Spans {
		mark, _ := k.resume(b.Spans[i].Part.ID)
		if mark.Watermark != (stream.Position{}) || len(mark.Above) > 0 {
			return false
		}
	}
	return true
}

// resumesBelow notes whether anything above b, the first batch of a run, was settled before: then b
// may be what a kill has left of one.
func (k *books) resumesBelow(b *stream.Batch) {
	k.remnant = slices.ContainsFunc(b.Spans, func(s stream.Span) bool {
		mark, _ := k.resume(s.Part.ID)
		return len(mark.Above) > 0
	})
}

// verdict returns the error of a finite run that delivered nothing and dead-lettered at least one
// record, however few they were. A run that resumes below settled ranges may have been left nothing
// but refused records, and is not judged.
func (k *books) verdict() error {
	if k.remnant || k.counts.delivered > 0 || k.counts.dead == 0 {
		return nil
	}
	return fmt.Errorf("no record was delivered and %d became dead letters; look at their reasons with penstock dead list", k.counts.dead)
}

func (k *books) touch(p *partition) {
	if !p.dirty {
		p.dirty = true
		k.dirty = append(k.dirty, p)
	}
}

// ending is how a batch has met its end.
type ending struct {
	lane, place string
	buried      bool // its records are dead letters
	unsent      bool // no worker had it. The sender, which holds the replay bound, has never heard of it: it must not hear that it is saved
}

// settle closes b's spans and counts its records: kept ones as delivered, or as dead when they were
// buried.
func (k *books) settle(b *stream.Batch, end ending) (delivered, dead, dropped int64, err error) {
	late := k.assigned != nil && k.settleAssigned(b, end)
	for i := range b.Spans {
		if late {
			break
		}
		span := &b.Spans[i]
		p := k.parts[span.Part.ID]
		if p == nil && k.waiting != nil { // it waited, and its account was closed meanwhile
			if p, err = k.partition(span.Part); err != nil {
				return 0, 0, 0, err
			}
		}
		if p == nil && span.From == span.To { // a seal alone: the account was closed meanwhile
			if _, known := k.resume(span.Part.ID); !known {
				continue // it was forgotten
			}
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
		k.touch(p)
	}
	delivered, dead, dropped = tally(b, end.buried)
	k.counts.delivered += delivered
	k.counts.dead += dead
	k.counts.dropped += dropped
	if !end.buried {
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

// watermarkAge is for how long the oldest watermark with unsettled data above it has stood; 0:
// there is none.
func (k *books) watermarkAge(now time.Duration) (age time.Duration) {
	for p := range k.pending {
		age = max(age, now-p.stood)
	}
	return age
}

// tally counts the origins of b by what became of them: delivered if any record made from one was,
// else dead if any is, else dropped.
func tally(b *stream.Batch, buried bool) (delivered, dead, dropped int64) {
	if len(b.Records) == 0 || b.Untouched() {
		if buried {
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
		case kept && !buried:
			delivered++
		case kept || died:
			dead++
		default:
			dropped++
		}
	}
	return delivered, dead, dropped
}

// take returns what the checkpoint has to learn, and forgets it. What it returns must be given back
// by restore when it was not written.
func (k *books) take() saving {
	s := saving{bytes: k.unsavedBytes}
	k.unsavedBytes = 0
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

// restore takes back what take has given and nobody could write. What has settled since is newer.
func (k *books) restore(s saving) {
	if k.assigned != nil {
		k.assigned.freed += s.bytes
	} else {
		k.unsavedBytes += s.bytes
	}
	for i := range s.marks {
		if p := k.parts[s.marks[i].Part.ID]; p != nil {
			k.touch(p)
		}
	}
	for lane, place := range s.places {
		if _, newer := k.places[lane]; !newer {
			k.places[lane] = place
		}
	}
}

func (k *books) done(p *partition) bool {
	watermark, above := p.ledger.Mark()
	return p.sealed && !k.waits(p.part.ID) && len(above) == 0 && watermark.Compare(p.sealedAt) >= 0
}

func (k *books) mark(p *partition) stream.Mark {
	watermark, above := p.ledger.Mark()
	return stream.Mark{
		Part: p.part, Watermark: watermark, Above: above, Finished: p.finished, Waiting: k.waits(p.part.ID),
		Assignment: p.assignment.number,
	}
}

// finish notes that the source has finished a partition; false when it has grown since.
func (k *books) finish(id string) bool {
	p := k.parts[id]
	if p == nil || !k.done(p) {
		return false
	}
	p.finished = true
	k.counts.finishedPartials++
	k.touch(p)
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
