package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// fill adds whole spans of lines to b, as a file reader does.
func fill(b *stream.Batch, files ...string) {
	for i, text := range files {
		part := &stream.Partition{ID: fmt.Sprintf("f%d", i), Name: fmt.Sprintf("f%d.log", i)}
		span := stream.Span{Part: part, Last: true}
		span.To.Num = int64(len(text))
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
			b.Added++
		}
		span.Bytes = len(text)
		b.Data = append(b.Data, text...)
		b.Spans = append(b.Spans, span)
		b.Origins += strings.Count(text, "\n")
	}
}

func texts(b *stream.Batch) []string {
	b.Split()
	var out []string
	for i := range b.Records {
		if b.Records[i].State == stream.Kept {
			out = append(out, string(b.Text(i)))
		}
	}
	return out
}

func TestSplitLines(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	fill(b, "one\ntwo\r\n\nfo\rur\r\r\nlast", "", "\n", "x")
	b.Split()
	want := []string{"one", "two", "", "fo\rur\r", "last", "", "x"}
	if got := texts(b); !slices.Equal(got, want) {
		t.Errorf("texts = %q, want %q", got, want)
	}
	var ids []string
	for i := range b.Records {
		ids = append(ids, string(b.AppendRecordID(nil, i)))
	}
	wantIDs := []string{"f0@4", "f0@9", "f0@10", "f0@18", "f0@22", "f2@1", "f3@1"}
	if !slices.Equal(ids, wantIDs) {
		t.Errorf("ids = %q, want %q", ids, wantIDs)
	}
	if got := string(b.Raw(1)); got != "two\r\n" {
		t.Errorf("Raw(1) = %q: the CR is part of the raw bytes", got)
	}
	if len(b.Records) != b.Origins {
		t.Errorf("%d records from %d origins", len(b.Records), b.Origins)
	}
	b.Split()
	if len(b.Records) != 7 {
		t.Errorf("a second Split changed the records: %d", len(b.Records))
	}
}

func TestWholeAndRaw(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	fill(b, "a\nb\r\nc")
	if whole, ok := b.Whole(); !ok || string(whole) != "a\nb\r\nc\n" {
		t.Errorf("Whole = %q, %v", whole, ok)
	}
	b.Split()
	b.Drop(0)
	if _, ok := b.Whole(); ok {
		t.Error("Whole after a Drop says that the raw bytes are the whole truth")
	}
	if got := string(b.AppendRaw([]byte(">"))); got != ">b\r\nc\n" {
		t.Errorf("AppendRaw = %q", got)
	}
	if b.Kept() != 2 || b.Origins != 3 {
		t.Errorf("kept %d of %d origins, want 2 of 3", b.Kept(), b.Origins)
	}
	if got := b.AppendKept([]int{7}); !slices.Equal(got, []int{7, 1, 2}) {
		t.Errorf("AppendKept = %v, want 1 and 2 behind the 7", got)
	}
	unsplit := stream.NewBatch(stream.BatchLimits{})
	fill(unsplit, "a\nb\n")
	if got := unsplit.AppendKept(nil); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("AppendKept of a batch that was not split = %v, want 0 and 1", got)
	}
}

func TestCutSharesOriginsAndReasons(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	fill(b, "a\nb\nc\nd\n")
	b.Split()
	b.Expand([]int{0, 1, 0, 0})
	b.Records[2].Off, b.Records[2].Len = b.Records[1].Off, b.Records[1].Len
	refusal := errors.New("too blue")
	b.DeadLetter(4, refusal)
	if got := string(b.AppendRecordID(nil, 2)); got != "f0@4.1" {
		t.Errorf("the added record's id is %q, want f0@4.1", got)
	}
	left, right := b.Cut(0, 3), b.Cut(3, 5)
	if left.Origins != 2 || right.Origins != 2 {
		t.Errorf("origins %d and %d, want 2 and 2", left.Origins, right.Origins)
	}
	if got := right.Reason(1); got != refusal {
		t.Errorf("the reason of the dead-lettered record in the right piece is %v", got)
	}
	if l, r := string(left.AppendSpans(nil)), string(right.AppendSpans(nil)); l != "f0;0;4" ||
		r != "f0;4;8" {
		t.Errorf("spans %q and %q", l, r)
	}
	if left.ID() == right.ID() || left.ID() == b.ID() {
		t.Error("pieces share an id")
	}
	defer func() {
		if recover() == nil {
			t.Error("a cut inside an origin was allowed")
		}
	}()
	b.Cut(0, 2)
}

func TestMiddle(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	fill(b, "a\nb\nc\nd\n")
	if m := b.Middle(); m != 2 {
		t.Errorf("Middle of four = %d, want 2", m)
	}
	b.Drop(0)
	b.Drop(1)
	b.Drop(2)
	if m := b.Middle(); m != 0 {
		t.Errorf("Middle with one kept record = %d, want 0: it cannot be cut", m)
	}
	b = stream.NewBatch(stream.BatchLimits{})
	fill(b, "a\nb\nc\nd\n")
	b.Split()
	for _, i := range b.Expand([]int{1, 1, 1, 1}) {
		b.Drop(i) // of each origin only the second record is kept
	}
	if m := b.Middle(); m != 4 {
		t.Errorf("Middle of four origins without their first records = %d, want 4", m)
	}
}

