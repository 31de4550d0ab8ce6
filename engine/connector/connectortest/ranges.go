package connectortest

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// sourceReadsRanges checks a reader that implements [stream.RangeReader]. It reads the spans of all
// batches again, from the last batch to the first, and compares the ids and texts of their records
// with those of the first reading. It does so in the same process, and in a second process. The
// second process has only the progress that the first process has stored.
func sourceReadsRanges(t *testing.T, c SourceCase) {
	p := begin(t, c, newSettled())
	r := p.open(true)
	all := p.drain(r, nil)
	if _, ok := r.(stream.RangeReader); !ok {
		p.end(r)
		t.Skip("its reader cannot read ranges again")
	}
	readRangesAgain(p, r, all)
	p.end(r)

	passed := newSettled()
	passed.waiting = true
	for _, b := range all {
		for _, s := range b.spans {
			s.Last = false // otherwise the partition counts as finished
			passed.settle(s)
		}
	}
	p = begin(t, c, passed)
	r = p.open(true)
	for _, b := range p.drain(r, nil) {
		if len(b.records) > 0 {
			t.Errorf("%d records come again although all are settled", len(b.records))
		}
	}
	readRangesAgain(p, r, all)
	p.end(r)
}

func readRangesAgain(p *process, r stream.Reader, all []copied) {
	p.t.Helper()
	ranges := r.(stream.RangeReader)
	read := 0
	for _, b := range slices.Backward(all) {
		var got, want []heard
		for _, h := range b.records {
			if partition, _, _ := strings.Cut(h.id, "@"); ranges.CanReadRanges(partition) {
				want = append(want, h)
			}
		}
		for _, s := range b.spans {
			if s.From == s.To || !ranges.CanReadRanges(s.Part.ID) {
				continue
			}
			got = append(got, p.readRange(ranges, s)...)
			read++
		}
		if !slices.Equal(got, want) {
			p.t.Errorf("the spans of batch %s give %d records, want %d: %s", b.id, len(got),
				len(want), difference(got, want))
		}
	}
	p.t.Logf("%d spans were read again", read)
}

// readRange reads one span again.
func (p *process) readRange(r stream.RangeReader, s stream.Span) []heard {
	p.t.Helper()
	b := p.pool.Get(stream.BatchLimits{Bytes: 1 << 20, Records: 1 << 20})
	defer b.Release()
	if err := r.ReadRanges(p.t.Context(), b, *s.Part, []stream.Range{s.Range}); err != nil {
		p.t.Fatalf("span %v of %s: %v", s.Range, s.Part.ID, err)
	}
	sum := 0
	for _, again := range b.Spans {
		sum += again.Bytes
		if again.From.Compare(s.From) < 0 || again.To.Compare(s.To) > 0 {
			p.t.Errorf("span %v was read again as %v", s.Range, again.Range)
		}
	}
	if sum != len(b.Data) {
		p.t.Errorf("span %v was read again with %d bytes, its spans count %d", s.Range,
			len(b.Data), sum)
	}
	b.Split()
	var out []heard
	for i := range b.Records {
		out = append(out, heard{string(b.AppendRecordID(nil, i)), string(b.Text(i))})
	}
	return out
}
