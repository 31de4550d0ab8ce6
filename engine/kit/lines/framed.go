package lines

import (
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/stream"
)

// Framing splits bytes into records that are not lines. It keeps no state between calls. A reader
// that resumes at a record's start therefore finds the same records.
type Framing interface {
	// Next returns the first record of data, which must begin at a record's start. If the end of
	// the record is not in data, the frame has size 0. last means that no bytes follow data. Next
	// then always returns a frame, unless data is empty.
	Next(data []byte, last bool) Frame
	// Exact reports whether a record in the file consists of exactly its text and a line end. If
	// not, sinks must not copy the file's bytes.
	Exact() bool
}

// Frame locates a record in the data in which it was found. The frame of a [Writer] may have
// several records.
type Frame struct {
	Size     int  // length in bytes, including the separator
	From, To int  // its text
	None     bool // the bytes contain no record, only separators between records
}

// Writer is a Framing for records with a text that is not a contiguous part of the file, because it
// is decoded or joined from several parts.
type Writer interface {
	Framing
	// Write appends the texts of the frame's records to dst, and the end of each text in dst to
	// ends. data begins with the frame, which has at least one record. If the frame has several
	// records, the position of all of them is the end of the frame. If bytes are not valid text,
	// Write still appends the texts, and returns a *TextError.
	Write(dst []byte, ends []int, data []byte, frame Frame) ([]byte, []int, error)
	// Whole returns the length of the longest prefix of data that has at most n bytes and ends
	// after a whole character. If the first character is longer than n bytes, it returns the length
	// of this character. A record that is too long is cut there.
	Whole(data []byte, n int) int
}

// UnitFraming is a Framing for an encoding. A character has one or more units.
type UnitFraming interface {
	Framing
	// Unit returns the size of a unit in bytes: 2 in UTF-16, otherwise 1.
	Unit() int
	// LineStart returns the offset after the last line end in data, or -1 if there is no line end.
	// data must begin with a whole code unit (two bytes in UTF-16).
	LineStart(data []byte) int
}

// A TextError means that the bytes of a record are not valid text in the file's encoding.
type TextError struct {
	Encoding   string
	File       string
	Offset     int64 // start of the record in the file
	At         int   // position of the invalid bytes in the record
	Bytes      []byte
	DeadLetter bool // dead-letter the record; if false, the rest of the file is not read
}

// Error returns the file, the offset, and the invalid bytes.
func (e *TextError) Error() string {
	return fmt.Sprintf("%q at offset %d: bytes %d to %d of the record (% x) are no %s text; "+
		"correct encoding, or choose decode_error: replace",
		e.File, e.Offset, e.At, e.At+len(e.Bytes), e.Bytes, e.Encoding)
}

// Group implements stream.Grouped.
func (e *TextError) Group() (reason, detail string) {
	return fmt.Sprintf("the record is no %s text; "+
		"correct encoding, or choose decode_error: replace", e.Encoding), e.Error()
}

// framed appends records that a Framing finds. It begins at c.Next, and stops at end (an offset in
// the file) or when the batch is full. closed means that the last record ends at end. If there is
// no Framing, stretch does the same for lines.
func (l *Filler) framed(b *stream.Batch, c *Cursor, f File, end int64,
	closed bool) (full bool, err error) {
	limits := b.Limits()
	t, slack := targetOf(begunAt(b, c, f), c.Next, limits), int64(min(limits.Bytes/8, 4096)+256)
	base, have, n, records := len(b.Data), 0, 0, 0
	framing := l.framingOf(f)
	writer, _ := framing.(Writer)
	l.text, l.seen.size = l.text[:0], 0
	want := int(min(end, t.at+slack) - c.Next)
	for {
		if have, err = read(b, f, base, have, want, c.Next); err != nil {
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
					return false, err
				}
				if full = err != nil; full {
					break
				}
				records++
			} else if !frame.None {
				l.records = append(l.records, stream.Record{
					Off: uint32(base + n + frame.From), Len: uint32(frame.To - frame.From),
					Span:   uint32(len(b.Spans)),
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
		// the record that reaches the target is long
		want = int(min(end-c.Next, int64(have)+int64(max(have/2, 4096))))
	}
	switch {
	case n == 0:
		b.Data = b.Data[:base]
	case writer != nil:
		l.recordSeen(c.Next, b.Data[base:base+n])
		b.Data = append(b.Data[:base], l.text...)
		b.Added += len(l.text) - n
		add(b, c, f, int64(n), len(l.text), records, true)
		b.Spans[len(b.Spans)-1].Verbatim = false
	case records == 0:
		b.Data = b.Data[:base]
		add(b, c, f, int64(n), 0, 0, true)
		b.Spans[len(b.Spans)-1].Verbatim = false
	default:
		b.Data = b.Data[:base+n]
		add(b, c, f, int64(n), n, records, true)
	}
	return full, nil
}

// frame returns the first frame of data. If its record is longer than MaxRecord, frame returns a
// frame with only the first part of the record. The rest is then treated as the next record.
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

// maxAround bounds the bytes around the text of a record: line end, delimiter, punctuation.
const maxAround = 4096

// write decodes the records of a frame that begins at offset off in the file, and appends them to
// l.records and l.text. Invalid text is an error, unless the TextError asks for dead letters. If
// write returns an error, it has appended nothing.
func (l *Filler) write(w Writer, b *stream.Batch, base int, data []byte, frame Frame, f File,
	off int64) error {
	text, ends, err := w.Write(l.fresh[:0], l.ends[:0], data, frame)
	l.fresh, l.ends = text, ends
	if e, ok := errors.AsType[*TextError](err); ok {
		e.File, e.Offset = f.Part.Name, off
		if !e.DeadLetter {
			return e
		}
	} else if err != nil {
		return err
	}
	from := 0
	for sub, to := range ends {
		if err != nil {
			l.bad = append(l.bad, badRecord{len(l.records), err})
		}
		l.records = append(l.records, stream.Record{
			Off: uint32(base + len(l.text)), Len: uint32(to - from), Span: uint32(len(b.Spans)),
			Sub:    uint32(sub),
			Origin: stream.Position{Num: off + int64(frame.Size)},
		})
		l.text = append(append(l.text, text[from:to]...), '\n')
		from = to
	}
	return nil
}

// seenBytes holds the first and last bytes of the part of the file that the last call of Fill read.
// It is used if the records in the batch differ from the bytes in the file, because they were
// decoded or joined.
type seenBytes struct {
	from       int64
	size       int
	head, tail []byte // the first and the last bytes
}

// recordSeen stores the first and last bytes of data, which was read at the offset from in the
// file.
func (l *Filler) recordSeen(from int64, data []byte) {
	s := &l.seen
	s.from, s.size = from, len(data)
	s.head = append(s.head[:0], data[:min(len(data), seenHead)]...)
	s.tail = append(s.tail[:0], data[max(0, len(data)-seenTail):]...)
}

// The maximum number of bytes that recordSeen stores.
const (
	seenHead = 1024
	seenTail = 64
)

// Seen returns the first and the last bytes of the part of the file between two offsets. ok is true
// only if the last Fill read exactly this part, and its records were decoded or joined.
func (l *Filler) Seen(from, to int64) (head, tail []byte, ok bool) {
	s := &l.seen
	return s.head, s.tail, s.size > 0 && s.from == from && s.from+int64(s.size) == to
}

// framingOf returns the file's own framing if there is one, otherwise that of the rules.
func (l *Filler) framingOf(f File) Framing {
	if f.Framing != nil {
		return f.Framing
	}
	return l.Framing
}
