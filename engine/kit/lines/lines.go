// Package lines cuts a file of lines into aligned batches, without touching a record.
//
// It reads straight into a batch's arena, finds where the batch ends with a few vector
// instructions, and counts line ends; what a line holds is no business of it. It is shared by the
// sources that read files. Who calls it owns the file, knows how much of it is there and whether
// more will come; the package opens nothing, waits for nothing and keeps nothing but the [Cursor]
// it is given.
//
// # Where a batch ends
//
// At the first record end at or after a multiple of Limits.Bytes from the file's start, or after
// Limits.Records records since the cut before, or where a settled range begins, or at the file's
// end. Where a batch comes to such a multiple with more of its records than of its bytes used up,
// it is its records that fill it: then it goes on to the first record end at or after Limits.Bytes
// from the cut before, or most batches of so many records would be full, and one at each multiple
// would not. All of these follow from the place of the cut before and the bytes behind it alone, so
// that a reader that resumes at any cut cuts where the first reader cut. (Where a file grew while
// it was read, a batch may also have ended at what was there; and what is there of a growing file
// is not cut at a multiple if all of it fits, or a hundred files that grow a little would make two
// batches of each multiple.) Records keep their ids in any case.
//
// A batch takes further files only whole: a file that does not fit starts the next one.
package lines

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// MaxSpans is how many spans a batch of many small files carries at most.
const MaxSpans = 4096

// firstLook is how many bytes of a file are read at first for a batch that may take more: it may
// have all its records in them.
const firstLook = 512 << 10

// readMax is how many bytes are asked of the file at once.
const readMax = 1 << 20

// alignFrom is how much of a file is read at least into an arena that is aligned for it: below, it
// would cost a page for nothing.
const alignFrom = 64 << 10

// Rules say what becomes of long records.
type Rules struct {
	// MaxRecord is how many bytes a record may have, its LF not counted; at least 1. A longer one is
	// cut into pieces of that many bytes, each a record of its own, in a span of its own, with a line
	// end added.
	MaxRecord int
	// Bury makes a longer record one dead letter of its first MaxRecord bytes, whose span covers all
	// of it.
	Bury bool
	// Framing finds records that are not lines; nil: they are. With it a record that is too long is
	// always cut.
	Framing Framing
}

// Cursor is where a reader stands in one file.
type Cursor struct {
	Next  int64          // everything before was handed out or settled; at a record's start
	Above []stream.Range // settled ranges above Next, ascending; they are skipped

	searched int64 // Bury: the record at Next has no line end before this offset
	beyond   int   // how many bytes a batch takes more than its limit, because its last record is long
	guess    int   // how many bytes of records the next batch will take, and some more; 0: not known
}

// Resume returns the cursor of a reader that goes on at m.
func Resume(m stream.Mark) Cursor {
	return Cursor{Next: m.Watermark.Num, Above: slices.Clone(m.Above)}
}

// skip moves over the settled ranges that begin at or before Next.
func (c *Cursor) skip() {
	for len(c.Above) > 0 && c.Above[0].From.Num <= c.Next {
		c.Next = max(c.Next, c.Above[0].To.Num)
		c.Above = c.Above[1:]
	}
}

// File is what is known of the file at the time of a call.
type File struct {
	io.ReaderAt
	Part   *stream.Partition
	Size   int64 // bytes that are there; no more is read
	Sealed bool  // nothing will follow Size: the last record ends there, with or without a line end
	// Flush ends the last record at Size although more may follow, as a record of its own; Sealed does
	// so anyway.
	Flush bool
	// Framing is this file's own; nil: that of the rules. Both are nil or none.
	Framing Framing
	// Growing lets a batch of other files take what is there of this one, if all of it fits, although
	// it is not sealed.
	Growing bool
	// Before are bytes, at most MaxBefore, that have to stand just before Cursor.Next; nil: it is not
	// looked. They are read together with what is behind them, and where others stand there Fill adds
	// nothing and returns ErrOther. Nil with framing, and with settled ranges in the cursor.
	Before []byte
}

// MaxBefore is how long File.Before is at most.
const MaxBefore = 64

// ErrOther is what Fill returns of a file in which other bytes stand than File.Before.
var ErrOther = errors.New("other bytes stand before the place up to which the file was read")

// Result says how a call of Fill ended.
type Result uint8

// The results of Fill.
const (
	Drained Result = iota // all whole records up to Size were handed out; with Sealed also the last one and the seal
	Full                  // the batch ends here: hand it out, then go on with a fresh one
	NoRoom                // the batch holds other files, and this one does not fit whole; nothing was added
)

// Filler fills batches by its rules. Its owner is one reader; it keeps only what the batch in work
// needs.
type Filler struct {
	Rules
	buried  []buried
	records []stream.Record // with Framing: of the batch in work
	graves  []grave         // of those, ascending
	text    []byte          // of the stretch in work, where it is not the file's
	fresh   []byte          // of the frame in work
	ends    []int           // of the frame in work
	seen    sight
}

// buried is a record that is longer than MaxRecord and becomes a dead letter.
type buried struct {
	span int
	size int64
}

