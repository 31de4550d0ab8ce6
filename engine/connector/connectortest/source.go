// Package connectortest checks that a source or sink fulfils its contract with the engine. Tests of
// connectors use it, also in other projects.
//
// [Sink] and [Source] run a connector under the conditions of the engine. Several calls of Deliver
// run concurrently, and their contexts may end. A process may end between two calls, and the next
// process then continues from the last reported position. The memory of a batch is overwritten
// after the last Release, to find connectors that keep references to it. A test passes a case,
// which creates the connector and returns its results. The suite creates the batches, the
// goroutines and the host ([streamtest.Host]).
//
// The package never looks inside a connector. It also has helpers for tests, such as a TCP proxy
// ([Link]), a DNS server ([NameServer]) and real servers ([Server]).
package connectortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// patience bounds most waits of the suite.
const patience = 20 * time.Second

// SourceCase describes a source with existing data, and the records that it must read.
type SourceCase struct {
	// New creates a source over the same data, as a new process would. The suite calls New many
	// times. h is the host of that process, and is stopped when the process ends. Between the
	// calls, only Finish may change the data.
	New func(t *testing.T, h *streamtest.Host) stream.Source
	// Want has the text of every record without its line end. Each element is a partition with its
	// records in order. The order of partitions does not matter. Several records may have the same
	// text.
	Want [][]string
	// Limits bounds the batches. Zero means 512 bytes and 7 records, which makes many batches.
	// Choose Want so that its records fill a few dozen batches.
	Limits stream.BatchLimits
	// Reset restores the data before each check. Set it for sources that change the data in Finish.
	Reset func(t *testing.T)
}

// Source checks that a source fulfils the contract of [stream.Source]. Its data must be readable
// more than once. The checks are:
//
//   - With Once, each record comes once, in order within its partition, in contiguous spans.
//     Then Read returns io.EOF.
//   - A second process reads the same batches with the same ids. Two readers in one process read
//     the same records side by side.
//   - A new process can continue after every batch, and from marks with random gaps. (Marks are
//     the stored progress of partitions.) It skips the settled ranges: their records were
//     delivered, dead-lettered or dropped. The seed of the gaps is printed on failure.
//   - When everything is settled, no record comes again.
//   - If the reader implements [stream.RangeReader], it reads the same records again from their
//     ranges.
//   - When its context ends, Read returns soon, with the cause.
//   - Commit, Finish and Close may be called as the contract says, also twice.
//
// The memory of a batch is overwritten when it is released.
func Source(t *testing.T, c SourceCase) {
	t.Helper()
	if c.Limits == (stream.BatchLimits{}) {
		c.Limits = stream.BatchLimits{Bytes: 512, Records: 7}
	}
	for _, check := range []struct {
		name string
		run  func(*testing.T, SourceCase)
	}{
		{"reads everything once", sourceReadsOnce},
		{"cuts at the same places again", sourceCutsAgain},
		{"two readers side by side", sourceTwoReaders},
		{"resumes after every batch", sourceResumes},
		{"resumes with holes", sourceResumesWithHoles},
		{"has nothing when all is settled", sourceAllSettled},
		{"reads ranges again", sourceReadsRanges},
		{"ends with its context", sourceEndsWithContext},
		{"finishes and closes twice", sourceFinishes},
	} {
		t.Run(check.name, func(t *testing.T) {
			if c.Reset != nil {
				c.Reset(t)
			}
			check.run(t, c)
		})
	}
}

// heard is one record that the suite has read from the source.
type heard struct{ id, text string }

// copied is a copy of a batch, made before the batch was released.
type copied struct {
	id      string
	spans   []stream.Span
	records []heard
}

// process is one process with a source, from the call of New until its host is stopped.
type process struct {
	t      *testing.T
	c      SourceCase
	host   *streamtest.Host
	source stream.Source
	pool   *stream.Pool
	tiled  map[string]stream.Position // the end of the last span of each partition
	marks  *settled                   // the marks at its start
}

func begin(t *testing.T, c SourceCase, marks *settled) *process {
	t.Helper()
	h := NewHost(t)
	return &process{
		t: t, c: c, host: h, source: c.New(t, h), marks: marks,
		pool: &stream.Pool{Poison: true}, tiled: make(map[string]stream.Position),
	}
}