func TestPoolPoisonsAndCounts(t *testing.T) {
	freed := 0
	p := &stream.Pool{Poison: true, Freed: func(*stream.Batch) { freed++ }}
	b := p.Get(stream.BatchLimits{})
	fill(b, "secret\nline\n")
	b.Split()
	piece := b.Cut(0, 1)
	data := b.Data
	b.Release()
	if freed != 0 {
		t.Fatal("freed while a piece holds the arena")
	}
	if got := texts(piece); got[0] != "secret" {
		t.Errorf("the piece reads %q", got)
	}
	piece.Release()
	if freed != 1 || data[0] != 0xDB {
		t.Errorf("freed %d times, first byte %#x", freed, data[0])
	}
	defer func() {
		if recover() == nil {
			t.Error("a release too many passed unseen")
		}
	}()
	b.Release()
}

func TestPoolReusesWithoutAllocation(t *testing.T) {
	p := &stream.Pool{}
	text := bytes.Repeat([]byte("0123456789\n"), 1000)
	part := &stream.Partition{ID: "f", Name: "f"}
	round := func() {
		b := p.Get(stream.BatchLimits{})
		b.Data = append(b.Data, text...)
		b.Spans = append(b.Spans, stream.Span{Part: part, Bytes: len(text)})
		b.Origins = 1000
		b.Split()
		b.Release()
	}
	round()
	if n := testing.AllocsPerRun(20, round); n > 0 {
		t.Errorf("%v allocations a batch of 1000 records", n)
	}
}

// FuzzPieces checks pieces cut or picked at random: no line is lost or repeated, the spans leave no
// gaps and do not overlap, and the raw bytes equal the lines. In some runs, source records become
// several records.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("a\nb\nc\n|d|\n\ne"), uint64(1))
	f.Add([]byte("|||x\r\ny|"), uint64(2))
	f.Add([]byte("one line without end"), uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		b := stream.NewBatch(stream.BatchLimits{})
		files := strings.Split(string(data), "|")
		fill(b, files...)
		b.Split()
		if len(b.Records) != b.Origins {
			t.Fatalf("%d records, %d origins", len(b.Records), b.Origins)
		}
		if rnd.IntN(2) == 0 {
			expandAtRandom(b, rnd)
		}
		for i := range b.Records {
			switch rnd.IntN(6) {
			case 0:
				b.Drop(i)
			case 1:
				b.DeadLetter(i, errors.New(fmt.Sprint(i)))
			}
		}
		want := texts(b)
		var pieces []*stream.Batch
		if rnd.IntN(2) == 0 || b.Kept() == 0 {
			pieces = cutAtRandom(b, rnd)
		} else {
			pieces = pickAtRandom(b, rnd)
		}
		checkTiles(t, b, pieces)
		var got []string
		for _, p := range pieces {
			got = append(got, texts(p)...)
			checkRaw(t, p)
		}
		slices.Sort(got)
		slices.Sort(want)
		if len(pieces) > 0 && !slices.Equal(got, want) {
			t.Fatalf("pieces hold %q, want %q", got, want)
		}
	})
}

// expandAtRandom makes up to three records of each record, all with the same text.
func expandAtRandom(b *stream.Batch, rnd *rand.Rand) {
	extra := make([]int, len(b.Records))
	for i := range extra {
		extra[i] = rnd.IntN(3)
	}
	for i, at := range b.Expand(extra) {
		for k := at + 1; k <= at+extra[i]; k++ {
			b.Records[k].Off, b.Records[k].Len = b.Records[at].Off, b.Records[at].Len
		}
	}
}

func cutAtRandom(b *stream.Batch, rnd *rand.Rand) (pieces []*stream.Batch) {
	for i := 0; i < len(b.Records); {
		j := i + 1 + rnd.IntN(len(b.Records)-i)
		for j < len(b.Records) && stream.SameOrigin(b.Records, j-1, j) {
			j++
		}
		pieces = append(pieces, b.Cut(i, j))
		i = j
	}
	return pieces
}

func pickAtRandom(b *stream.Batch, rnd *rand.Rand) (pieces []*stream.Batch) {
	share := make([][]int, 3)
	n := 0
	for i := range b.Records {
		if i == 0 || !stream.SameOrigin(b.Records, i-1, i) {
			n = rnd.IntN(3)
		}
		if b.Records[i].State == stream.Kept {
			share[n] = append(share[n], i)
		}
	}
	for _, index := range share {
		if len(index) > 0 {
			pieces = append(pieces, b.Pick(index))
		}
	}
	return pieces
}

