package lines

import (
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/stream"
)

// Framing finds records that are not lines. It keeps nothing between calls, so that a reader that
// resumes at a record's start finds the records that the first reader found.
type Framing interface {
	// Next returns the first record of data, which begins at a record's start. last says that nothing
	// follows data; then it returns a frame whenever there are bytes. A frame of size 0: the record's
	// end is not there yet.
	Next(data []byte, last bool) Frame
	// Exact says whether a record's text and a line end are what the file has; else a raw sink must
	// not copy the file's bytes.
	Exact() bool
}

// Frame is where a record stands in the bytes it was found in.
type Frame struct {
	Size     int  // bytes that it covers, with what separates it from the next
	From, To int  // its text
	None     bool // these bytes hold no record: punctuation of what is around them
}

// Writer is a Framing whose records are not bytes of the file as they stand there: they are
// decoded, or joined of pieces.
type Writer interface {
	Framing
	// Write appends the texts of the frame's records to dst, and where each of them ends in dst to
	// ends. There is at least one; several come from one origin, whose position is the frame's end.
	// data begins with the frame. A *TextError says that bytes are no text; the texts are appended all
	// the same.
	Write(dst []byte, ends []int, data []byte, frame Frame) ([]byte, []int, error)
	// Whole returns how many of the first n bytes of data, which has more, make whole characters, but
	// at least one of those: there a record is cut that is too long.
	Whole(data []byte, n int) int
	// LineStart returns where the last line of data begins, which begins with a whole character, or -1
	// if no line ends in it.
	LineStart(data []byte) int
}

// A TextError says that the bytes of a record are no text in the file's encoding.
type TextError struct {
	Encoding string
	File     string
	Offset   int64 // where the record begins
	At       int   // of the first such bytes in the record
	Bytes    []byte
	Bury     bool // the record is a dead letter; else the file is read no further
}

// Error names file, offset, and the bytes.
func (e *TextError) Error() string {
	return fmt.Sprintf("%q at offset %d: bytes %d to %d of the record (% x) are no %s text; "+
		"correct encoding, or choose decode_error: replace",
		e.File, e.Offset, e.At, e.At+len(e.Bytes), e.Bytes, e.Encoding)
}

// Group implements stream.Grouped.
func (e *TextError) Group() (reason, detail string) {
	return fmt.Sprintf("the record is no %s text; correct encoding, or choose decode_error: replace", e.Encoding), e.Error()
}

// framed is stretch for records that are not lines.
func (l *Filler) framed(b *stream.Batch, c *Cursor, f File, end int64, closed bool) (full bool, err error) {
	limits := b.Limits()
	t, slack := targetOf(begunAt(b, c, f), c.Next, limits), int64(min(limits.Bytes/8, 4096)+256)
	base, have := len(b.Data), 0
	n, records := 0, 0
	first, framing := len(l.records), l.framingOf(f)
	writer, _ := framing.(Writer)
	l.text, l.seen.size = l.text[:0], 0
	want := int(min(end, t.at+slack) - c.Next)
	for {
		if have, err = read(b, f, base, have, want, c.Next); err != nil {
			l.records = l.records[:first]
			b.Data = b.Data[:base]
			return false, err
		}
		data := b.Data[base : base+have : base+have]
		last := closed && c.Next+int64(have) >= end
		for n < have && !full {
			frame := l.frame(framing, data[n:], last)
			if frame.Size == 0 {
				break
			}
			if !frame.None && writer != nil {
				err := l.write(writer, b, base, data[n:], frame, f, c.Next+int64(n))
				if err != nil && n == 0 {
					l.records = l.records[:first]
					b.Data = b.Data[:base]
					return false, err
				}
				if full = err != nil; full {
					break
				}
				records++
			} else if !frame.None {
				l.records = append(l.records, stream.Record{
					Off: uint32(base + n + frame.From), Len: uint32(frame.To - frame.From), Span: uint32(len(b.Spans)),
					Origin: stream.Position{Num: c.Next + int64(n+frame.Size)},
				})
				records++
			}
			n += frame.Size
			t = t.passing(c.Next+int64(n), b.Origins+records, limits)
			full = c.Next+int64(n) >= t.at || b.Origins+records >= limits.Records
		}
		if full || c.Next+int64(have) >= end {
			break
		}
		want = int(min(end-c.Next, int64(have)+int64(max(have/2, 4096)))) // the record across the target is long
	}
	switch {
	case n == 0:
		b.Data = b.Data[:base]
	case writer != nil:
		l.see(c.Next, b.Data[base:base+n])
		b.Data = append(b.Data[:base], l.text...)
		b.Added += len(l.text) - n
		add(b, c, f, int64(n), len(l.text), records, true)
	case records == 0:
		b.Data = b.Data[:base]
		add(b, c, f, int64(n), 0, 0, true)
	default:
		b.Data = b.Data[:base+n]
		add(b, c, f, int64(n), n, records, true)
	}
	return full, nil
}

