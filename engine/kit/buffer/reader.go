package buffer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// reader reads the stored data for one route. Commit, Deleted and Drain may be called concurrently
// with Read.
type reader struct {
	b       *Buffer
	p       *progress // guarded by b.mu
	linger  time.Duration
	gone    []string // partitions of other buffers, until Deleted returns them; guarded by b.mu
	objects intake.Objects

	readers.Cursor
	begin   int64     // for a route without progress: start of the store's first envelope; else 0
	current *envelope // the envelope that contains the position At; nil until it is loaded
	before  *envelope // the predecessor of current, if it was read

	skipping span // the last range of skipped envelopes that was logged
}

var (
	_ stream.Source           = (*Buffer)(nil)
	_ stream.DrainingReader   = (*reader)(nil)
	_ stream.PartitionTracker = (*reader)(nil)
)

// Open implements stream.Source. It waits for the recovery of the store.
func (b *Buffer) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	select {
	case <-b.opened:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		return nil, b.failed
	}
	r := &reader{b: b, linger: o.Linger, begin: positionOf(b.first, 0)}
	if o.Known != nil {
		for m := range o.Known {
			if strings.HasPrefix(m.Part.ID, partitionPrefix) && m.Part.ID != b.part.ID {
				r.gone = append(r.gone, m.Part.ID)
				const text = "%s: this is another buffer than before: unsettled data of the other is lost"
				b.host.Fault(fmt.Errorf(text, b.name))
			}
		}
	}
	p := b.routes[o.Route]
	if p == nil {
		p = new(progress)
		b.routes[o.Route] = p
	}
	if mark, known := o.Resume(b.part.ID); known {
		if number, _ := placeOf(mark.Watermark.Num); number > b.last+1 {
			const text = "%s: the route has settled data up to envelope %d, but the store ends at %d: it lost data"
			return nil, fmt.Errorf(text, b.name, number-1, b.last)
		}
		r.At, r.Above = max(r.At, mark.Watermark.Num), slices.Clone(mark.Above)
		if r.At > 0 {
			r.begin = 0 // nothing above its progress was deleted
		}
		p.committed = max(p.committed, mark.Watermark.Num)
	}
	p.known = true
	p.committed = max(p.committed, positionOf(b.first, 0))
	p.draining = false
	r.p = p
	b.notify()
	return r, nil
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, batch *stream.Batch) error {
	before := r.Cursor
	err := readers.Collect(ctx, batch, r.linger, func() (bool, <-chan struct{}, error) {
		ended, changed := r.ended()
		if ended && len(batch.Spans) == 0 {
			return false, nil, io.EOF
		}
		full, err := r.fill(ctx, batch)
		if err != nil && len(batch.Spans) > 0 {
			return true, changed, nil // the next call meets the error again
		}
		return full || ended, changed, err
	})
	switch {
	case err == nil:
		r.finish(batch)
	case ctx.Err() != nil:
		r.Cursor, r.current, r.before = before, nil, nil // the batch is dropped
	}
	return err
}

// ended reports whether the reader ends now, because its route drains (reads no further data). If
// all routes drain, the reader first waits until the data in the intake has been moved to the
// store. The routes read the stored data after the next start. The channel is closed when the
// result may have changed.
func (r *reader) ended() (bool, <-chan struct{}) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.p.draining && (b.emptied || !b.allDraining()), b.changed
}

// finish completes the batch. It records the position at which the batch ends, so that the route
// ends a batch at the same position after a restart. If records are JSON objects, finish adds their
// fields.
func (r *reader) finish(batch *stream.Batch) {
	r.b.mu.Lock()
	r.p.cuts.Add(r.At)
	r.b.mu.Unlock()
	if r.b.objects && batch.Origins > 0 {
		r.objects.Set(batch)
	}
}

// fill appends stored records to the batch. full reports whether the batch has to end.
func (r *reader) fill(ctx context.Context, batch *stream.Batch) (full bool, err error) {
	for !batch.Full() {
		if r.IsSettled() {
			if len(batch.Spans) > 0 {
				return true, nil
			}
			r.Skip()
			r.current = nil
			continue
		}
		border := r.border()
		number, offset := placeOf(r.At)
		if number > r.b.stored() {
			return false, nil
		}
		if r.At < r.begin {
			if len(batch.Spans) == 0 { // an empty span advances the route's progress
				r.Cover(batch, &r.b.part, min(border, r.begin))
			}
			return true, nil
		}
		if s, ok := skipOf(r.b.skips, number); ok {
			r.b.host.Count("buffer_skipped", 1)
			if s != r.skipping {
				r.skipping = s
				r.b.host.Log().Error("envelopes skipped by an operator's decision", "first", number,
					"last", s.last)
			}
			r.Cover(batch, &r.b.part, min(border, positionOf(number+1, 0)))
			r.current, r.before = nil, nil
		} else if err := r.load(ctx, number); err != nil {
			return false, err
		} else {
			r.take(batch, offset, border)
		}
		if r.At == border {
			return true, nil
		}
	}
	return true, nil
}

