// Package lines reads the records of a file into batches. Sources of files use it. The records are
// lines, unless the caller has a [Framing]. Lines are not processed one by one: the package reads
// directly into a batch's memory, finds the end of the batch with a few vector instructions, and
// counts line ends.
//
// The caller opens the file, knows how many bytes exist, and knows whether more will follow. The
// package waits for nothing. It keeps its position in the file in a [Cursor] of the caller.
//
// # The end of a batch
//
// A batch ends at the first record end at or after a multiple of Limits.Bytes from the file's
// start. It ends earlier after Limits.Records records, and at the start of a settled range (its
// records are delivered, dead-lettered or dropped). It also ends at the end of the file, if no
// other file is added to it (see below). Example with a limit of 1000 bytes and records of 300
// bytes: the first batch ends at 1200, the second at 2100.
//
// If the records are short, a batch may reach its record limit before its byte limit. A batch with
// short records is one that has used a larger share of its record limit than of its byte limit.
// When it reaches a multiple, it continues to the first record end at or after Limits.Bytes from
// its own start. Otherwise most batches would be full, and one at each multiple would be small.
// Example with limits of 1000 bytes and 20 records, and records of 30 bytes: the batches end at
// 600, 1200, 1800, and not at 600, 1020, 1620.
//
// The end of a batch depends only on the end of the previous batch and the bytes after it. A reader
// that resumes at the end of any batch therefore makes the same batches as the first reader. There
// are two exceptions for growing files:
//
//   - A batch may end at the end of the file at that time.
//   - A batch does not end at a multiple within the new bytes of a growing file if all of them fit
//     into the batch. Otherwise a hundred slowly growing files would cause many small batches: one
//     would end at each multiple in each file.
//
// Records have the same ids in any case.
//
// A batch can contain several files. A second or later file is added only as a whole, or with all
// its available bytes if it is growing (File.Growing). A file that does not fit begins the next
// batch.
package lines

import (
	"io"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// MaxSpans bounds the number of spans in a batch of many small files.
const MaxSpans = 4096

// firstLook is the size of the first read of a file if the byte limit of the batch is larger. Often
// these bytes already contain as many records as the batch may have.
const firstLook = 512 << 10

// alignFrom is the minimum size of a read for which the memory of the batch is aligned to pages.
// Alignment may waste a page, which is too much for a smaller read.
const alignFrom = 64 << 10

// Rules determine how records are found and how long records are treated.
type Rules struct {
	// MaxRecord is the maximum length of a record without its LF, at least 1. Unless DeadLetter is
	// set, a longer record is cut into parts of at most that length. Each part becomes a record.
	MaxRecord int
	// DeadLetter makes a record longer than MaxRecord a dead letter with its first MaxRecord bytes.
	// The span of this dead letter covers the whole record.
	DeadLetter bool
	// Framing finds records that are not lines. Nil means that records are lines. With a Framing,
	// long records are always cut, regardless of DeadLetter.
	Framing Framing
}

// Cursor is a reader's position in one file.
type Cursor struct {
	Next  int64          // all bytes before it were handed out or settled; at a record's start
	Above []stream.Range // settled ranges above Next, ascending; they are skipped

	searched int64 // if DeadLetter is set: the record at Next has no line end before this
	// beyond is a number of additional bytes for the first read of the next batch, so that it also
	// contains the end of a long last record. It is greater than 0 if a recent batch ended with a
	// long record.
	beyond int
	// guess is the estimated size of the next batch in bytes, with a reserve. It is 0 if unknown.
	guess int
}

// Resume returns the cursor of a reader that resumes with the progress m.
func Resume(m stream.Mark) Cursor {
	return Cursor{Next: m.Watermark.Num, Above: slices.Clone(m.Above)}
}

// skip moves Next past the settled ranges that begin at or before Next.
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
	// Flush makes the bytes between the last line end and Size a record, although more bytes may
	// follow. Sealed implies it.
	Flush bool
	// Framing is this file's own framing. Nil means Rules.Framing. It must be nil if Rules.Framing
	// is nil.
	Framing Framing
	// Growing allows this file to be added to a batch with other files although it is not sealed,
	// if all its available bytes fit.
	Growing bool
}

// Result tells the caller of Fill how to continue.
type Result uint8

// The results of Fill.
const (
	// Drained means that all whole records up to Size were handed out. If the file is sealed, its
	// last record and the seal were handed out as well.
	Drained Result = iota
	Full           // the batch is complete: hand it out and continue with an empty one
	// NoRoom means that the batch has other files and this one does not fit. Nothing was added.
	NoRoom
)

// Filler fills batches according to its rules. It belongs to one reader, and keeps only state of
// the current batch.
type Filler struct {
	Rules
	records []stream.Record // records of the current batch, if there is a Framing
	bad     []badRecord     // those of the batch, in the order of its records
	text    []byte          // text of the current stretch, if it differs from the file's bytes
	fresh   []byte          // of the current frame
	ends    []int           // of the current frame
	seen    seenBytes
}

