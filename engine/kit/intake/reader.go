package intake

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// progress is what one route has read and settled. It is guarded by the mutex of its Intake.
type progress struct {
	watermark int64
	above     []stream.Range
	cuts      []int64 // ends of batches above the watermark: a route that restarts cuts there again
	draining  bool
}

// covers reports whether the route has settled everything between two positions.
func (p *progress) covers(from, to int64) bool {
	if to <= p.watermark {
		return true
	}
	from = max(from, p.watermark)
	for _, r := range p.above {
		if r.From.Num <= from && to <= r.To.Num {
			return true
		}
	}
	return false
}

// note takes a mark of the route.
func (p *progress) note(m stream.Mark) {
	if m.Watermark.Num < p.watermark {
		return // an older one
	}
	p.watermark, p.above = m.Watermark.Num, slices.Clone(m.Above)
	n, _ := slices.BinarySearch(p.cuts, p.watermark+1)
	p.cuts = slices.Delete(p.cuts, 0, n)
}

// reader reads for one route. Settled, Commit, Forget and Drain are called beside Read.
type reader struct {
	in       *Intake
	progress *progress
	linger   time.Duration
	gone     []string // partitions of earlier instances, until Forget; guarded by in.mu
	objects  objects

	at      int64          // position behind the last record read
	above   []stream.Range // settled, above at
	ends    []int32        // of the records in the batch, once one of them is odd
	odd     bool
	awaited bool // a sender waits for something in the batch
}

var (
	_ stream.Source           = (*Intake)(nil)
	_ stream.SettledReader    = (*reader)(nil)
	_ stream.DrainingReader   = (*reader)(nil)
	_ stream.PartitionTracker = (*reader)(nil)
	_ stream.Estimator        = (*reader)(nil)
)

// Open implements stream.Source.
func (i *Intake) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{in: i, linger: o.Linger}
	if o.Known != nil {
		for m := range o.Known {
			if strings.HasPrefix(m.Part.ID, partitionPrefix) && m.Part.ID != i.part.ID {
				r.gone = append(r.gone, m.Part.ID)
			}
		}
	}
	mark, known := o.Resume(i.part.ID)
	r.at, r.above = mark.Watermark.Num, slices.Clone(mark.Above)
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.routes[o.Route]
	if p == nil {
		p = new(progress)
		i.routes[o.Route] = p
	}
	if known {
		p.note(mark)
	}
	p.draining = false
	r.progress = p
	i.checkDraining()
	return r, nil
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	at, above := r.at, r.above
	r.ends, r.odd, r.awaited = r.ends[:0], false, false
	var timeout <-chan time.Time
	for {
		if ctx.Err() != nil {
			r.at, r.above = at, above // the batch is dropped
			return context.Cause(ctx)
		}
		full, ended, changed := r.fill(b)
		switch {
		case full, len(b.Spans) > 0 && (r.linger <= 0 || r.awaited):
			r.finish(b)
			return nil
		case ended:
			if len(b.Spans) > 0 {
				r.finish(b)
			}
			return io.EOF
		case len(b.Spans) > 0 && timeout == nil:
			timer := time.NewTimer(r.linger)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			r.finish(b)
			return nil
		case <-ctx.Done():
		}
	}
}

// finish ends the batch: it notes the cut and makes records of objects.
func (r *reader) finish(b *stream.Batch) {
	r.in.mu.Lock()
	p := r.progress
	if n := len(p.cuts); n == 0 || p.cuts[n-1] < r.at {
		p.cuts = append(p.cuts, r.at)
	}
	r.in.mu.Unlock()
	if b.Origins == 0 {
		return
	}
	if r.odd {
		start, from := 0, b.Spans[0].From.Num
		for _, end := range r.ends {
			b.Records = append(b.Records, stream.Record{
				Off: uint32(start), Len: uint32(int(end) - 1 - start), Origin: stream.Position{Num: from + int64(end)},
			})
			start = int(end)
		}
	}
	if r.in.o.Objects {
		r.objects.set(b)
	}
}

// fill appends to b as much as is there. full reports that nothing may be added to b, ended that
// nothing follows.
func (r *reader) fill(b *stream.Batch) (full, ended bool, changed <-chan struct{}) {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(b.Spans) == 0 {
		r.skip()
	}
	for !b.Full() {
		s := i.next(r.at)
		if s == nil {
			break
		}
		border := r.border()
		if s.from > r.at { // settled by the others before this route came
			// An empty span lets the ledger follow.
			if len(b.Spans) == 0 {
				r.cover(b, min(border, s.from))
			}
			return true, false, i.changed
		}
		r.take(b, s, border)
		r.awaited = r.awaited || s.awaited
		if r.at == border {
			return true, false, i.changed
		}
	}
	more := r.at < i.end || len(i.queue) > 0
	return len(b.Spans) > 0 && b.Full(), !more && r.isLast(), i.changed
}

// isLast reports whether nothing follows for this route. Data that producers have in hand belongs
// to the routes that stay.
func (r *reader) isLast() bool {
	i := r.in
	if i.ended {
		return true
	}
	return r.progress.draining && (i.o.Refuse || i.producers == 0 || !i.allDraining())
}

// next returns the submission that follows position at. It gives the oldest that no route has read
// its position.
func (i *Intake) next(at int64) *Submission {
	n, _ := slices.BinarySearchFunc(i.log, at, func(s *Submission, at int64) int {
		if s.to() <= at {
			return -1
		}
		return 1
	})
	if n < len(i.log) {
		return i.log[n]
	}
	if len(i.queue) == 0 {
		return nil
	}
	s := i.queue[0]
	i.queue[0] = nil
	i.queue = i.queue[1:]
	s.from = i.end
	i.end = s.to()
	i.log = append(i.log, s)
	return s
}

