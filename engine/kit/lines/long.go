package lines

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// searchStep is the size of a read in the search for the end of a long record.
const searchStep = 256 << 10

// A LongRecordError is the reason of a dead letter: the record was longer than the option
// max_record.
type LongRecordError struct {
	File   string
	Offset int64 // start of the record in the file
	Size   int64 // bytes of the record without its LF
	Max    int   // number of bytes kept
}

// Error returns the file, the offset and the length.
func (e *LongRecordError) Error() string {
	return fmt.Sprintf("%q at offset %d: the record has %d bytes, more than max_record (%d); "+
		"its first %d bytes are kept here",
		e.File, e.Offset, e.Size, e.Max, e.Max)
}

// Group implements stream.Grouped.
func (e *LongRecordError) Group() (reason, detail string) {
	return fmt.Sprintf("the record is longer than max_record (%d)", e.Max), e.Error()
}

// long appends the record at c.Next, which has more than MaxRecord bytes. The first MaxRecord bytes
// must be in memory after b.Data. Without DeadLetter, long appends these bytes as a record. With
// DeadLetter, they become a dead letter whose span covers the whole record. more is false if
// DeadLetter is set and the end of the record is not in the file yet.
func (l *Filler) long(b *stream.Batch, c *Cursor, f File, end int64,
	closed bool) (more bool, err error) {
	base, size := len(b.Data), int64(l.MaxRecord)
	next, added := size, 1
	if l.DeadLetter {
		stop, found, err := l.search(b, c, f, end)
		if err != nil || !found && !closed {
			return false, err
		}
		size = stop - c.Next
		if next = size; found {
			next++
			added = 0
		}
		l.bad = append(l.bad, badRecord{b.Origins, &LongRecordError{
			File: f.Part.Name, Offset: c.Next, Size: size, Max: l.MaxRecord,
		}})
	}
	b.Data = append(b.Data[:base+l.MaxRecord], '\n')
	b.Added += added
	add(b, c, f, next, l.MaxRecord+1, 1, true)
	b.Spans[len(b.Spans)-1].Verbatim = !l.DeadLetter
	return true, nil
}

// search returns the offset of the LF of the record at c.Next, or end if there is no LF before end.
// It stores the offset that it has reached, so that each byte of a growing record is searched only
// once.
func (l *Filler) search(b *stream.Batch, c *Cursor, f File,
	end int64) (stop int64, found bool, err error) {
	kept := len(b.Data) + l.MaxRecord
	at := max(c.searched, c.Next+int64(l.MaxRecord))
	for at < end {
		n := int(min(end-at, searchStep))
		b.Data = slices.Grow(b.Data[:kept], n)
		b.Data = b.Data[:kept-l.MaxRecord]
		chunk := b.Data[kept : kept+n : kept+n]
		if err := ReadFull(f.ReaderAt, chunk, at); err != nil {
			return 0, false, err
		}
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
			return at + int64(i), true, nil
		}
		at += int64(n)
		c.searched = at
	}
	return end, false, nil
}

// Complete finishes b. If Framing is set, it adds b.Records. It dead-letters records with invalid
// bytes and, if DeadLetter is set, records longer than MaxRecord. Call it once for each filled
// batch, before the batch is handed out. Then the Filler is ready for the next batch.
func (l *Filler) Complete(b *stream.Batch) {
	if l.Framing != nil {
		b.Records = append(b.Records[:0], l.records...)
	} else if len(l.bad) > 0 {
		b.Split()
	}
	for _, bad := range l.bad {
		b.DeadLetter(bad.record, bad.reason)
	}
	if l.Framing != nil && !l.Framing.Exact() {
		b.Parsed()
	}
	l.Discard()
}

// Discard discards the current batch, which will not be handed out.
func (l *Filler) Discard() { l.records, l.bad = l.records[:0], l.bad[:0] }
