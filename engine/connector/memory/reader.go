package memory

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// instance is a Source during one run of its pipeline.
type instance struct {
	*Source
	host stream.SourceHost
}

// Open implements stream.Source.
func (i *instance) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	s := i.Source
	r := &reader{source: s, once: o.Once, linger: o.Linger}
	if o.Known != nil {
		for m := range o.Known {
			if strings.HasPrefix(m.Part.ID, partitionPrefix) && m.Part.ID != s.part.ID {
				r.gone = append(r.gone, m.Part.ID)
			}
		}
	}
	mark, known := o.Resume(s.part.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if r.progress, err = s.attach(i.host, o.Route); err != nil {
		return nil, err
	}
	r.at, r.above = mark.Watermark.Num, slices.Clone(mark.Above)
	if lost := s.buffer.start - r.at; known && lost > 0 {
		// the route lost its checkpoint, or was not in the pipeline when the records were freed
		i.host.Log().Error("records lost: freed before the route returned", "route", o.Route, "bytes", lost)
	}
	if !mark.Waiting { // otherwise Commit sets it
		r.progress.settled = max(r.progress.settled, r.at)
	}
	r.progress.trim()
	s.release()
	return r, nil
}

// trim drops settled cuts.
func (p *progress) trim() {
	n, _ := slices.BinarySearch(p.cuts, p.settled+1)
	p.cuts = slices.Delete(p.cuts, 0, n)
}

// next returns the first cut between at and until, or until if there is none.
func (p *progress) next(at, until int64) int64 {
	if n, _ := slices.BinarySearch(p.cuts, at+1); n < len(p.cuts) {
		return min(until, p.cuts[n])
	}
	return until
}

// cut records that a batch ends at a position.
func (p *progress) cut(at int64) {
	if n := len(p.cuts); n == 0 || p.cuts[n-1] < at {
		p.cuts = append(p.cuts, at)
	}
}

// reader reads for one route.
type reader struct {
	source   *Source
	progress *progress // guarded by the source's mutex
	once     bool
	linger   time.Duration
	gone     []string // partitions of earlier processes, until Forget; guarded by the source's mutex

	at    int64          // position of the last record read
	above []stream.Range // settled ranges above at
	ends  []int          // reused by fill
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	at, above := r.at, r.above
	var timeout <-chan time.Time
	for {
		if ctx.Err() != nil {
			r.source.mu.Lock()
			r.at, r.above = at, above // drop the batch
			r.source.mu.Unlock()
			return context.Cause(ctx)
		}
		full, ended, changed := r.fill(b)
		switch {
		case full:
			return nil
		case ended:
			return io.EOF
		case len(b.Spans) > 0 && r.linger <= 0:
			r.cut()
			return nil
		case len(b.Spans) > 0 && timeout == nil:
			timer := time.NewTimer(r.linger)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			r.cut()
			return nil
		case <-ctx.Done():
		}
	}
}

// fill appends available records to b. full means that b can take no more, ended that the source
// has ended.
func (r *reader) fill(b *stream.Batch) (full, ended bool, changed <-chan struct{}) {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b.Spans) == 0 {
		r.skip()
	}
	border := s.buffer.end
	if len(r.above) > 0 {
		border = min(border, r.above[0].From.Num)
	}
	if r.at < s.buffer.start { // freed: the ledger gets an empty span
		r.cover(b, min(border, s.buffer.start))
		return true, false, nil
	}
	size := len(b.Data)
	to, ends, odd := s.buffer.read(b, r.at, r.progress.next(r.at, border), r.ends[:0])
	r.ends = ends
	if to > r.at {
		r.extend(b, size, odd)
	}
	ended = to == s.buffer.end && (s.closed || r.once)
	full = len(b.Spans) > 0 && (b.Full() || to == border && border < s.buffer.end || r.isCut(to))
	if full || ended && len(b.Spans) > 0 {
		r.progress.cut(to)
	}
	return full && !ended, ended, s.changes()
}

// cover extends the batch's span to a position, and moves the reader there.
func (r *reader) cover(b *stream.Batch, to int64) {
	if len(b.Spans) == 0 {
		from := stream.Position{Num: r.at}
		b.Spans = append(b.Spans, stream.Span{Part: &r.source.part, Range: stream.Range{From: from}})
	}
	span := &b.Spans[0]
	span.To.Num, span.Bytes = to, len(b.Data)
	r.at = to
}

// isCut reports whether an earlier batch ended at the position.
func (r *reader) isCut(at int64) bool {
	_, found := slices.BinarySearch(r.progress.cuts, at)
	return found
}

// cut records that a batch ends at the reader's position.
func (r *reader) cut() {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.progress.cut(r.at)
}

// skip moves the reader past settled ranges.
func (r *reader) skip() {
	for len(r.above) > 0 && r.above[0].From.Num <= r.at {
		r.at = max(r.at, r.above[0].To.Num)
		r.above = r.above[1:]
	}
}

// extend adds the records that fill appended after the first size bytes of b.Data to the batch's
// span.
func (r *reader) extend(b *stream.Batch, size int, odd bool) {
	if odd && size > 0 {
		b.Split() // the records before are lines
	}
	if odd || len(b.Records) > 0 {
		off := size
		for _, end := range r.ends {
			b.Records = append(b.Records, stream.Record{
				Off: uint32(off), Len: uint32(end - 1 - off), Origin: stream.Position{Num: r.at + int64(end-size)},
			})
			off = end
		}
	}
	r.cover(b, r.at+int64(len(b.Data)-size))
}

// Remaining implements stream.Estimator.
func (r *reader) Remaining() int64 {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	return r.source.buffer.end - r.at
}

// Commit implements stream.Reader. It frees records that all routes have settled.
func (r *reader) Commit(_ context.Context, marks []stream.Mark) error {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range marks {
		if m.Part.ID == s.part.ID {
			r.progress.settled = max(r.progress.settled, m.Watermark.Num)
		}
	}
	r.progress.trim()
	s.release()
	return nil
}

// Metadata implements stream.PartitionTracker. There is no metadata.
func (r *reader) Metadata(stream.Mark) string { return "" }

// Deleted implements stream.PartitionTracker. It returns the partitions of earlier processes.
func (r *reader) Deleted() []string {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	gone := r.gone
	r.gone = nil
	return gone
}

// Close implements stream.Reader. Unsettled records stay in the source.
func (r *reader) Close() error { return nil }
