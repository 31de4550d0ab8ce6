package connectortest

import (
	"slices"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// settled stores the ranges of each partition that are settled (delivered, dead-lettered or
// dropped). It creates marks from them, each of which has the progress of one partition. It is a
// simple counterpart of the package flow/ledger. If the suite used that package, a mistake in it
// could hide a mistake in a source.
type settled struct {
	mu    sync.Mutex // guards parts, because sources call from any goroutine
	parts map[string]*settledPart

	waiting bool // set Waiting in marks
}

type settledPart struct {
	part   stream.Partition
	first  stream.Position // From of the first span seen
	ranges []stream.Range  // ascending, disjoint; adjacent ranges are joined
	sealed bool            // a span with Last was settled
	end    stream.Position // To of that span
}

func newSettled() *settled { return &settled{parts: make(map[string]*settledPart)} }

// open records where a partition begins: at the start of its first span. Call it with each span in
// the order of reading. Later spans of the partition change nothing.
func (s *settled) open(span stream.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts[span.Part.ID] == nil {
		s.parts[span.Part.ID] = &settledPart{part: *span.Part, first: span.From}
	}
}

func (s *settled) settle(span stream.Span) {
	s.open(span)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[span.Part.ID]
	if span.Last {
		p.sealed, p.end = true, span.To
	}
	if span.From == span.To {
		return
	}
	p.ranges = append(p.ranges, span.Range)
	slices.SortFunc(p.ranges, func(a, b stream.Range) int { return a.From.Compare(b.From) })
	joined := p.ranges[:1]
	for _, r := range p.ranges[1:] {
		if last := &joined[len(joined)-1]; last.To == r.From {
			last.To = r.To
		} else {
			joined = append(joined, r)
		}
	}
	p.ranges = joined
}

// settleAll settles all spans of the batches.
func (s *settled) settleAll(batches ...copied) {
	for _, b := range batches {
		for _, span := range b.spans {
			s.settle(span)
		}
	}
}

func (p *settledPart) mark() stream.Mark {
	m := stream.Mark{Part: p.part, Watermark: p.first, Above: slices.Clone(p.ranges)}
	if len(m.Above) > 0 && m.Above[0].From == p.first {
		m.Watermark, m.Above = m.Above[0].To, m.Above[1:]
	}
	m.Finished = p.sealed && len(m.Above) == 0 && m.Watermark == p.end
	return m
}

// options returns the options to open a source in a process that starts with these marks.
func (s *settled) options(once bool) stream.OpenOptions {
	return stream.OpenOptions{
		Route: streamtest.Route,
		Once:  once,
		Resume: func(id string) (stream.Mark, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if p := s.parts[id]; p != nil {
				m := p.mark()
				m.Waiting = s.waiting
				return m, true
			}
			return stream.Mark{}, false
		},
		Known: func(yield func(stream.Mark) bool) {
			for _, m := range s.marks() {
				if !yield(m) {
					return
				}
			}
		},
	}
}

func (s *settled) marks() []stream.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []stream.Mark
	for _, p := range s.parts {
		all = append(all, p.mark())
	}
	slices.SortFunc(all, func(a, b stream.Mark) int {
		return strings.Compare(a.Part.ID, b.Part.ID)
	})
	return all
}