// border returns the position behind r.at at which a batch has to end.
func (r *reader) border() int64 {
	border := int64(1<<63 - 1)
	if n, _ := slices.BinarySearch(r.progress.cuts, r.at+1); n < len(r.progress.cuts) {
		border = r.progress.cuts[n]
	}
	if len(r.above) > 0 {
		border = min(border, r.above[0].From.Num)
	}
	return border
}

// skip moves over ranges that are settled.
func (r *reader) skip() {
	for len(r.above) > 0 && r.above[0].From.Num <= r.at {
		r.at = max(r.at, r.above[0].To.Num)
		r.above = r.above[1:]
	}
}

// cover makes the batch's span end at a position, and moves there.
func (r *reader) cover(b *stream.Batch, to int64) {
	if len(b.Spans) == 0 {
		from := stream.Position{Num: r.at}
		b.Spans = append(b.Spans, stream.Span{Part: &r.in.part, Range: stream.Range{From: from}})
	}
	span := &b.Spans[0]
	span.To.Num, span.Bytes = to, len(b.Data)
	r.at = to
}

// take appends records of s to b, until b is full or the border is reached.
func (r *reader) take(b *stream.Batch, s *Submission, border int64) {
	data := s.records.data
	start := int(r.at - s.from)
	stop := int(min(int64(len(data)), border-s.from))
	size := len(b.Data)
	if s.records.odd {
		r.beginOdd(b)
		k, _ := slices.BinarySearch(s.records.ends, int32(start+1))
		for stop = start; k < len(s.records.ends) && int64(s.records.ends[k]) <= border-s.from && !b.Full(); k++ {
			end := int(s.records.ends[k])
			b.Data = append(b.Data, data[stop:end]...)
			b.Origins++
			r.ends = append(r.ends, int32(len(b.Data)))
			stop = end
		}
	} else {
		end, count := cut(data[start:stop], b.Limits().Bytes-size, b.Limits().Records-b.Origins)
		if r.odd {
			r.ends = appendEnds(r.ends, data[start:start+end], size)
		}
		b.Data = append(b.Data, data[start:start+end]...)
		b.Origins += count
	}
	r.cover(b, r.at+int64(len(b.Data)-size))
}

// beginOdd notes the ends of the lines that are in the batch.
func (r *reader) beginOdd(b *stream.Batch) {
	if !r.odd {
		r.odd = true
		r.ends = appendEnds(r.ends[:0], b.Data, 0)
	}
}

// appendEnds appends the ends of lines, of which the first begins at offset base.
func appendEnds(ends []int32, lines []byte, base int) []int32 {
	for at := 0; at < len(lines); {
		at += bytes.IndexByte(lines[at:], '\n') + 1
		ends = append(ends, int32(base+at))
	}
	return ends
}

// cut returns the end of the first lines that reach a number of bytes or of records, and the number
// of these lines.
func cut(lines []byte, size, records int) (end, count int) {
	end = len(lines)
	if size < end {
		end = size + bytes.IndexByte(lines[size-1:], '\n')
	}
	if count = bytes.Count(lines[:end], newline); count <= records {
		return end, count
	}
	for end, count = 0, 0; count < records; count++ {
		end += bytes.IndexByte(lines[end:], '\n') + 1
	}
	return end, count
}

// Left implements stream.Estimator.
func (r *reader) Left() int64 {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	left := i.end - r.at
	for _, s := range i.queue {
		left += int64(s.records.Size())
	}
	return left
}

// Settled implements stream.SettledReader.
func (r *reader) Settled(marks []stream.Mark) {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	for k := range marks {
		if marks[k].Part.ID == i.part.ID {
			r.progress.note(marks[k])
		}
	}
	i.release()
}

// Commit implements stream.Reader.
func (r *reader) Commit(_ context.Context, marks []stream.Mark) error {
	r.Settled(marks)
	return nil
}

// Drain implements stream.DrainingReader.
func (r *reader) Drain() {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	r.progress.draining = true
	r.in.checkDraining()
}

// Note implements stream.PartitionTracker. The data cannot be read again, so nothing has to
// recognize it.
func (r *reader) Note(stream.Mark) string { return "" }

// Forget implements stream.PartitionTracker: the partitions of earlier instances.
func (r *reader) Forget() []string {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	gone := r.gone
	r.gone = nil
	return gone
}

// Close implements stream.Reader. Unsettled data stays in the intake.
func (r *reader) Close() error { return nil }

// release ends submissions that every route of the pipeline has settled, and drops the progress of
// routes that have left it. The caller holds i.mu.
func (i *Intake) release() {
	names := i.host.Routes()
	if len(names) == 0 {
		return
	}
	present := make(map[string]*progress, len(names))
	for _, name := range names {
		p := i.routes[name]
		if p == nil {
			return // a route that has not opened yet
		}
		present[name] = p
	}
	i.routes = present
	kept := i.log[:0]
	for _, s := range i.log {
		settled := true
		for _, p := range present {
			settled = settled && p.covers(s.from, s.to())
		}
		if !settled {
			kept = append(kept, s)
			continue
		}
		i.gate.free(s.cost)
		close(s.done)
		s.records = Records{} // a waiter may keep s
	}
	clear(i.log[len(kept):])
	i.log = kept
}
