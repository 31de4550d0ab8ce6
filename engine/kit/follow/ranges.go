package follow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// CanReadRanges reports whether ranges of a partition can be read by themselves: not of compressed files, which are read from
// their beginnings only. It is a reader's CanReadRanges.
func CanReadRanges(r *Reader, partitionID string) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	cur := r.cursorOf(partitionID)
	return cur != nil && cur.f.view == nil && cur.note.proof.Packed == 0
}

// cursorOf returns the route's cursor of a partition, nil if its data is not there, or not recognised yet.
func (r *Reader) cursorOf(partitionID string) *cursor {
	e := r.c.ids.get(partitionID)
	if e == nil || e.file == nil || e.file.state == awaiting || e.file.state == ended {
		return nil
	}
	if cur := e.file.by(r); cur != nil && cur.entry == e {
		return cur
	}
	return nil
}

// ReadRanges is a reader's ReadRanges. It reads by a handle of its own if a name leads to the file.
func ReadRanges(r *Reader, b *stream.Batch, p stream.Partition, ranges []stream.Range) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	cur := r.cursorOf(p.ID)
	if r.attendance == gone || cur == nil || cur.f.view != nil {
		return stream.ErrRangeMissing
	}
	h, done, err := cur.f.reopen()
	if err != nil {
		return err
	}
	err = cur.readRanges(b, h, ranges)
	return errors.Join(err, done())
}

// reopen returns a handle of the file that the name leads to now, if that is still f, or the handle of f.
func (f *file) reopen() (h vfs.File, done func() error, err error) {
	if f.handle != nil {
		return f.handle, func() error { return nil }, nil
	}
	if f.dir == nil {
		return nil, nil, stream.ErrRangeMissing
	}
	h, err = f.dir.Open(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, stream.ErrRangeMissing
	} else if err != nil {
		return nil, nil, err
	}
	info, err := h.Stat()
	if err == nil && !sameFile(statOf(info), f.info) {
		err = stream.ErrRangeMissing
	}
	if err != nil {
		return nil, nil, errors.Join(err, h.Close())
	}
	return h, h.Close, nil
}

func (cur *cursor) readRanges(b *stream.Batch, h vfs.File, ranges []stream.Range) error {
	c, f := cur.r.c, cur.f
	id := c.ids.idOf(cur.entry)
	head := c.head[:id.Len]
	n, err := h.ReadAt(head, 0)
	if n < len(head) && err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !id.MatchHead(head[:n]) { // it was rewritten: the next listing finds that out
		return stream.ErrRangeMissing
	}
	filler := lines.Filler{Rules: c.o.Rules}
	file := lines.File{ReaderAt: h, Part: cur.part, Flush: true}
	if f.aside != nil {
		file.Framing = f.aside.framing
	}
	if file.Framing == nil && c.o.ByHead != nil {
		file.Framing = c.o.ByHead(head[:min(n, markSize)])
	}
	for _, rg := range ranges {
		at := lines.Cursor{Next: rg.From.Num}
		for file.Size = rg.To.Num; at.Next < rg.To.Num; {
			before := at.Next
			_, err := filler.Fill(b, &at, file)
			switch {
			case errors.Is(err, io.ErrUnexpectedEOF):
				return stream.ErrRangeMissing
			case err != nil:
				return err
			case at.Next == before:
				return fmt.Errorf("no record begins at byte %d of %s", before, f.label)
			}
		}
	}
	filler.Complete(b)
	return nil
}