// frame is the framing's, cut where a record is longer than it may be: the rest is a record of its
// own.
func (l *Filler) frame(framing Framing, data []byte, last bool) Frame {
	frame := framing.Next(data, last)
	whole := func(n int) int {
		if w, ok := framing.(Writer); ok {
			return w.Whole(data[frame.From:], n)
		}
		return n
	}
	switch {
	case frame.Size == 0 && len(data) > l.MaxRecord+maxAround:
		n := whole(l.MaxRecord)
		return Frame{Size: n, To: n}
	case frame.Size > 0 && frame.To-frame.From > l.MaxRecord:
		cut := frame.From + whole(l.MaxRecord)
		return Frame{Size: cut, From: frame.From, To: cut}
	}
	return frame
}

// maxAround is how much may stand around a record that has its full length: a line end, a
// delimiter, punctuation.
const maxAround = 4096

// give hands the records of a framed batch over.
func (l *Filler) give(b *stream.Batch) {
	if l.Framing == nil {
		return
	}
	b.Records = append(b.Records[:0], l.records...)
	for _, g := range l.graves {
		b.Bury(g.record, g.reason)
	}
	l.graves = l.graves[:0]
	if !l.Framing.Exact() {
		b.Parsed()
	}
	l.records = l.records[:0]
}

// forget takes out the records of spans from span on.
func (l *Filler) forget(span int) {
	n := len(l.records)
	for n > 0 && int(l.records[n-1].Span) >= span {
		n--
	}
	l.records = l.records[:n]
	for len(l.graves) > 0 && l.graves[len(l.graves)-1].record >= n {
		l.graves = l.graves[:len(l.graves)-1]
	}
}

// grave is a record whose bytes are no text, and that becomes a dead letter.
type grave struct {
	record int
	reason error
}

// write appends the records of a frame, which begins at off. After an error nothing was appended.
func (l *Filler) write(w Writer, b *stream.Batch, base int, data []byte, frame Frame, f File, off int64) error {
	text, ends, err := w.Write(l.fresh[:0], l.ends[:0], data, frame)
	l.fresh, l.ends = text, ends
	if e, ok := errors.AsType[*TextError](err); ok {
		e.File, e.Offset = f.Part.Name, off
		if !e.Bury {
			return e
		}
	} else if err != nil {
		return err
	}
	from := 0
	for sub, to := range ends {
		if err != nil {
			l.graves = append(l.graves, grave{len(l.records), err})
		}
		l.records = append(l.records, stream.Record{
			Off: uint32(base + len(l.text)), Len: uint32(to - from), Span: uint32(len(b.Spans)), Sub: uint32(sub),
			Origin: stream.Position{Num: off + int64(frame.Size)},
		})
		l.text = append(append(l.text, text[from:to]...), '\n')
		from = to
	}
	return nil
}

// sight is what the last framed stretch read, where what it handed out are other bytes.
type sight struct {
	from       int64
	size       int
	head, tail []byte // the first bytes and the last ones
}

// see keeps what was read.
func (l *Filler) see(from int64, data []byte) {
	s := &l.seen
	s.from, s.size = from, len(data)
	s.head = append(s.head[:0], data[:min(len(data), seenHead)]...)
	s.tail = append(s.tail[:0], data[max(0, len(data)-seenTail):]...)
}

// How much of what was read is kept at most.
const (
	seenHead = 1024
	seenTail = 64
)

// Seen returns the first and the last bytes of the file between two places, if the last Fill read
// them and handed out others: those that it decoded, or joined.
func (l *Filler) Seen(from, to int64) (head, tail []byte, ok bool) {
	s := &l.seen
	return s.head, s.tail, s.size > 0 && s.from == from && s.from+int64(s.size) == to
}

// framingOf is the file's own framing, or that of all.
func (l *Filler) framingOf(f File) Framing {
	if f.Framing != nil {
		return f.Framing
	}
	return l.Framing
}
