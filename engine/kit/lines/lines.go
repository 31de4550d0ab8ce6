// Package lines cuts a file of lines into aligned batches without processing single records.
//
// It reads directly into a batch's arena, finds the end of the batch with a few vector
// instructions, and counts line ends. It does not interpret the lines. File sources share it. Its
// caller owns the file and knows how many bytes exist and whether more will follow. The package
// opens nothing, waits for nothing and keeps no state except the [Cursor] passed to it.
//
// # The end of a batch
//
// A batch ends at the first record end at or after a multiple of Limits.Bytes from the file's
// start. It ends earlier after Limits.Records records, at the start of a settled range, and at the
// end of the file.
//
// If a batch reaches such a multiple with a larger share of its records used than of its bytes, its
// record limit is the effective one. The batch then continues to the first record end at or after
// Limits.Bytes from its start. Otherwise most batches would be full, and one at each multiple would
// be small.
//
// All these cuts depend only on the previous cut and the bytes after it. A reader that resumes at
// any cut therefore cuts at the same places as the first reader. There are two exceptions for
// growing files. A batch may have ended at the end of the file at that time. The new bytes of a
// growing file are not cut at a multiple if all of them fit. Otherwise a hundred slowly growing
// files would make two batches for each multiple. Records keep their ids in any case.
//
// A batch takes further files only as a whole: a file that does not fit begins the next batch.
package lines

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// MaxSpans bounds the number of spans in a batch of many small files.
const MaxSpans = 4096

// firstLook is the size of the first read of a file for a batch with a larger limit, because these
// bytes may contain all its records.
const firstLook = 512 << 10

// readMax bounds the size of one read.
const readMax = 1 << 20

// alignFrom is the minimum size of a read for which the arena is aligned. Alignment may waste a
// page, which is too much for smaller reads.
const alignFrom = 64 << 10

// Rules determine the treatment of long records, and the framing.
type Rules struct {
	// MaxRecord bounds the length of a record without its LF; at least 1. A longer record is cut
	// into pieces of that length. Each piece is a record in a span of its own, with an added line
	// end.
	MaxRecord int
	// DeadLetter turns a longer record into one dead letter of its first MaxRecord bytes. Its span
	// covers the whole record.
	DeadLetter bool
	// Framing finds records that are not lines. Nil means lines. With a Framing, long records are
	// always cut.
	Framing Framing
}

// Cursor is a reader's position in one file.
type Cursor struct {
	Next  int64          // everything before is handed out or settled; at a record's start
	Above []stream.Range // settled ranges above Next, ascending; they are skipped

	searched int64 // with DeadLetter: the record at Next has no line end before this offset
	// excess of the last batch over its byte limit, due to a long last record
	beyond int
	// estimate of the bytes of the next batch, with a reserve; 0 if unknown
	guess int
}

// Resume returns the cursor of a reader that resumes at m.
func Resume(m stream.Mark) Cursor {
	return Cursor{Next: m.Watermark.Num, Above: slices.Clone(m.Above)}
}

// skip advances over the settled ranges that begin at or before Next.
func (c *Cursor) skip() {
	for len(c.Above) > 0 && c.Above[0].From.Num <= c.Next {
		c.Next = max(c.Next, c.Above[0].To.Num)
		c.Above = c.Above[1:]
	}
}

// File is the state of a file at the time of a call.
type File struct {
	io.ReaderAt
	Part   *stream.Partition
	Size   int64 // bytes available; no more is read
	Sealed bool  // nothing will follow: the last record ends at Size, with or without a line end
	// Flush ends the last record at Size as a record of its own, although more may follow. Sealed
	// implies it.
	Flush bool
	// Framing is this file's own framing. Nil means Rules.Framing. It must be nil if Rules.Framing
	// is nil.
	Framing Framing
	// Growing lets a batch with other files take the available bytes of this file, if all of them
	// fit, although it is not sealed.
	Growing bool
	// Before holds at most MaxBefore bytes that must precede Cursor.Next in the file. They are read
	// together with the bytes behind them. If the file contains other bytes, Fill adds nothing and
	// returns ErrOther. Nil means no check. It must be nil with framing, and with settled ranges in
	// the cursor.
	Before []byte
}

// MaxBefore bounds the length of File.Before.
const MaxBefore = 64

// ErrOther is returned by Fill if the file does not contain File.Before.
var ErrOther = errors.New("the bytes before the position differ from those read earlier")

// Result is the way in which a call of Fill ended.
type Result uint8

// The results of Fill.
const (
	// all whole records up to Size were handed out; with Sealed also the last one and the seal
	Drained Result = iota
	Full           // the batch is complete: hand it out and continue with an empty one
	// the batch holds other files and this one does not fit; nothing was added
	NoRoom
)

// Filler fills batches according to its rules. It is owned by one reader, and keeps only the state
// of the current batch.
type Filler struct {
	Rules
	deadLettered []deadLettered
	records      []stream.Record // with Framing: of the current batch
	badRecords   []badRecord     // of these, ascending
	text         []byte          // of the current stretch, if it differs from the file's bytes
	fresh        []byte          // of the current frame
	ends         []int           // of the current frame
	seen         seenBytes
}

// deadLettered is a record longer than MaxRecord that becomes a dead letter.
type deadLettered struct {
	span int
	size int64
}