// TestPickKeepsOriginsApart checks Pick when two records were made from one source record, and the
// first of them is dropped. The position of the source record must be in the piece of the second
// one.
func TestPickKeepsOriginsApart(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	fill(b, "z\na\n")
	b.Split()
	b.Expand([]int{0, 1})
	b.Drop(1)
	z, a := b.Pick([]int{0}), b.Pick([]int{2})
	checkTiles(t, b, []*stream.Batch{z, a})
	if got := z.Spans[0].To.Num; got != 2 {
		t.Errorf("the piece of record z ends at %d, want 2", got)
	}
}

// checkTiles checks that the spans of the pieces cover the spans of b without gaps or overlaps, and
// that each record is in a span of its own piece. The origins and raw bytes of the pieces must add
// up to the totals of b.
func checkTiles(t *testing.T, b *stream.Batch, pieces []*stream.Batch) {
	t.Helper()
	if len(pieces) == 0 {
		return
	}
	origins, raw := 0, int64(0)
	parts := map[string][]stream.Range{}
	for _, p := range pieces {
		origins += p.Origins
		raw += p.RawBytes()
		for _, s := range p.Spans {
			if s.From != s.To {
				parts[s.Part.ID] = append(parts[s.Part.ID], s.Range)
			}
		}
		for _, r := range p.Records {
			s := p.Spans[r.Span]
			if r.Origin.Compare(s.From) <= 0 || r.Origin.Compare(s.To) > 0 {
				t.Fatalf("a record at %v is in the span %v", r.Origin, s.Range)
			}
		}
	}
	if origins != b.Origins || raw != b.RawBytes() {
		t.Fatalf("pieces have %d origins and %d bytes, the whole %d and %d", origins, raw,
			b.Origins, b.RawBytes())
	}
	for _, s := range b.Spans {
		at := s.From
		ranges := parts[s.Part.ID]
		slices.SortFunc(ranges, func(x, y stream.Range) int { return x.From.Compare(y.From) })
		for _, r := range ranges {
			if r.From != at {
				t.Fatalf("partition %s: a piece begins at %v, want %v", s.Part.ID, r.From, at)
			}
			at = r.To
		}
		if at != s.To {
			t.Fatalf("partition %s: pieces end at %v, want %v", s.Part.ID, at, s.To)
		}
	}
}

func checkRaw(t *testing.T, p *stream.Batch) {
	t.Helper()
	whole, ok := p.Whole()
	if !ok {
		return
	}
	var lines []byte
	for i := range p.Records {
		lines = append(lines, p.Raw(i)...)
	}
	if !bytes.Equal(whole, lines) {
		t.Fatalf("Whole is %q, its records are %q", whole, lines)
	}
}

// TestExpand checks that Expand inserts the requested number of records behind each record. All
// records must have different ids, even if a second Expand adds records of the same origin.
func TestExpand(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	part := &stream.Partition{ID: "p"}
	b.Spans = []stream.Span{{Part: part, Range: stream.Range{To: stream.Position{Num: 3}}}}
	for n := range 3 {
		b.Records = append(b.Records, stream.Record{Origin: stream.Position{Num: int64(n + 1)}})
	}
	b.DeadLetter(2, errors.New("bad"))
	b.Expand([]int{1, 0, 0})
	if index := b.Expand([]int{2, 1, 0, 3}); !slices.Equal(index, []int{0, 3, 5, 6}) {
		t.Errorf("indexes: %v", index)
	}
	var ids []string
	for i := range b.Records {
		ids = append(ids, string(b.AppendRecordID(nil, i)))
	}
	if want := strings.Fields(
		"p@1 p@1.2 p@1.3 p@1.1 p@1.4 p@2 p@3 p@3.1 p@3.2 p@3.3"); !slices.Equal(ids, want) {
		t.Errorf("ids: %q, want %q", ids, want)
	}
	if b.Records[6].State != stream.Dead || b.Reason(6) == nil || b.Reason(6).Error() != "bad" {
		t.Errorf("the dead record: %+v, %v", b.Records[6], b.Reason(6))
	}
}

// TestIdentities checks the ids of records in, between and behind the identities of a span.
func TestIdentities(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Spans = []stream.Span{{
		Part: &stream.Partition{ID: "buffer"},
		Identities: []stream.Identity{
			{From: 10, To: 20, Prefix: "one", First: 0, Last: 10},
			{From: 30, To: 1 << 24, Prefix: "two", First: 100, Last: 107}, // To begins the next envelope
		},
	}}
	for _, at := range []int64{10, 14, 20, 25, 33, 1 << 24, 1<<24 + 2} {
		b.Records = append(b.Records, stream.Record{Origin: stream.Position{Num: at}})
	}
	b.Records[4].Sub = 1
	var got []string
	for i := range b.Records {
		got = append(got, string(b.AppendRecordID(nil, i)))
	}
	want := []string{
		"buffer@10", "one@4", "one@10", "buffer@25", "two@103.1", "two@107", "buffer@16777218",
	}
	if !slices.Equal(got, want) {
		t.Errorf("ids = %q, want %q", got, want)
	}
}
