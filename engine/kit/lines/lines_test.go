package lines_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// record is one record as a naive reader finds it.
type record struct {
	end  int64 // offset of its end
	text []byte
	dead bool
}

// records cuts data record by record, according to the package comment.
func records(data []byte, r lines.Rules) (out []record) {
	for at := 0; at < len(data); {
		i := bytes.IndexByte(data[at:], '\n')
		content, next := len(data)-at, len(data)
		if i >= 0 {
			content, next = i, at+i+1
		}
		if content > r.MaxRecord && !r.DeadLetter {
			content, next = r.MaxRecord, at+r.MaxRecord
		}
		kept := data[at : at+min(content, r.MaxRecord)]
		out = append(out, record{int64(next), append(slices.Clone(kept), '\n'),
			content > r.MaxRecord})
		at = next
	}
	return out
}

// cuts returns the ends of the batches of a sealed file that is read from its start.
func cuts(recs []record, l stream.BatchLimits) (out []int64) {
	from, n, beyond := int64(0), 0, false
	for i, r := range recs {
		n++
		size := r.end - from
		if r.end >= (from/int64(l.Bytes)+1)*int64(l.Bytes) &&
			int64(n)*int64(l.Bytes) > size*int64(l.Records) {
			beyond = true
		}
		end := from + int64(l.Bytes)
		if !beyond {
			end = (from/int64(l.Bytes) + 1) * int64(l.Bytes)
		}
		if r.end >= end || n >= l.Records || i == len(recs)-1 {
			out, from, n, beyond = append(out, r.end), r.end, 0, false
		}
	}
	return out
}

var part = &stream.Partition{ID: "p", Name: "a.log"}

// drain reads data from c on to its seal and returns the batches.
func drain(t testing.TB, data []byte, c lines.Cursor, r lines.Rules,
	limits stream.BatchLimits) (out []*stream.Batch) {
	t.Helper()
	f := lines.File{ReaderAt: bytes.NewReader(data), Part: part, Size: int64(len(data)),
		Sealed: true}
	filler := lines.Filler{Rules: r}
	for n := 0; ; n++ {
		if n > len(data)+2 {
			t.Fatalf("no end after %d batches", n)
		}
		b := stream.NewBatch(limits)
		res, err := filler.Fill(b, &c, f)
		if err != nil || res == lines.NoRoom {
			t.Fatalf("Fill: %v, %v", res, err)
		}
		filler.Complete(b)
		out = append(out, b)
		if res == lines.Drained {
			if last := b.Spans[len(b.Spans)-1]; !last.Last || last.To.Num != int64(len(data)) {
				t.Fatalf("the last span is %+v, want a seal at %d", last, len(data))
			}
			return out
		}
	}
}

// check compares the records in batches with those that the naive reader finds (recs), from offset
// from on and without those in the settled ranges (above).
func check(t *testing.T, batches []*stream.Batch, recs []record, from int64, above []stream.Range) {
	t.Helper()
	settled := func(end int64) bool {
		return end <= from ||
			slices.ContainsFunc(above, func(r stream.Range) bool {
				return end > r.From.Num && end <= r.To.Num
			})
	}
	recs = slices.DeleteFunc(slices.Clone(recs), func(r record) bool { return settled(r.end) })
	at := from
	for _, b := range batches {
		b.Split()
		raw := 0
		for _, s := range b.Spans {
			for _, r := range above {
				if at == r.From.Num {
					at = r.To.Num
				}
			}
			if s.From.Num != at {
				t.Fatalf("span %+v begins at %d, want %d", s, s.From.Num, at)
			}
			at = s.To.Num
			raw += s.Bytes
		}
		if raw != len(b.Data) || len(b.Records) != b.Origins {
			t.Fatalf("spans count %d bytes of %d, Origins is %d for %d records", raw, len(b.Data),
				b.Origins, len(b.Records))
		}
		for i := range b.Records {
			if len(recs) == 0 {
				t.Fatalf("more records than there are: %q", b.Raw(i))
			}
			want := recs[0]
			recs = recs[1:]
			got := b.Records[i]
			if !bytes.Equal(b.Raw(i), want.text) || got.Origin.Num != want.end ||
				(got.State == stream.Dead) != want.dead {
				t.Fatalf("record %q at %d, state %v; want %q at %d, dead %v",
					b.Raw(i), got.Origin.Num, got.State, want.text, want.end, want.dead)
			}
		}
	}
	if len(recs) > 0 {
		t.Fatalf("%d records are missing, the first is %q", len(recs), recs[0].text)
	}
}

