package intake

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// progress is the part of an [Intake]'s data that one route has settled (delivered, dead-lettered
// or dropped). The mutex of the Intake guards it.
type progress struct {
	settled  // in the partition of the intake
	requests requests
	cuts     readers.Cuts
	draining bool
	withdraw func()  // OpenOptions.Withdraw; may be nil
	reader   *reader // of the current run of the route
}

// of returns the route's progress in the partition of s. An identified request is a partition of
// its own. All other submissions are in the partition of the intake.
func (p *progress) of(s *Submission) *settled {
	if s.part == &s.in.part {
		return &p.settled
	}
	return p.requests.of(s.part.ID)
}

// covers reports whether the route has settled all of s.
func (p *progress) covers(s *Submission) bool {
	return p.of(s).covers(s.position(s.from), s.position(s.to()))
}

// settled is the progress of a route in one partition: the settled positions.
type settled struct {
	watermark int64
	above     []stream.Range
}

// covers reports whether all positions from from to to are settled.
func (p *settled) covers(from, to int64) bool {
	from = max(from, p.watermark)
	return to <= p.watermark || slices.ContainsFunc(p.above, func(r stream.Range) bool {
		return r.From.Num <= from && to <= r.To.Num
	})
}

// note replaces the progress by that of m, unless the watermark of m is lower: then m is older.
func (p *settled) note(m stream.Mark) {
	if m.Watermark.Num >= p.watermark { // ignore an older mark
		p.watermark, p.above = m.Watermark.Num, slices.Clone(m.Above)
	}
}

// in converts the settled ranges of p to places, and returns the parts of them within s. A place is
// an offset in the bytes of all submissions, in the order in which they were read. A position is an
// offset in one partition. They differ because each identified request is a partition of its own,
// with positions from 0. Example: if a request begins at place 500, its position 20 is the place
// 520.
func (p *settled) in(s *Submission) (ranges []stream.Range) {
	add := func(from, to int64) {
		from, to = max(from+s.shift, s.from), min(to+s.shift, s.to())
		if from < to {
			var r stream.Range
			r.From.Num, r.To.Num = from, to
			ranges = append(ranges, r)
		}
	}
	add(0, p.watermark)
	for _, r := range p.above {
		add(r.From.Num, r.To.Num)
	}
	return ranges
}

// reader reads for one route. Settled, Commit, Deleted and Drain may be called concurrently with
// Read.
type reader struct {
	in       *Intake
	progress *progress
	linger   time.Duration
	gone     []string // partitions of earlier instances, until Deleted; guarded by in.mu
	objects  Objects

	readers.Cursor       // in places
	main           int64 // position in the partition of the intake
	// ranges of the intake's partition that the route had settled when the reader was opened
	passed  []stream.Range
	known   int64   // Above has the ranges of all submissions below this place
	ends    []int32 // ends of the records in the batch, once one of them is odd
	odd     bool
	awaited bool // a sender waits for data in the batch
}

var (
	_ stream.Source            = (*Intake)(nil)
	_ stream.SettledReader     = (*reader)(nil)
	_ stream.DrainingReader    = (*reader)(nil)
	_ stream.PartitionTracker  = (*reader)(nil)
	_ stream.Estimator         = (*reader)(nil)
	_ stream.WithdrawingReader = (*reader)(nil)
)

// Open implements stream.Source.
func (i *Intake) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{in: i, linger: o.Linger}
	var earlier requests
	if o.Known != nil {
		for m := range o.Known {
			switch {
			case stream.IsRequest(m.Part.ID):
				earlier.note(m)
			case strings.HasPrefix(m.Part.ID, partitionPrefix) && m.Part.ID != i.part.ID:
				r.gone = append(r.gone, m.Part.ID)
			}
		}
	}
	mark, known := o.Resume(i.part.ID)
	r.main, r.passed = mark.Watermark.Num, slices.Clone(mark.Above)
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
	if o.Known != nil {
		earlier.sort()
		p.requests = earlier
	}
	p.draining, p.withdraw, p.reader = false, o.Withdraw, r
	r.progress = p
	r.At = i.end
	if len(i.log) > 0 {
		r.At = i.log[0].from
	}
	for _, s := range i.log {
		s.mayBeSent = true
	}
	r.known = r.At
	i.checkDraining()
	return r, nil
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	cursor, main, passed, known := r.Cursor, r.main, r.passed, r.known
	r.ends, r.odd, r.awaited = r.ends[:0], false, false
	err := readers.Collect(ctx, b, r.linger, func() (bool, <-chan struct{}, error) {
		return r.fill(b)
	})
	switch {
	case err != nil && err != io.EOF:
		r.in.mu.Lock()
		defer r.in.mu.Unlock()
		r.Cursor, r.main, r.passed, r.known = cursor, main, passed, known // the batch is dropped
	case len(b.Spans) > 0:
		r.finish(b)
	}
	return err
}

