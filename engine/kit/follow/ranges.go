package follow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// CanReadRanges reports whether single ranges of a partition can be read. Compressed files can only
// be read from their beginnings. The readers of sources call it in their method CanReadRanges. Like
// ReadRanges, it must not be called if files may grow without end.
func CanReadRanges(r *Reader, partitionID string) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	cur := cursorOf(r, partitionID)
	return cur != nil && cur.f.view == nil && cur.note.fingerprint.Packed == 0
}

// cursorOf returns the route's cursor of a partition, nil if its data is not there, or not
// recognised yet.
func cursorOf(r *Reader, partitionID string) *cursor {
	e := r.c.ids.get(partitionID)
	if e == nil || e.file == nil {
		return nil
	}
	if cur := e.file.by(r); cur != nil && cur.entry == e {
		return cur
	}
	return nil
}

// ReadRanges appends ranges of a partition to b. The readers of sources call it in their method
// ReadRanges. It reads by the open handle of the file, or opens the file for the call.
func ReadRanges(r *Reader, b *stream.Batch, p stream.Partition, ranges []stream.Range) error {
	err := r.appendRanges(b, p, ranges)
	if err == nil {
		r.Origin.Add(b)
	}
	return err
}

func (r *Reader) appendRanges(b *stream.Batch, p stream.Partition, ranges []stream.Range) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.activity == gone {
		return stream.ErrRangeMissing
	}
	cur := cursorOf(r, p.ID)
	f, id, part := (*file)(nil), fileid.ID{}, &p
	if cur != nil {
		f, id, part = cur.f, cur.entry.id, cur.part
	} else {
		f, id = r.finishedFile(p)
	}
	if f == nil {
		if err := r.c.unreadable(p, id); err != nil {
			return err
		}
	}
	if f == nil || f.view != nil {
		return stream.ErrRangeMissing
	}
	h, done, err := f.reopen()
	if err != nil {
		return err
	}
	err = r.c.readRanges(b, f, h, id, part, ranges)
	return errors.Join(err, done())
}

// finishedFile returns the finished file of a partition, nil if there is none. A file that was
// finished in an earlier run has no cursor unless it has grown, but a batch with its records may
// still wait to be sent.
func (r *Reader) finishedFile(p stream.Partition) (f *file, id fileid.ID) {
	m, _ := r.resume(p.ID)
	m.Part = p
	_, id, _, ok := r.c.placeOf(m)
	if !ok {
		return nil, id
	}
	err := r.c.place.Finished(func(s Listed) {
		if info := statOf(s.Info); isOf(id, info) {
			f = &file{dir: s.Dir, name: s.Name, label: s.Label, info: info}
		}
	})
	if err != nil {
		return nil, id // the caller tries again
	}
	return f, id
}

// unreadable returns a reason why the file of a partition may exist, although it has no cursor: the
// directory or the file cannot be read, the folder is missing, or the file is not identified yet.
// unreadable returns nil if there is no such reason. id is the id of the partition's file.
func (c *Catalogue) unreadable(p stream.Partition, id fileid.ID) error {
	for _, label := range []string{".", p.Name} {
		if no, ok := c.lister.refused[label]; ok && no.scan == c.table.scans {
			return fmt.Errorf("%q: %s", p.Name, no.why)
		}
	}
	switch f := c.table.byKey[id.Key()]; {
	case f != nil && f.trouble != nil:
		return fmt.Errorf("%q: %w", f.label, f.trouble.last)
	case f != nil && f.isUnidentified():
		return fmt.Errorf("%q was not read since the start", f.label)
	case c.place.FolderMissing(p.Name, id.Dev):
		return fmt.Errorf("the folder of %q is missing, cannot be read, or nothing is mounted on it",
			p.Name)
	}
	return nil
}

// reopen returns the open handle of f, or opens its name if that still leads to f. The caller must
// call the function done when it no longer needs the handle.
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

// readRanges reads ranges of f by the handle h, if f still begins with the bytes that id hashes.
func (c *Catalogue) readRanges(
	b *stream.Batch, f *file, h vfs.File, id fileid.ID, part *stream.Partition,
	ranges []stream.Range,
) error {
	head := c.head[:id.Len]
	n, err := h.ReadAt(head, 0)
	if n < len(head) && err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !id.MatchHead(head[:n]) { // it was rewritten: the next listing finds that out
		return stream.ErrRangeMissing
	}
	filler := lines.Filler{Rules: c.o.Rules}
	file := lines.File{ReaderAt: h, Part: part, Flush: true}
	if f.extras != nil {
		file.Framing = f.extras.framing
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