func FuzzFill(f *testing.F) {
	f.Add([]byte("a\nbb\r\nccc\n\n\x00\xff\nend"), 8, 3, 4, false, uint64(1))
	f.Add([]byte("0123456789\n0123456789\n"), 1, 100, 5, false, uint64(2))
	f.Add([]byte("0123456789012345\nx\n0123456789"), 4, 2, 3, true, uint64(3))
	f.Add([]byte(""), 4, 2, 3, true, uint64(4))
	f.Add(bytes.Repeat([]byte("line\n"), 3000), 1000, 7, 5, false, uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, size, count, most int, deadLetter bool, seed uint64) {
		limits := stream.BatchLimits{Bytes: 1 + size&0xfff, Records: 1 + count&0xff}
		rules := lines.Rules{MaxRecord: 1 + most&0xff, DeadLetter: deadLetter}
		recs := records(data, rules)
		want := cuts(recs, limits)
		batches := drain(t, data, lines.Cursor{}, rules, limits)
		check(t, batches, recs, 0, nil)
		if len(data) > 0 {
			if got := ends(batches); !slices.Equal(got, want) {
				t.Fatalf("cuts at %v, want %v", got, want)
			}
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		m := settle(rng, want)
		batches = drain(t, data, lines.Resume(m), rules, limits)
		check(t, batches, recs, m.Watermark.Num, m.Above)
		for _, e := range ends(batches) {
			if len(data) > 0 && !slices.Contains(want, e) {
				t.Fatalf("resumed at %+v it cuts at %d, the first run cut at %v", m, e, want)
			}
		}
	})
}

// TestFillFull checks all batches but the last. If the record limit is reached first, they are
// full, regardless of the multiples of the byte limit. Otherwise they end at these multiples.
func TestFillFull(t *testing.T) {
	const n = 10_000
	for _, c := range []struct {
		name   string
		line   string
		limits stream.BatchLimits
		want   int
	}{
		{"by records", "a line of 20 bytes.\n", stream.BatchLimits{Bytes: 7000, Records: 100},
			n / 100},
		{"by records, nearly by bytes", "a line of 20 bytes.\n",
			stream.BatchLimits{Bytes: 2001, Records: 100}, n / 100},
		{"by bytes", "a line of 20 bytes.\n", stream.BatchLimits{Bytes: 1000, Records: 100},
			n / 50},
		{"by bytes, nearly by records", "a line of 20 bytes.\n",
			stream.BatchLimits{Bytes: 1990, Records: 100}, n/100 + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := bytes.Repeat([]byte(c.line), n)
			rules := lines.Rules{MaxRecord: 100}
			for _, framing := range []lines.Framing{nil, byLine{}} {
				rules.Framing = framing
				batches := drain(t, data, lines.Cursor{}, rules, c.limits)
				if len(batches) != c.want {
					t.Errorf("framing %v: %d records became %d batches, want %d", framing, n,
						len(batches), c.want)
				}
				for i, b := range batches[:len(batches)-1] {
					to := b.Spans[len(b.Spans)-1].To.Num
					if over := to % int64(c.limits.Bytes); !b.Full() && over >= int64(len(c.line)) {
						t.Fatalf("framing %v: batch %d has %d records and %d bytes, and ends at %d",
							framing, i, b.Origins, len(b.Data), to)
					}
				}
			}
		})
	}
}

// byLine is a Framing that finds lines.
type byLine struct{}

func (byLine) Next(data []byte, last bool) lines.Frame {
	i := bytes.IndexByte(data, '\n')
	if i < 0 {
		return lines.Frame{}
	}
	return lines.Frame{Size: i + 1, To: i}
}
func (byLine) Exact() bool { return true }

func ends(batches []*stream.Batch) (out []int64) {
	for _, b := range batches {
		out = append(out, b.Spans[len(b.Spans)-1].To.Num)
	}
	return out
}

// settle returns a random mark in which some whole batches are settled.
func settle(rng *rand.Rand, cuts []int64) (m stream.Mark) {
	from, low := int64(0), true
	for _, to := range cuts {
		switch settled := rng.IntN(3) > 0; {
		case settled && low:
			m.Watermark.Num = to
		case settled:
			r := stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}}
			if n := len(m.Above); n > 0 && m.Above[n-1].To == r.From {
				m.Above[n-1].To = r.To
			} else {
				m.Above = append(m.Above, r)
			}
		default:
			low = false
		}
		from = to
	}
	return m
}