// Fill appends records of f from c.Next on, and their spans, to b. A batch that is empty, or that
// holds only the stretch of this file just before c.Next, takes what it can; one that holds other
// files takes only a whole sealed file, or a seal without bytes. After an error
// (io.ErrUnexpectedEOF: f has less than Size bytes; ErrOther) b and c are as before.
func (l *Filler) Fill(b *stream.Batch, c *Cursor, f File) (Result, error) {
	data, spans, origins, added := len(b.Data), len(b.Spans), b.Origins, b.Added
	graves, before := len(l.buried), *c
	last := stream.Span{}
	if spans > 0 {
		last = b.Spans[spans-1]
	}
	c.skip()
	joining := spans > 0 && (b.Spans[0].Part.ID != f.Part.ID || last.Part.ID != f.Part.ID)
	res, err := NoRoom, error(nil)
	if !joining || fits(b, c, f) {
		res, err = l.fill(b, c, f)
	}
	if err != nil || joining && (res != Drained || len(b.Data) > b.Limits().Bytes) {
		if spans > 0 {
			b.Spans[spans-1] = last
		}
		b.Data, b.Spans, b.Origins, b.Added = b.Data[:data], b.Spans[:spans], origins, added
		l.buried, *c = l.buried[:graves], before
		l.forget(spans)
		return NoRoom, err
	}
	return res, nil
}

// fits says whether a whole file may still be added to b, as far as that can be known before it is
// read.
func fits(b *stream.Batch, c *Cursor, f File) bool {
	if !f.Sealed && !f.Growing || b.Full() || len(b.Spans) >= MaxSpans {
		return false
	}
	if f.Growing && len(c.Above) == 0 && f.Size-c.Next <= int64(b.Limits().Bytes-len(b.Data)) {
		return true
	}
	return c.Next >= f.Size || c.Next == 0 && len(c.Above) == 0 && f.Size <= int64(b.Limits().Bytes-len(b.Data))
}

func (l *Filler) fill(b *stream.Batch, c *Cursor, f File) (Result, error) {
	if c.Next < f.Size {
		end, closed := f.Size, f.Sealed || f.Flush
		if len(c.Above) > 0 && c.Above[0].From.Num <= end {
			end, closed = c.Above[0].From.Num, true
		}
		full, err := false, error(nil)
		if l.Framing == nil {
			full, err = l.stretch(b, c, f, end, closed)
		} else {
			full, err = l.framed(b, c, f, end, closed)
		}
		switch c.skip(); {
		case err != nil:
			return NoRoom, err
		case full && (c.Next < f.Size || !f.Sealed), closed && c.Next < f.Size: // where a settled range begins is a cut, too
			return Full, nil
		case c.Next < f.Size: // what is left is no whole record yet
			return Drained, nil
		}
	}
	if f.Sealed {
		seal(b, c, f)
	}
	return Drained, nil
}

// seal says that nothing follows: on the span that ends there, or on an empty one.
func seal(b *stream.Batch, c *Cursor, f File) {
	if n := len(b.Spans); n > 0 && b.Spans[n-1].Part.ID == f.Part.ID && b.Spans[n-1].To.Num == c.Next {
		b.Spans[n-1].Last = true
		return
	}
	at := stream.Position{Num: c.Next}
	b.Spans = append(b.Spans, stream.Span{Part: f.Part, Range: stream.Range{From: at, To: at}, Last: true})
}

// stretch hands out from c.Next up to end, or to where the batch is full. closed: the stretch is
// known to end there.
func (l *Filler) stretch(b *stream.Batch, c *Cursor, f File, end int64, closed bool) (full bool, err error) {
	limits, begun := b.Limits(), begunAt(b, c, f)
	for c.Next < end {
		t := targetOf(begun, c.Next, limits)
		if f.Growing && !f.Sealed && end-c.Next <= int64(limits.Bytes-len(b.Data)) {
			t = target{at: end + 1, begun: begun} // the cut is at what is there
		}
		base := len(b.Data)
		d, have, long, err := l.look(b, c, f, t, end)
		if err != nil {
			return false, err
		}
		f.Before = nil // they stand before what was read first
		if d.n > 0 {
			add(b, c, f, int64(d.n), d.n, d.records, false)
			b.Data = b.Data[:base+d.n]
		}
		switch {
		case d.full:
			return true, nil
		case long >= 0:
			if more, err := l.long(b, c, f, end, closed); err != nil || !more {
				return false, err
			}
			if b.Origins >= limits.Records || c.Next >= t.passing(c.Next, b.Origins, limits).at {
				return true, nil
			}
		case have > d.n && closed:
			b.Data = append(b.Data[:base+have], '\n')
			b.Added++
			add(b, c, f, int64(have-d.n), have-d.n+1, 1, false)
			return false, nil
		default:
			return false, nil
		}
	}
	return false, nil
}

// begunAt is where the batch that goes on at c.Next began.
func begunAt(b *stream.Batch, c *Cursor, f File) int64 {
	if len(b.Spans) > 0 && b.Spans[0].Part.ID == f.Part.ID {
		return b.Spans[0].From.Num
	}
	return c.Next
}