// stored returns the number of the last envelope in the store, up to which routes can read.
func (b *Buffer) stored() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// lostFrom returns the number of the last envelope of a gap, a range of missing envelopes that
// begins with the given number. A gap at the beginning of the store ends before the first stored
// envelope. The length of any other gap is unknown, and lostFrom returns the given number.
func (b *Buffer) lostFrom(number uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(number, b.first-1)
}

// border returns the next position after r.At at which a batch has to end: the end of an earlier
// batch, or the start of a range that the route has already delivered, dead-lettered or dropped.
func (r *reader) border() int64 {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.Border(r.p.cuts)
}

// corruptError means that a route has stopped at a missing or corrupt envelope.
type corruptError struct {
	name   string
	number uint64
	last   uint64 // all envelopes from number to last are missing
	err    error
}

// Error names the envelopes and the remedy.
func (e *corruptError) Error() string {
	if e.last > e.number {
		const text = "%s: the buffer has lost envelopes %d-%[3]d, which the route has not " +
			"settled; restore them from a backup, or stop the run and give their records up with " +
			"`penstock buffer skip CONFIG %[2]d-%[3]d`"
		return fmt.Sprintf(text, e.name, e.number, e.last)
	}
	const text = "%s: envelope %d of the buffer is corrupt; restore it from a backup, or stop the run " +
		"and give its records up with `penstock buffer skip CONFIG %d`: %v"
	return fmt.Sprintf(text, e.name, e.number, e.number, e.err)
}

// Unwrap returns the reason.
func (e *corruptError) Unwrap() error { return e.err }

// load sets r.current to the envelope with the given number. It checks the envelope's checksum, and
// that the envelope is of this buffer. If r.before is the preceding envelope, load also checks that
// the new envelope contains the checksum of r.before.
func (r *reader) load(ctx context.Context, number uint64) error {
	if r.current != nil && r.current.number == number {
		return nil
	}
	b := r.b
	e, err := load(ctx, b.store, number)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case isDown(err):
		return fmt.Errorf("%s: %w", b.name, err)
	case err != nil:
	case partitionPrefix+e.id != b.part.ID:
		err = errors.New("it is of another buffer")
	case r.before != nil && r.before.number == number-1 && r.before.sum != e.previous:
		err = chainError(e, r.before)
	}
	if err != nil {
		b.host.Count("buffer_corrupt", 1)
		return &corruptError{b.name, number, b.lostFrom(number), err}
	}
	r.current = e
	return nil
}

// take appends records of the current envelope to the batch until the batch is full, the envelope
// ends, or the position reaches border.
func (r *reader) take(batch *stream.Batch, offset int, border int64) {
	e, begin := r.current, offset
	for offset < len(e.data) && !batch.Full() && positionOf(e.number, offset) < border {
		end := e.next(offset)
		start := len(batch.Data)
		batch.Data = append(batch.Data, e.data[offset:end]...)
		batch.Origins++
		batch.Records = append(batch.Records, stream.Record{
			Off: uint32(start), Len: uint32(end - offset - 1), Origin: stream.Position{Num: e.after(end)},
		})
		offset = end
	}
	if offset == len(e.data) {
		r.before, r.current = e, nil
	}
	r.Cover(batch, &r.b.part, e.after(offset))
	if len(e.keys) > 0 {
		span := &batch.Spans[0]
		span.Identities = e.identities(span.Identities, begin, offset)
	}
}

// after returns the position after the record that ends at the given offset.
func (e *envelope) after(end int) int64 {
	if end == len(e.data) {
		return positionOf(e.number+1, 0)
	}
	return positionOf(e.number, end)
}

// Commit implements stream.Reader. It records the route's durable progress, which decides which
// envelopes are deleted.
func (r *reader) Commit(_ context.Context, marks []stream.Mark) error {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range marks {
		if marks[i].Part.ID == b.part.ID && marks[i].Watermark.Num > r.p.committed {
			r.p.committed = marks[i].Watermark.Num
			r.p.cuts.Trim(r.p.committed)
		}
	}
	return nil
}

// Drain implements stream.DrainingReader.
func (r *reader) Drain() {
	b := r.b
	b.mu.Lock()
	r.p.draining = true
	drain := b.draining
	all := b.allDraining()
	b.notify()
	b.mu.Unlock()
	if all && drain != nil {
		drain()
	}
}

// allDraining reports whether all routes that have opened drain. It returns false if no route has
// opened. The caller holds b.mu.
func (b *Buffer) allDraining() bool {
	some := false
	for _, name := range b.host.Routes() {
		p := b.routes[name]
		if p != nil && !p.draining {
			return false
		}
		some = some || p != nil
	}
	return some
}

// Metadata implements stream.PartitionTracker.
func (r *reader) Metadata(stream.Mark) string { return "" }

// Deleted implements stream.PartitionTracker. It returns the partitions of other buffers.
func (r *reader) Deleted() []string {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	gone := r.gone
	r.gone = nil
	return gone
}

// Close implements stream.Reader.
func (r *reader) Close() error { return nil }