// TestFillGrowing reads a growing file. Each whole record must be read as soon as it is complete,
// and the rest when the file is sealed. Nothing may be read twice.
func TestFillGrowing(t *testing.T) {
	data := []byte("one\ntwo\r\nthree\na long record of forty bytes ..........\nlast")
	for _, deadLetter := range []bool{false, true} {
		rules := lines.Rules{MaxRecord: 16, DeadLetter: deadLetter}
		filler := lines.Filler{Rules: rules}
		var c lines.Cursor
		var got []*stream.Batch
		for size := 0; size <= len(data)+1; size++ {
			f := lines.File{ReaderAt: bytes.NewReader(data), Part: part,
				Size: int64(min(size, len(data))), Sealed: size > len(data)}
			for res := lines.Full; res == lines.Full; {
				b := stream.NewBatch(stream.BatchLimits{Bytes: 10})
				var err error
				if res, err = filler.Fill(b, &c, f); err != nil {
					t.Fatal(err)
				}
				if filler.Complete(b); len(b.Spans) > 0 {
					got = append(got, b)
				}
			}
		}
		check(t, got, records(data, rules), 0, nil)
	}
}

// TestFillGrowingWhole checks that the available bytes of a growing file are not cut at a multiple
// of the limit if all of them fit into the batch. This holds for a batch with this file alone, and
// for a batch that has other files before it. Larger amounts, and sealed files, are cut.
func TestFillGrowingWhole(t *testing.T) {
	data := bytes.Repeat([]byte("12345\n"), 10)
	for _, c := range []struct {
		name               string
		before             string // of another file in the batch
		next, size, stands int64
		sealed             bool
		want               lines.Result
	}{
		{name: "across a multiple", next: 18, size: 36, stands: 36, want: lines.Drained},
		{name: "behind another file", before: "123\n", next: 18, size: 30, stands: 30,
			want: lines.Drained},
		{name: "half a record at its end", next: 18, size: 34, stands: 30, want: lines.Drained},
		{name: "more than fits", next: 18, size: 42, stands: 24, want: lines.Full},
		{name: "sealed", next: 18, size: 36, stands: 24, sealed: true, want: lines.Full},
		{name: "sealed behind another file", before: "123\n", next: 18, size: 30, stands: 18,
			sealed: true, want: lines.NoRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			filler, b := lines.Filler{Rules: lines.Rules{MaxRecord: 100}},
				stream.NewBatch(stream.BatchLimits{Bytes: 20})
			if c.before != "" {
				other := &stream.Partition{ID: "other", Name: "other"}
				f := lines.File{ReaderAt: strings.NewReader(c.before), Part: other,
					Size: int64(len(c.before)), Sealed: true}
				if res, err := filler.Fill(b, new(lines.Cursor), f); res != lines.Drained ||
					err != nil {
					t.Fatalf("%v, %v", res, err)
				}
			}
			at := &lines.Cursor{Next: c.next}
			f := lines.File{ReaderAt: bytes.NewReader(data), Part: part, Size: c.size,
				Sealed: c.sealed, Growing: true}
			res, err := filler.Fill(b, at, f)
			if res != c.want || err != nil || at.Next != c.stands ||
				len(b.Data) != len(c.before)+int(c.stands-c.next) {
				t.Errorf("Fill = %v, %v, stands at %d with %d bytes; want %v at %d", res, err,
					at.Next, len(b.Data), c.want, c.stands)
			}
		})
	}
}