// badRecord is a record that will be dead-lettered: it has invalid bytes, or is longer than
// MaxRecord.
type badRecord struct {
	record int // its index in the batch
	reason error
}

// Fill appends the records of f from c.Next on to b, with their spans. If b is empty, or contains
// only the bytes of this file just before c.Next, Fill appends as much as possible. If b contains
// other files, Fill appends only a whole file, all available bytes of a file with Growing set, or
// the seal of a file without further bytes.
//
// The error is a *TextError, the error of a read, or io.ErrUnexpectedEOF if f has fewer
// than Size bytes. After an error, b and c are unchanged.
func (l *Filler) Fill(b *stream.Batch, c *Cursor, f File) (Result, error) {
	saved, before := l.Save(b), *c
	c.skip()
	n := len(b.Spans)
	joining := n > 0 && (b.Spans[0].Part.ID != f.Part.ID || b.Spans[n-1].Part.ID != f.Part.ID)
	res, err := NoRoom, error(nil)
	if !joining || fits(b, c, f) {
		res, err = l.fill(b, c, f)
	}
	if err != nil || joining && (res != Drained || len(b.Data) > b.Limits().Bytes) {
		l.Restore(b, saved)
		*c = before
		return NoRoom, err
	}
	return res, nil
}

// Saved is the state of a batch at one time, to which [Filler.Restore] returns.
type Saved struct {
	data, spans, origins, added, records, bad int
	last                                      stream.Span
}

// Save returns the state of b, which is being filled.
func (l *Filler) Save(b *stream.Batch) Saved {
	s := Saved{
		data: len(b.Data), spans: len(b.Spans), origins: b.Origins, added: b.Added,
		records: len(l.records), bad: len(l.bad),
	}
	if s.spans > 0 {
		s.last = b.Spans[s.spans-1]
	}
	return s
}

// Restore removes all that Fill has added to b since Save has returned s.
func (l *Filler) Restore(b *stream.Batch, s Saved) {
	b.Data, b.Spans, b.Origins, b.Added = b.Data[:s.data], b.Spans[:s.spans], s.origins, s.added
	if s.spans > 0 {
		b.Spans[s.spans-1] = s.last
	}
	l.records, l.bad = l.records[:s.records], l.bad[:s.bad]
}

// fits reports whether f may be added to b, a batch with other files. It does not check the number
// of records in f, which is not known yet.
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
			// A batch ends at the start of a settled range.
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

// seal marks the end of the file in the span that ends there. If there is no such span, it adds an
// empty one.
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

// stretch appends lines as records. It begins at c.Next, and stops at end (an offset in the file)
// or when the batch is full. closed means that the last record ends at end, even without a line
// end.
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

// begunAt returns the offset in the file at which the current batch began. This is c.Next if the
// batch does not begin with this file.
func begunAt(b *stream.Batch, c *Cursor, f File) int64 {
	if len(b.Spans) > 0 && b.Spans[0].Part.ID == f.Part.ID {
		return b.Spans[0].From.Num
	}
	return c.Next
}

// look reads from c.Next into the memory after b.Data, until it finds the end of the batch or a
// record that is too long, or reaches end. It returns the number of bytes read (have), and the
// offset in these bytes of the first record that is too long (long), or -1.
func (l *Filler) look(b *stream.Batch, c *Cursor, f File, t target,
	end int64) (d cut, have, long int, err error) {
	base, room := len(b.Data), b.Limits().Records-b.Origins
	// The record that reaches the target usually ends within slack bytes after the target.
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
	// Estimate the size of a batch that reaches its record limit, if its records are on average as
	// long as those just read.
	if d.records > 0 {
		records := float64(b.Limits().Records)
		c.guess = int(min(records*float64(d.n)/float64(d.records)*1.25+256, 1<<30))
	}
	b.Data = b.Data[:base]
	return d, have, long, nil
}

// read reads more bytes of f into b.Data. The part to read begins at offset off in the file and at
// base in b.Data. The parameter have is the number of its bytes that are in b.Data already, and
// want is the number that must be there at the end.
func read(b *stream.Batch, f File, base, have, want int, off int64) (int, error) {
	b.Data = slices.Grow(b.Data[:base+have], max(want-have, 0)+1)
	if have >= want {
		return have, nil
	}
	b.Data = b.Data[:base+want]
	return want, ReadFull(f.ReaderAt, b.Data[base+have:], off+int64(have))
}

// ReadFull fills buf from the given offset of a file. It returns io.ErrUnexpectedEOF if the file is
// too short.
func ReadFull(f io.ReaderAt, buf []byte, off int64) error {
	got, err := f.ReadAt(buf, off)
	if got == len(buf) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// add counts the next bytes of f as read; size is their number. In b.Data they are represented by
// the given number of bytes and records. add extends the last span of b if the span ends where
// these bytes begin, and has as many bytes in b.Data as in the file. Otherwise it appends a new
// span. The parameter own demands a new span. This is necessary if the ends of the records in
// b.Data do not determine their ends in the file. The caller resets Verbatim of the span if the
// bytes in b.Data are not those of the file.
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
		Verbatim: true,
	})
}