// look reads from c.Next on, behind b.Data, until it sees where the batch ends, a record that is
// too long, or the end. It returns how many bytes it has read and where among them the long record
// starts, or -1.
func (l *Filler) look(b *stream.Batch, c *Cursor, f File, t target, end int64) (d cut, have, long int, err error) {
	base, room := len(b.Data), b.Limits().Records-b.Origins
	slack := int64(min(b.Limits().Bytes/8, 4096) + 256) // the record that lies across the target mostly ends in it
	whole := int(min(end, t.at+slack) - c.Next)
	want := min(whole, firstLook)
	if c.guess > 0 {
		want = min(whole, c.guess)
	}
	if c.beyond > 0 && want == whole { // records are that long here
		want = int(min(end-c.Next, int64(whole)+int64(c.beyond)))
	}
	if want >= alignFrom {
		b.Align(c.Next, want+1)
	}
	b.Data = slices.Grow(b.Data, want+1)
	for {
		if have, err = read(b, f, base, have, want, c.Next); err != nil {
			return d, have, -1, err
		}
		data := b.Data[base : base+have : base+have]
		if long = firstLong(data, l.MaxRecord); long >= 0 {
			data = data[:long]
		}
		d = decide(data, c.Next, t.at, room)
		if d.full && d.records < room {
			if over := t.passing(c.Next+int64(d.n), b.Origins+d.records, b.Limits()); over.at > t.at {
				t, whole = over, int(min(end, over.at+slack)-c.Next)
				d = decide(data, c.Next, t.at, room)
			}
		}
		if d.full || long >= 0 || c.Next+int64(have) >= end {
			break
		}
		if want < whole {
			want = min(whole, 2*want)
		} else {
			want = int(min(end-c.Next, int64(have)+int64(max(have/2, 4096))))
		}
	}
	if d.records > 0 && d.n <= whole {
		c.beyond /= 2
	} else if d.records > 0 {
		c.beyond = d.n - whole + d.n/8
	}
	if d.records > 0 { // the next batch is cut by its records, or by its bytes, whichever comes first
		records := float64(b.Limits().Records)
		c.guess = int(min(records*float64(d.n)/float64(d.records)*1.25+256, 1<<30))
	}
	b.Data = b.Data[:base]
	return d, have, long, nil
}

// read makes the bytes of f from off on that stand in b.Data from base on want bytes long; have of
// them are there.
func read(b *stream.Batch, f File, base, have, want int, off int64) (int, error) {
	b.Data = slices.Grow(b.Data[:base+have], max(want-have, 0)+1)
	if have == 0 && len(f.Before) > 0 {
		n := min(want, readMax)
		if err := f.readBehind(b.Data[:base+n], base, off); err != nil {
			return have, err
		}
		have = n
	}
	for have < want {
		n := min(want-have, readMax)
		if err := f.readFull(b.Data[base+have:base+have+n:base+have+n], off+int64(have)); err != nil {
			return have, err
		}
		have += n
	}
	b.Data = b.Data[:base+have]
	return have, nil
}

// readFull reads all of buf; a file that is too short is io.ErrUnexpectedEOF.
func (f *File) readFull(buf []byte, off int64) error {
	got, err := f.ReadAt(buf, off)
	if got == len(buf) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readBehind reads data[base:] from off on, and what stands before it, by one call: into the place
// of the last bytes of data[:base], which are put back. Where there are too few of those it takes
// two calls, the bytes before last.
func (f *File) readBehind(data []byte, base int, off int64) error {
	n := len(f.Before)
	if base < n {
		if err := f.readFull(data[base:], off); err != nil {
			return err
		}
		before := make([]byte, n)
		if err := f.readFull(before, off-int64(n)); err != nil {
			return err
		}
		return f.behind(before)
	}
	var kept [MaxBefore]byte
	place := data[base-n : base]
	copy(kept[:], place)
	err := f.readFull(data[base-n:], off-int64(n))
	if err == nil {
		err = f.behind(place)
	}
	copy(place, kept[:])
	return err
}

func (f *File) behind(before []byte) error {
	if !bytes.Equal(before, f.Before) {
		return ErrOther
	}
	return nil
}

// add appends a span for the next size bytes of f, which stand in the arena as bytes, or lengthens
// the one before it. own: as a span of its own, because the record in it ends where its bytes do
// not say.
func add(b *stream.Batch, c *Cursor, f File, size int64, bytes, records int, own bool) {
	from := c.Next
	c.Next += size
	c.searched = 0
	b.Origins += records
	if n := len(b.Spans); n > 0 && !own {
		s := &b.Spans[n-1]
		if s.Part.ID == f.Part.ID && s.To.Num == from && s.To.Num-s.From.Num == int64(s.Bytes) {
			s.To.Num, s.Bytes = c.Next, s.Bytes+bytes
			return
		}
	}
	b.Spans = append(b.Spans, stream.Span{
		Part: f.Part, Bytes: bytes, Range: stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: c.Next}},
	})
}
