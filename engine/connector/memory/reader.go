package memory

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// instance is the use of a Source in one run of its pipeline.
type instance struct {
	*Source
	host stream.SourceHost
}

// Open implements stream.Source. It opens a reader for one route.
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
	r.At, r.Above = mark.Watermark.Num, slices.Clone(mark.Above)
	if lost := s.buffer.start - r.At; known && lost > 0 {
		// The route needs records that were freed. Either its checkpoint was replaced by an older
		// one, or it was not in the pipeline when the other routes settled these records.
		i.host.Log().Error("records lost: freed before the route returned", "route", o.Route,
			"bytes", lost)
	}
	if !mark.Waiting { // otherwise the first Commit sets it
		r.progress.settled = max(r.progress.settled, r.At)
	}
	r.progress.cuts.Trim(r.progress.settled)
	s.release()
	return r, nil
}

// reader reads for one route.
type reader struct {
	source   *Source
	progress *progress // guarded by the source's mutex
	once     bool
	linger   time.Duration
	gone     []string // partitions of earlier processes, until Deleted; guarded by the source's mutex

	readers.Cursor
	ends []int // reused by fill
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	before := r.Cursor
	err := readers.Collect(ctx, b, r.linger, func() (bool, <-chan struct{}, error) {
		return r.fill(b)
	})
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	switch {
	case err != nil && err != io.EOF:
		r.Cursor = before // drop the batch
	case len(b.Spans) > 0:
		r.progress.cuts.Add(r.At)
	}
	return err
}

// fill appends the available records to b. full means that b must end now. changed is closed at the
// next change of the source. The error is io.EOF if all records were read, and either the source is
// closed or the reader reads only the existing records (once).
func (r *reader) fill(b *stream.Batch) (full bool, changed <-chan struct{}, err error) {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b.Spans) == 0 && r.IsSettled() {
		r.Skip()
	}
	border := min(s.buffer.end, r.Border(nil))
	if r.At < s.buffer.start { // freed records: an empty span lets the ledger advance
		r.Cover(b, &s.part, min(border, s.buffer.start))
		return true, nil, nil
	}
	size := len(b.Data)
	to, ends, odd := s.buffer.read(b, r.At, min(border, r.Border(r.progress.cuts)), r.ends[:0])
	r.ends = ends
	if to > r.At {
		r.extend(b, size, odd)
	}
	if to == s.buffer.end && (s.closed || r.once) {
		return false, nil, io.EOF
	}
	full = b.Full() || to == border && border < s.buffer.end || r.progress.cuts.Has(to)
	return full, s.changes(), nil
}

// extend updates b after fill has appended records to b.Data. size is the length of b.Data before
// that. extend moves the end of b's span to the last of these records. Usually line ends separate
// the records, and b.Records stays empty. If odd is set, a record may contain a line end. In this
// case, or if b.Records already has records, extend adds the new records to b.Records.
func (r *reader) extend(b *stream.Batch, size int, odd bool) {
	if odd && size > 0 {
		b.Split() // the records before these are lines
	}
	if odd || len(b.Records) > 0 {
		off := size
		for _, end := range r.ends {
			b.Records = append(b.Records, stream.Record{
				Off: uint32(off), Len: uint32(end - 1 - off),
				Origin: stream.Position{Num: r.At + int64(end-size)},
			})
			off = end
		}
	}
	r.Cover(b, &r.source.part, r.At+int64(len(b.Data)-size))
}

// Remaining implements stream.Estimator. It returns the number of bytes that this reader has not
// read yet.
func (r *reader) Remaining() int64 {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	return r.source.buffer.end - r.At
}

// Commit implements stream.Reader. It frees records that all routes have delivered, dead-lettered
// or dropped.
func (r *reader) Commit(_ context.Context, marks []stream.Mark) error {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range marks {
		if m.Part.ID == s.part.ID {
			r.progress.settled = max(r.progress.settled, m.Watermark.Num)
		}
	}
	r.progress.cuts.Trim(r.progress.settled)
	s.release()
	return nil
}

// Metadata implements stream.PartitionTracker. This reader stores no metadata with its progress.
func (r *reader) Metadata(stream.Mark) string { return "" }

// Deleted implements stream.PartitionTracker. It returns the partitions of earlier processes. Their
// data was only in memory, and is lost.
func (r *reader) Deleted() []string {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	gone := r.gone
	r.gone = nil
	return gone
}

// Close implements stream.Reader. Unsettled records stay in the source.
func (r *reader) Close() error { return nil }
