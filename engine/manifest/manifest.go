// Package manifest records how much data a finite run has read and delivered from each partition,
// with a hash of the bytes. A manifest file is evidence of a delivery. See docs/formats/manifest.md
// for its format.
//
// A program creates [Totals] and sets them as engine.Options.Manifest. The engine reports each
// batch to the Totals after it has read the batch, and again when the batch, or a piece of it, has
// settled (was delivered, dead-lettered or dropped). After the run, the program copies the counts
// of each route into a [Manifest] and writes it as a [File]. Totals contain no records.
package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// Totals collect the counts of a run. The zero value is empty. They are safe for concurrent use.
type Totals struct {
	mu     sync.Mutex // guards routes and their contents
	routes []*Route
}

// Route has the counts of one route.
type Route struct {
	totals   *Totals
	pipeline string
	name     string
	parts    map[string]*partition
	order    []*partition
}

type partition struct {
	Partition
	sum    hash.Hash // nil if the bytes cannot be hashed
	ranges []stream.Range
}

// Route returns a new Route for counts of the given route. The engine calls it.
func (b *Totals) Route(pipeline, name string) *Route {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Route{totals: b, pipeline: pipeline, name: name, parts: make(map[string]*partition)}
	b.routes = append(b.routes, r)
	return r
}

// Read adds a batch to the totals after it was read and before processors change it. The engine
// calls Read for the batches in the order in which the source returned them.
func (r *Route) Read(b *stream.Batch) {
	r.totals.mu.Lock()
	defer r.totals.mu.Unlock()
	off := 0
	counts := origins(b)
	for i := range b.Spans {
		span := &b.Spans[i]
		text := b.Data[off : off+span.Bytes]
		off += span.Bytes
		p := r.partition(span.Part)
		p.Name = span.Part.Name
		p.Records += int64(counts[i])
		if span.From == span.To { // an empty span; it only marks the end of the partition
			p.From, p.To = textOf(span.From), textOf(span.To)
			continue
		}
		if n := len(p.ranges); n > 0 && p.ranges[n-1].To == span.From {
			p.ranges[n-1].To = span.To
		} else {
			p.ranges = append(p.ranges, span.Range)
		}
		p.Bytes += p.hash(text, span)
	}
}

// hash adds text, the bytes that the reader returned for a span, to the partition's hash. It
// leaves out a line end that the reader added because the last line of a file had none. It
// returns the number of bytes without this line end. Example: a file ends with a line "abc"
// without a line end. The reader returns "abc" and a line end, and 3 bytes count. If the text is
// not that of the source, for example because it was decoded, the partition gets no hash.
func (p *partition) hash(text []byte, span *stream.Span) int64 {
	n := span.To.Num - span.From.Num
	if !span.Verbatim || n > int64(len(text)) {
		p.sum = nil
		return int64(len(text))
	}
	if p.sum != nil {
		p.sum.Write(text[:n])
	}
	return n
}

func (r *Route) partition(part *stream.Partition) *partition {
	p := r.parts[part.ID]
	if p == nil {
		p = &partition{Partition: Partition{ID: part.ID}, sum: sha256.New()}
		r.parts[part.ID] = p
		r.order = append(r.order, p)
	}
	return p
}

// origins returns the number of source records in each span (a range of one partition) of b. A
// source record that processors have split into several records counts once.
func origins(b *stream.Batch) []int {
	out := make([]int, len(b.Spans))
	if len(b.Records) > 0 {
		for i := range b.Records {
			if i == 0 || b.Records[i].Span != b.Records[i-1].Span ||
				b.Records[i].Origin != b.Records[i-1].Origin {
				out[b.Records[i].Span]++
			}
		}
		return out
	}
	off := 0
	for i := range b.Spans {
		out[i] = bytes.Count(b.Data[off:off+b.Spans[i].Bytes], []byte{'\n'})
		off += b.Spans[i].Bytes
	}
	return out
}

// Settled adds the outcome of a batch, or of a piece of it, to the totals. If deadLettered is set,
// the records that the processors have kept became dead letters. Otherwise they were delivered. The
// engine calls Settled.
func (r *Route) Settled(b *stream.Batch, deadLettered bool) {
	r.totals.mu.Lock()
	defer r.totals.mu.Unlock()
	if len(b.Records) == 0 || b.Untouched() {
		for i, n := range origins(b) {
			r.partition(b.Spans[i].Part).settle(int64(n), !deadLettered, deadLettered)
		}
		return
	}
	for i := 0; i < len(b.Records); {
		kept, died := false, false
		first := b.Records[i]
		for ; i < len(b.Records) && b.Records[i].Span == first.Span &&
			b.Records[i].Origin == first.Origin; i++ {
			kept = kept || b.Records[i].State == stream.Kept
			died = died || b.Records[i].State == stream.Dead
		}
		r.partition(b.Spans[first.Span].Part).settle(1, kept && !deadLettered, kept || died)
	}
}

func (p *partition) settle(n int64, delivered, dead bool) {
	switch {
	case delivered:
		p.Delivered += n
	case dead:
		p.Dead += n
	default:
		p.Dropped += n
	}
}

// Partitions returns the counts of a route by partition, in the order in which the partitions were
// first read.
func (b *Totals) Partitions(pipeline, name string) []Partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []Partition{}
	for _, r := range b.routes {
		if r.pipeline != pipeline || r.name != name {
			continue
		}
		for _, p := range r.order {
			one := p.Partition
			one.Ranges = []Range{}
			for _, g := range p.ranges {
				one.Ranges = append(one.Ranges, Range{textOf(g.From), textOf(g.To)})
			}
			if n := len(one.Ranges); n > 0 {
				one.From, one.To = one.Ranges[0].From, one.Ranges[n-1].To
			}
			if p.sum != nil && p.Bytes > 0 {
				one.SHA256 = hex.EncodeToString(p.sum.Sum(nil))
			}
			out = append(out, one)
		}
	}
	return out
}

func textOf(p stream.Position) string { return string(stream.AppendPosition(nil, p)) }