// finish completes the batch. It records the place at which the batch ends (an offset in the bytes
// of all submissions), so that the route ends a batch at the same place after a restart. If records
// are JSON objects, finish adds their fields.
func (r *reader) finish(b *stream.Batch) {
	r.in.mu.Lock()
	r.progress.cuts.Add(r.At)
	r.in.mu.Unlock()
	if b.Origins == 0 {
		return
	}
	if r.odd {
		start, span, before := 0, 0, 0 // before is the end of the preceding span
		for _, end := range r.ends {
			for int(end) > before+b.Spans[span].Bytes {
				before += b.Spans[span].Bytes
				span++
			}
			at := stream.Position{Num: b.Spans[span].From.Num + int64(int(end)-before)}
			b.Records = append(b.Records, stream.Record{
				Off: uint32(start), Len: uint32(int(end) - 1 - start),
				Span: uint32(span), Origin: at,
			})
			start = int(end)
		}
	}
	if r.in.o.Objects {
		r.objects.Set(b)
	}
}

// fill appends available data to b. full reports whether b should be sent now. If not, changed is
// closed when more data may be available. The error is io.EOF if no more data will follow.
func (r *reader) fill(b *stream.Batch) (full bool, changed <-chan struct{}, err error) {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	for !r.isFull(b) {
		s := i.next(r.At)
		if s == nil {
			r.At = i.end // all routes have settled the data after the last submission in the log
			break
		}
		r.learn(s)
		r.At = max(r.At, s.from) // all routes have settled the data in between
		if r.IsSettled() {
			if len(b.Spans) > 0 {
				return true, i.changed, nil
			}
			r.skip(s)
			continue
		}
		border := r.Border(r.progress.cuts)
		if from := s.position(r.At); s.part == &i.part && from > r.main {
			if len(b.Spans) > 0 || r.follow(b, from) {
				return true, i.changed, nil
			}
		}
		if len(b.Spans) > 0 && r.progress.withdraw != nil && r.At == s.from && s.exceeds(b) {
			return true, i.changed, nil
		}
		r.take(b, s, border)
		r.awaited = r.awaited || s.awaited
		if r.At == border {
			return true, i.changed, nil
		}
	}
	if more := r.At < i.end || len(i.queue) > 0; !more && r.isLast() {
		return false, nil, io.EOF
	}
	return r.isFull(b) || r.awaited, i.changed, nil
}

// isFull reports whether b has reached one of its limits.
func (r *reader) isFull(b *stream.Batch) bool {
	most := r.in.o.MaxSpans
	return b.Full() || most > 0 && len(b.Spans) >= most
}

// isLast reports whether this route gets no more submissions. If this route drains and some other
// route does not, later submissions go only to the other routes.
func (r *reader) isLast() bool {
	i := r.in
	if i.ended {
		return true
	}
	return r.progress.draining && (i.o.Refuse || i.producers == 0 || !i.allDraining())
}

// next returns the first submission that ends after the given place, or nil. A place is an offset
// in the bytes of all submissions, in the order in which they were read. If no route has read the
// submission yet, next moves it from the queue to the log and assigns its place.
func (i *Intake) next(at int64) *Submission {
	n := sort.Search(len(i.log), func(n int) bool { return i.log[n].to() > at })
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
	s.shift = s.from
	if s.part == &i.part {
		s.shift = s.from - i.mainEnd
		i.mainEnd = s.position(s.to())
	}
	s.mainTo = i.mainEnd
	i.log = append(i.log, s)
	if s.onRead != nil {
		s.onRead()
	}
	return s
}

// learn adds to r.Above the parts of s that the route has already settled, for example before a
// restart. The reader skips the ranges in r.Above. learn does this once for each submission.
func (r *reader) learn(s *Submission) {
	if s.to() <= r.known {
		return
	}
	r.known = s.to()
	if ranges := r.progress.of(s).in(s); len(ranges) > 0 {
		r.Above = append(r.Above, ranges...)
		r.in.release() // an earlier run may have settled all of s
	}
}