func (p *process) open(once bool) stream.Reader {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := p.source.Open(ctx, p.marks.options(once))
	if err != nil {
		p.t.Fatalf("Open: %v", err)
	}
	return r
}

// end closes the reader and stops the host. To the source, this looks like the end of the process.
func (p *process) end(r stream.Reader) {
	p.t.Helper()
	if err := r.Close(); err != nil {
		p.t.Errorf("Close: %v", err)
	}
	if err := p.host.Stop(); err != nil {
		p.t.Errorf("goroutine of the source: %v", err)
	}
}

// next reads one batch. It returns false if Read has returned io.EOF and no spans.
func (p *process) next(r stream.Reader) (copied, bool, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeoutCause(p.t.Context(), patience,
		errors.New("the suite lost its patience"))
	defer cancel()
	b := p.pool.Get(p.c.Limits)
	defer b.Release()
	err := r.Read(ctx, b)
	if err != nil && err != io.EOF {
		p.t.Fatalf("Read: %v", err)
	}
	if len(b.Spans) == 0 && err == nil {
		p.t.Fatalf("Read returned nil and read nothing: it has to block while the batch is empty")
	}
	return p.copy(b), len(b.Spans) > 0, err
}

// copy copies b, and checks the rules that hold for every batch.
func (p *process) copy(b *stream.Batch) copied {
	p.t.Helper()
	out := copied{id: b.ID()}
	sum := 0
	for _, s := range b.Spans {
		p.checkSpan(s)
		part := *s.Part
		s.Part = &part
		out.spans = append(out.spans, s)
		sum += s.Bytes
	}
	if sum != len(b.Data) {
		p.t.Errorf("the spans of batch %s count %d bytes, its data has %d", out.id, sum,
			len(b.Data))
	}
	if whole, ok := b.Whole(); !ok || len(whole) > 0 && !bytes.HasSuffix(whole, []byte("\n")) {
		p.t.Errorf("batch %s does not end with a line end", out.id)
	}
	b.Split()
	origins := 0
	for i := range b.Records {
		if b.Records[i].Sub == 0 {
			origins++
		}
		out.records = append(out.records,
			heard{string(b.AppendRecordID(nil, i)), string(b.Text(i))})
		p.checkOrigin(b, i)
	}
	if origins != b.Origins {
		p.t.Errorf("batch %s says %d origins and has %d", out.id, b.Origins, origins)
	}
	return out
}

func (p *process) checkSpan(s stream.Span) {
	p.t.Helper()
	if s.Part == nil || s.Part.ID == "" || len(s.Part.ID) > 200 {
		p.t.Fatalf("span %v has no usable partition: %v", s.Range, s.Part)
	}
	for _, c := range []byte(s.Part.ID) {
		if c <= ' ' || c > '~' || bytes.IndexByte([]byte(`,;@"`), c) >= 0 {
			p.t.Fatalf("partition id %q: character %q is not allowed", s.Part.ID, c)
		}
	}
	if s.From.Compare(s.To) > 0 {
		p.t.Errorf("span %v of %s runs backwards", s.Range, s.Part.ID)
	}
	from, known := p.tiled[s.Part.ID]
	if m, ok := p.marks.options(true).Resume(s.Part.ID); ok {
		if !known {
			from, known = m.Watermark, true
		}
		for i := 0; i < len(m.Above); i++ { // skip settled ranges, even several in a row
			if m.Above[i].From == from && s.From != from {
				from = m.Above[i].To
			}
		}
		for _, r := range m.Above {
			if s.From.Compare(r.To) < 0 && r.From.Compare(s.To) < 0 {
				p.t.Errorf("span %v of %s covers %v, which was settled", s.Range, s.Part.ID, r)
			}
		}
	}
	if known && s.From != from {
		p.t.Errorf("span %v of %s does not begin where the one before it ended, at %v", s.Range,
			s.Part.ID, from)
	}
	p.tiled[s.Part.ID] = s.To
}

func (p *process) checkOrigin(b *stream.Batch, i int) {
	p.t.Helper()
	r := b.Records[i]
	s := b.Spans[r.Span]
	if r.Origin.Compare(s.From) <= 0 || r.Origin.Compare(s.To) > 0 {
		p.t.Errorf("record %q stands at %v, outside of its span %v", b.Text(i), r.Origin, s.Range)
	}
}