// Fill appends records of f from c.Next on, and their spans, to b. A batch that is empty, or
// contains only the bytes of this file just before c.Next, takes as much as it can. A batch with
// other files takes only a whole sealed file, or a seal without bytes. After an error
// (io.ErrUnexpectedEOF: f has fewer than Size bytes; ErrOther) b and c are unchanged.
func (l *Filler) Fill(b *stream.Batch, c *Cursor, f File) (Result, error) {
	data, spans, origins, added := len(b.Data), len(b.Spans), b.Origins, b.Added
	dead, before := len(l.deadLettered), *c
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
		l.deadLettered, *c = l.deadLettered[:dead], before
		l.forget(spans)
		return NoRoom, err
	}
	return res, nil
}

// fits reports whether a whole file may be added to b, as far as that is known before reading it.
func fits(b *stream.Batch, c *Cursor, f File) bool {
	if !f.Sealed && !f.Growing || b.Full() || len(b.Spans) >= MaxSpans {
		return false
	}
	if f.Growing && len(c.Above) == 0 && f.Size-c.Next <= int64(b.Limits().Bytes-len(b.Data)) {
		return true
	}
	return c.Next >= f.Size || c.Next == 0 && len(c.Above) == 0 &&
		f.Size <= int64(b.Limits().Bytes-len(b.Data))
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
		case full && (c.Next < f.Size || !f.Sealed), closed && c.Next < f.Size:
			// the start of a settled range is a cut
			return Full, nil
		case c.Next < f.Size: // the rest is an incomplete record
			return Drained, nil
		}
	}
	if f.Sealed {
		seal(b, c, f)
	}
	return Drained, nil
}

// seal marks the end of the file, on the span that ends there or on an empty span.
func seal(b *stream.Batch, c *Cursor, f File) {
	if n := len(b.Spans); n > 0 && b.Spans[n-1].Part.ID == f.Part.ID &&
		b.Spans[n-1].To.Num == c.Next {
		b.Spans[n-1].Last = true
		return
	}
	at := stream.Position{Num: c.Next}
	b.Spans = append(b.Spans, stream.Span{Part: f.Part, Range: stream.Range{From: at, To: at},
		Last: true})
}

// stretch hands out records from c.Next up to an offset (end), or until the batch is full. closed
// means that the last record ends at that offset, even without a line end.
func (l *Filler) stretch(b *stream.Batch, c *Cursor, f File, end int64,
	closed bool) (full bool, err error) {
	limits, begun := b.Limits(), begunAt(b, c, f)
	for c.Next < end {
		t := targetOf(begun, c.Next, limits)
		if f.Growing && !f.Sealed && end-c.Next <= int64(limits.Bytes-len(b.Data)) {
			t = target{at: end + 1, begun: begun} // cut at the end of the available bytes
		}
		base := len(b.Data)
		d, have, long, err := l.look(b, c, f, t, end)
		if err != nil {
			return false, err
		}
		f.Before = nil // they precede the bytes that were read first
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

// begunAt returns the start of the batch that continues at c.Next.
func begunAt(b *stream.Batch, c *Cursor, f File) int64 {
	if len(b.Spans) > 0 && b.Spans[0].Part.ID == f.Part.ID {
		return b.Spans[0].From.Num
	}
	return c.Next
}

// look reads from c.Next on, behind b.Data, until it finds the end of the batch, a record that is
// too long, or the end of the file. It returns the number of bytes read, and the offset of the long
// record among them or -1.
func (l *Filler) look(b *stream.Batch, c *Cursor, f File, t target,
	end int64) (d cut, have, long int, err error) {
	base, room := len(b.Data), b.Limits().Records-b.Origins
	// the record that crosses the target usually ends within slack
	slack := int64(min(b.Limits().Bytes/8, 4096) + 256)
	whole := int(min(end, t.at+slack) - c.Next)
	want := min(whole, firstLook)
	if c.guess > 0 {
		want = min(whole, c.guess)
	}
	if c.beyond > 0 && want == whole { // records are long enough to need the excess
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
			if over := t.passing(c.Next+int64(d.n), b.Origins+d.records,
				b.Limits()); over.at > t.at {
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
	// the next batch is cut by its records or by its bytes, whichever comes first
	if d.records > 0 {
		records := float64(b.Limits().Records)
		c.guess = int(min(records*float64(d.n)/float64(d.records)*1.25+256, 1<<30))
	}
	b.Data = b.Data[:base]
	return d, have, long, nil
}

// read completes a part of f in b.Data. The part begins at offset off in the file and at base in
// b.Data. have of its bytes are in b.Data already, and want is the number of bytes after the call.
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
		if err := f.readFull(b.Data[base+have:base+have+n:base+have+n],
			off+int64(have)); err != nil {
			return have, err
		}
		have += n
	}
	b.Data = b.Data[:base+have]
	return have, nil
}

// readFull fills buf; a file that is too short is io.ErrUnexpectedEOF.
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

// readBehind fills data[base:] from offset off and reads the preceding bytes in the same call. For
// that it temporarily overwrites the last bytes of data[:base] and restores them. If there are too
// few of those, it reads the preceding bytes in a second call.
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

// add extends the previous span, or appends a new one, for the next size bytes of f. They take the
// given number of bytes in the arena. own forces a separate span, because the end of its record
// cannot be derived from its bytes.
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
		Part: f.Part, Bytes: bytes, Range: stream.Range{From: stream.Position{Num: from},
			To: stream.Position{Num: c.Next}},
	})
}