// follow moves r.main, the position in the intake's partition, up to the given position. It skips
// the ranges that were settled when the reader was opened. Other positions may remain before the
// given one, such as those of withdrawn data. They have no data to send, but the ledger of a sink
// needs a span to advance beyond them. So follow adds a span without data to b, and returns true.
// The span ends at the next settled range, or at the given position.
func (r *reader) follow(b *stream.Batch, to int64) bool {
	for len(r.passed) > 0 && r.passed[0].From.Num <= r.main {
		r.main = max(r.main, r.passed[0].To.Num)
		r.passed = r.passed[1:]
	}
	if r.main >= to {
		return false
	}
	if len(r.passed) > 0 {
		to = min(to, r.passed[0].From.Num)
	}
	span := stream.Span{Part: &r.in.part}
	span.From.Num, span.To.Num = r.main, to
	b.Spans = append(b.Spans, span)
	r.main = to
	return true
}

// skip moves the reader past a range of s that the route has already settled.
func (r *reader) skip(s *Submission) {
	r.Skip()
	if s.part == &r.in.part {
		r.main = s.position(r.At)
	}
}

// cover extends the last span of the batch by n bytes of s, and moves the reader past them.
func (r *reader) cover(b *stream.Batch, s *Submission, n int) {
	from := stream.Position{Num: s.position(r.At)}
	if k := len(b.Spans); k == 0 || b.Spans[k-1].Part != s.part {
		b.Spans = append(b.Spans, stream.Span{Part: s.part, Range: stream.Range{From: from},
			Verbatim: true})
	}
	span := &b.Spans[len(b.Spans)-1]
	span.Verbatim = span.Verbatim && s.records.verbatim
	span.To.Num = from.Num + int64(n)
	span.Bytes += n
	r.At += int64(n)
	if s.part == &r.in.part {
		r.main = span.To.Num
	}
}

// take appends records of s to b. It stops when b is full, or at border, an offset in the bytes of
// all submissions.
func (r *reader) take(b *stream.Batch, s *Submission, border int64) {
	data := s.records.data
	start := int(r.At - s.from)
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
	r.cover(b, s, len(b.Data)-size)
	s.mayBeSent = s.mayBeSent || len(r.in.routes) > 1
}

// beginOdd makes r.ends the list of the ends of all records in b, and enters the lines that b
// already contains. A batch of lines needs no such list. beginOdd is called before the first
// records are added to b that are not all lines.
func (r *reader) beginOdd(b *stream.Batch) {
	if !r.odd {
		r.odd = true
		r.ends = appendEnds(r.ends[:0], b.Data, 0)
	}
}

// appendEnds appends the offset of the end of each line to ends. The first line begins at offset
// base.
func appendEnds(ends []int32, lines []byte, base int) []int32 {
	for at := 0; at < len(lines); {
		at += bytes.IndexByte(lines[at:], '\n') + 1
		ends = append(ends, int32(base+at))
	}
	return ends
}

// cut selects the first lines for a batch. It returns the offset of their end and their number. It
// stops after the line that reaches size bytes or the given number of records.
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

// Remaining implements stream.Estimator.
func (r *reader) Remaining() int64 {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	left := i.end - r.At
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
		switch id := marks[k].Part.ID; {
		case id == i.part.ID:
			r.progress.note(marks[k])
		case stream.IsRequest(id):
			r.progress.requests.note(marks[k])
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

// Metadata implements stream.PartitionTracker. It returns no metadata, because an intake needs
// none: its data cannot be read again.
func (r *reader) Metadata(stream.Mark) string { return "" }

// Deleted implements stream.PartitionTracker. It returns the partitions of earlier intakes, most of
// which belonged to earlier processes. It also returns the partitions of identified requests that
// are no longer remembered.
func (r *reader) Deleted() []string {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	o := &r.in.o
	before := time.Now().Add(-o.Remember)
	gone := r.progress.requests.expire(r.gone, before, o.MaxRequests, r.in.working)
	r.gone = nil
	return gone
}

// Close implements stream.Reader. Unsettled data stays in the intake.
func (r *reader) Close() error {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	if r.progress.reader == r {
		r.progress.reader, r.progress.withdraw = nil, nil
	}
	return nil
}

// release removes the submissions that every route of the pipeline has settled, and frees their
// bytes. It also removes from the intake the progress of routes that are no longer in the pipeline.
// The caller holds i.mu.
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
			settled = settled && p.covers(s)
		}
		if !settled {
			kept = append(kept, s)
			continue
		}
		i.finish(s)
	}
	clear(i.log[len(kept):])
	i.log = kept
	start := i.end
	if len(kept) > 0 {
		start = kept[0].from
	}
	for _, p := range present {
		p.cuts.Trim(start)
	}
}
