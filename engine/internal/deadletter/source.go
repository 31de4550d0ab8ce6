package deadletter

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Source reads the letters in a file as records, so that their route can deliver them again. Each
// letter is a partition of its own. Source reads the letters that exist when it is opened. It does
// not read letters that are added during the replay. It implements stream.Source.
type Source struct {
	FS     vfs.FS
	Path   string // of the file
	Filter Filter

	// Keep is the stream.SinkOptions.Keep of the route's own source. It is above 0 if a partition
	// of that source may be a request: a sink then keeps the progress of a request for this time in
	// its ledger. The replay opens the same ledger, so it must pass the same value.
	Keep time.Duration
	// Fields adds the fields of the records. It is nil if the route's own source adds none.
	Fields func(b *stream.Batch)
	// Assigned is set if a broker assigns the partitions of the route's own source.
	Assigned bool
}

// KeepsRequests implements stream.RequestSource.
func (s *Source) KeepsRequests() (own string, keep time.Duration) { return "letters", s.Keep }

// Open implements stream.Source. A file that does not exist has no letters.
func (s *Source) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	entries, err := OpenEntries(s.FS, s.Path)
	if err != nil {
		return nil, err
	}
	return &reader{filter: s.Filter, fields: s.Fields, resume: o.Resume,
		seen: make(map[idHash]struct{}), entries: entries}, nil
}

type reader struct {
	filter  Filter
	fields  func(b *stream.Batch)
	resume  func(id string) (stream.Mark, bool)
	seen    map[idHash]struct{} // ids of letters read so far, because a letter may occur twice
	entries *Entries
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	err := r.read(ctx, b)
	if r.fields != nil {
		r.fields(b)
	}
	return err
}

func (r *reader) read(ctx context.Context, b *stream.Batch) error {
	for !b.Full() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e, err := r.entries.Next()
		if err != nil {
			return err
		}
		if r.wanted(e) {
			put(b, e)
		}
	}
	return nil
}

func (r *reader) wanted(e *Entry) bool {
	id := hashOf(e.ID)
	if _, twice := r.seen[id]; twice || !r.filter.Takes(e) {
		return false
	}
	r.seen[id] = struct{}{}
	mark, known := r.resume(PartitionOf(e.ID))
	return !known || mark.Watermark.Num < 1
}

// put appends the record of a letter to b. The record is the only one in its partition.
func put(b *stream.Batch, e *Entry) {
	text := e.Text()
	part := &stream.Partition{ID: PartitionOf(e.ID), Name: e.File}
	to := stream.Position{Num: 1}
	b.Records = append(b.Records, stream.Record{
		Off: uint32(len(b.Data)), Len: uint32(len(text)), Span: uint32(len(b.Spans)), Origin: to,
	})
	b.Spans = append(b.Spans, stream.Span{Part: part, Range: stream.Range{To: to},
		Bytes: len(text) + 1, Last: true})
	b.Data = append(append(b.Data, text...), '\n')
	b.Origins++
	b.Added++
}

// Commit implements stream.Reader.
func (r *reader) Commit(context.Context, []stream.Mark) error { return nil }

// Close implements stream.Reader.
func (r *reader) Close() error { return r.entries.Close() }