// TestFillJoins checks that a batch takes several small files if each of them fits as a whole. A
// file that does not fit stays untouched.
func TestFillJoins(t *testing.T) {
	limits := stream.BatchLimits{Bytes: 20, Records: 5}
	filler := lines.Filler{Rules: lines.Rules{MaxRecord: 100}}
	b := stream.NewBatch(limits)
	fill := func(id, data string, next int64, want lines.Result) *lines.Cursor {
		t.Helper()
		p := &stream.Partition{ID: id, Name: id}
		c := &lines.Cursor{Next: next}
		f := lines.File{ReaderAt: bytes.NewReader([]byte(data)), Part: p, Size: int64(len(data)),
			Sealed: true}
		if res, err := filler.Fill(b, c, f); err != nil || res != want {
			t.Fatalf("Fill(%s) = %v, %v; want %v", id, res, err, want)
		}
		return c
	}
	fill("a", "a1\na2\n", 0, lines.Drained)
	fill("b", "", 0, lines.Drained)
	fill("c", "c1", 0, lines.Drained)
	if c := fill("d", "0123456789\n", 0, lines.Drained); c.Next != 11 {
		t.Errorf("d stands at %d, want 11", c.Next)
	}
	if c := fill("e", "e", 0, lines.NoRoom); c.Next != 0 {
		t.Errorf("a file that did not fit stands at %d", c.Next)
	}
	fill("f", "begun\n", 6, lines.NoRoom) // a seal alone would fit, but the batch is full
	if got, want := string(b.Data), "a1\na2\nc1\n0123456789\n"; got != want || b.Origins != 4 ||
		len(b.Spans) != 4 {
		t.Errorf("Data is %q, %d origins, %d spans; want %q", got, b.Origins, len(b.Spans), want)
	}
	b = stream.NewBatch(limits)
	fill("g", "1\n2\n3\n", 0, lines.Drained)
	fill("h", "4\n5\n6\n", 0, lines.NoRoom) // too many records
	fill("i", "begun\n", 3, lines.NoRoom)   // not a whole file
	fill("j", "begun\n", 6, lines.Drained)  // only the seal
	if got := string(b.Data); got != "1\n2\n3\n" || len(b.Spans) != 2 || !b.Spans[1].Last ||
		b.Spans[1].From.Num != 6 {
		t.Errorf("Data is %q, spans %+v", got, b.Spans)
	}
}

func TestFillShrunk(t *testing.T) {
	filler := lines.Filler{Rules: lines.Rules{MaxRecord: 4, DeadLetter: true}}
	b, c := stream.NewBatch(stream.BatchLimits{Bytes: 8}), lines.Cursor{}
	for _, data := range []string{"abc\n", "a\nb\nc", "abcdefghi"} {
		f := lines.File{ReaderAt: bytes.NewReader([]byte(data)), Part: part, Size: 3 << 20,
			Sealed: true}
		if _, err := filler.Fill(b, &c, f); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Fill of %q, announced as 3 MiB: %v, want io.ErrUnexpectedEOF", data, err)
		}
		if len(b.Data)+len(b.Spans)+b.Origins > 0 || c.Next != 0 {
			t.Errorf("after an error the batch holds %q, the cursor stands at %d", b.Data, c.Next)
		}
	}
}

// TestFillAllocations checks that neither a record nor a batch from the pool causes an allocation.
func TestFillAllocations(t *testing.T) {
	data := bytes.Repeat([]byte("127.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / "+
		"HTTP/1.1\" 200 1\r\n"), 20000)
	f := lines.File{ReaderAt: bytes.NewReader(data), Part: part, Size: int64(len(data)),
		Sealed: true}
	for _, limits := range []stream.BatchLimits{{}, {Bytes: 1 << 20, Records: 700}} {
		var pool stream.Pool
		filler := lines.Filler{Rules: lines.Rules{MaxRecord: 1 << 20}}
		allocs := testing.AllocsPerRun(10, func() {
			var c lines.Cursor
			for res := lines.Full; res != lines.Drained; {
				b := pool.Get(limits)
				var err error
				if res, err = filler.Fill(b, &c, f); err != nil {
					t.Fatal(err)
				}
				filler.Complete(b)
				b.Release()
			}
		})
		if allocs > 0 {
			t.Errorf("limits %+v: %v allocations for 20000 records, want 0", limits, allocs)
		}
	}
}

// TestFillAligned checks that the data of a large batch has the same offset in its memory page as
// in its page of the file, for a fast copy (see stream.Batch.Align).
func TestFillAligned(t *testing.T) {
	data := bytes.Repeat([]byte("a line of some length\n"), 60_000)
	for n, b := range drain(t, data, lines.Cursor{}, lines.Rules{MaxRecord: 1 << 20},
		stream.BatchLimits{Records: 1 << 20}) {
		from := b.Spans[0].From.Num
		if at := int64(uintptr(unsafe.Pointer(&b.Data[0]))); len(b.Data) >= 128<<10 &&
			(at-from)%4096 != 0 {
			t.Errorf("batch %d begins at byte %d of its page, and at %d of the file's", n, at%4096,
				from%4096)
		}
	}
}