// drain reads until io.EOF and calls each for every batch. each may be nil.
func (p *process) drain(r stream.Reader, each func(copied)) []copied {
	p.t.Helper()
	var all []copied
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b, some, err := p.next(r)
		if some {
			all = append(all, b)
			if each != nil {
				each(b)
			}
		}
		if err == io.EOF {
			return all
		}
	}
	p.t.Fatalf("Read did not come to io.EOF within %v, though Once was set", patience)
	return nil
}

// readAll reads everything in a new process, with Once.
func readAll(t *testing.T, c SourceCase, marks *settled) []copied {
	t.Helper()
	p := begin(t, c, marks)
	r := p.open(true)
	all := p.drain(r, nil)
	p.end(r)
	return all
}

func flatten(batches []copied) []heard {
	var all []heard
	for _, b := range batches {
		all = append(all, b.records...)
	}
	return all
}

// partitionsOf returns the texts of each partition in order. The partitions are sorted by their
// texts.
func partitionsOf(batches []copied) [][]string {
	parts := make(map[string][]string)
	for _, h := range flatten(batches) {
		id, _, _ := bytes.Cut([]byte(h.id), []byte("@"))
		parts[string(id)] = append(parts[string(id)], h.text)
	}
	var all [][]string
	for _, texts := range parts {
		all = append(all, texts)
	}
	return sortParts(all)
}

func sortParts(parts [][]string) [][]string {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p []string) bool { return len(p) == 0 })
	slices.SortFunc(parts, slices.Compare[[]string])
	return parts
}

func sourceReadsOnce(t *testing.T, c SourceCase) {
	all := readAll(t, c, newSettled())
	seen := make(map[string]bool)
	for _, h := range flatten(all) {
		if seen[h.id] {
			t.Errorf("record id %s came twice", h.id)
		}
		seen[h.id] = true
	}
	got, want := partitionsOf(all), sortParts(c.Want)
	if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("read %s\nwant %s", describe(got), describe(want))
	}
}

// describe returns the records in a short form for a message.
func describe(parts [][]string) string {
	var b bytes.Buffer
	for _, p := range parts {
		fmt.Fprintf(&b, "%d records", len(p))
		for i, text := range p {
			if i == 3 && len(p) > 5 {
				fmt.Fprintf(&b, " ...")
			}
			if i < 3 || i >= len(p)-2 {
				fmt.Fprintf(&b, " %.40q", text)
			}
		}
		fmt.Fprintf(&b, "; ")
	}
	return b.String()
}

func ids(batches []copied) []string {
	var out []string
	for _, b := range batches {
		out = append(out, b.id)
	}
	return out
}

func sourceCutsAgain(t *testing.T, c SourceCase) {
	first, second := readAll(t, c, newSettled()), readAll(t, c, newSettled())
	if !slices.Equal(ids(first), ids(second)) {
		t.Errorf("batches of the second run %v\nwant those of the first %v", ids(second),
			ids(first))
	}
	if !slices.Equal(flatten(first), flatten(second)) {
		t.Errorf("the second run gave other records or ids")
	}
}

func sourceTwoReaders(t *testing.T, c SourceCase) {
	a := begin(t, c, newSettled())
	b := *a
	b.tiled = make(map[string]stream.Position)
	ra, rb := a.open(true), b.open(true)
	var fromA, fromB []copied
	for doneA, doneB := false, false; !doneA || !doneB; {
		for _, side := range []struct {
			p    *process
			r    stream.Reader
			done *bool
			all  *[]copied
		}{{a, ra, &doneA, &fromA}, {&b, rb, &doneB, &fromB}} {
			if *side.done {
				continue
			}
			got, some, err := side.p.next(side.r)
			if some {
				*side.all = append(*side.all, got)
			}
			*side.done = err == io.EOF
		}
	}
	if err := rb.Close(); err != nil {
		t.Errorf("Close of the second reader: %v", err)
	}
	a.end(ra)
	if !slices.Equal(flatten(fromA), flatten(fromB)) {
		t.Errorf("two readers side by side gave different records")
	}
}

// randomFrom returns a random number generator. If the test fails, its seed is printed.
func randomFrom(t *testing.T, seed uint64) *rand.Rand {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
