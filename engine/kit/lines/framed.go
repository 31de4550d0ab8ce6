package lines

import (
	"github.com/penstock-io/penstock"
)

// Framing finds records that are not lines. It keeps nothing between calls, so that a reader that resumes at a record's
// start finds the records that the first reader found.
type Framing interface {
	// Next returns the first record of data, which begins at a record's start. last says that nothing follows data; then it
	// returns a frame whenever there are bytes. A frame of size 0: the record's end is not there yet.
	Next(data []byte, last bool) Frame
	// Exact says whether a record's text and a line end are what the file has; else a raw sink must not copy the file's bytes.
	Exact() bool
}

// Frame is where a record stands in the bytes it was found in.
type Frame struct {
	Size     int  // bytes that it covers, with what separates it from the next
	From, To int  // its text
	None     bool // these bytes hold no record: punctuation of what is around them
}

// framed is stretch for records that are not lines.
func (l *Filler) framed(b *penstock.Batch, c *Cursor, f File, end int64, closed bool) (full bool, err error) {
	limits := b.Limits()
	target := nextMultiple(c.Next, int64(limits.Bytes))
	base, have := len(b.Data), 0
	n, records := 0, 0
	first := len(l.records)
	want := int(min(end, target+int64(min(limits.Bytes/8, 4096)+256)) - c.Next)
	for {
		if have, err = read(b, f, base, have, want, c.Next); err != nil {
			l.records = l.records[:first]
			b.Data = b.Data[:base]
			return false, err
		}
		data := b.Data[base : base+have : base+have]
		last := closed && c.Next+int64(have) >= end
		for n < have && !full {
			frame := l.frame(data[n:], last)
			if frame.Size == 0 {
				break
			}
			if !frame.None {
				l.records = append(l.records, penstock.Record{
					Off: uint32(base + n + frame.From), Len: uint32(frame.To - frame.From), Span: uint32(len(b.Spans)),
					Origin: penstock.Position{Num: c.Next + int64(n+frame.Size)},
				})
				records++
			}
			n += frame.Size
			full = c.Next+int64(n) >= target || b.Origins+records >= limits.Records
		}
		if full || c.Next+int64(have) >= end {
			break
		}
		want = int(min(end-c.Next, int64(have)+int64(max(have/2, 4096)))) // the record across the target is long
	}
	switch {
	case n == 0:
		b.Data = b.Data[:base]
	case records == 0:
		b.Data = b.Data[:base]
		add(b, c, f, int64(n), 0, 0, true)
	default:
		b.Data = b.Data[:base+n]
		add(b, c, f, int64(n), n, records, true)
	}
	return full, nil
}

// frame is the framing's, cut where a record is longer than it may be: the rest is a record of its own.
func (l *Filler) frame(data []byte, last bool) Frame {
	frame := l.Framing.Next(data, last)
	switch {
	case frame.Size == 0 && len(data) > l.MaxRecord+maxAround:
		return Frame{Size: l.MaxRecord, To: l.MaxRecord}
	case frame.Size > 0 && frame.To-frame.From > l.MaxRecord:
		cut := frame.From + l.MaxRecord
		return Frame{Size: cut, From: frame.From, To: cut}
	}
	return frame
}

// maxAround is how much may stand around a record that has its full length: a line end, a delimiter, punctuation.
const maxAround = 4096

// give hands the records of a framed batch over.
func (l *Filler) give(b *penstock.Batch) {
	if l.Framing == nil {
		return
	}
	b.Records = append(b.Records[:0], l.records...)
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
}
