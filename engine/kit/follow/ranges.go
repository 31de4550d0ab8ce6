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

// CanReadRanges reports whether ranges of a partition can be read by themselves: not of compressed
// files, which are read from their beginnings only. It is a reader's CanReadRanges.
func CanReadRanges(r *Reader, partitionID string) bool {
	r.attended.mu.Lock()
	defer r.attended.mu.Unlock()
	f := fileOf(r, partitionID)
	return f != nil && f.view == nil && (f.note == nil || f.note.proof.Packed == 0)
}

// fileOf returns the file of a partition, and nil if it is not known, or not known again yet.
func fileOf(r *Reader, partitionID string) *file {
	r.s.mu.Lock()
	e := r.s.byID[partitionID]
	var key fileid.Key
	if e != nil {
		key = e.id.Key()
	}
	r.s.mu.Unlock()
	if e == nil {
		return nil
	}
	if f := r.rotated.byEntry[e]; f != nil {
		return f
	}
	if f := r.byKey[key]; f != nil && f.entry == e {
		return f
	}
	return nil
}

// ReadRanges is a reader's ReadRanges. It reads by a handle of its own where a name leads to the
// file.
func ReadRanges(r *Reader, b *stream.Batch, p stream.Partition, ranges []stream.Range) error {
	r.attended.mu.Lock()
	defer r.attended.mu.Unlock()
	f := fileOf(r, p.ID)
	if r.closed || f == nil || f.lost || f.part == nil || f.view != nil {
		return stream.ErrRangeMissing
	}
	h, done, err := reopen(f)
	if err != nil {
		return err
	}
	err = readRanges(r, b, f, h, ranges)
	return errors.Join(err, done())
}

// reopen returns a handle of the file that the name leads to now, if that is still f, or the handle
// of f.
func reopen(f *file) (h vfs.File, done func() error, err error) {
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

func readRanges(r *Reader, b *stream.Batch, f *file, h vfs.File, ranges []stream.Range) error {
	id := r.s.idOf(f.entry)
	head := r.head[:id.Len]
	n, err := h.ReadAt(head, 0)
	if n < len(head) && err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !id.MatchHead(head[:n]) { // it was rewritten: the next listing finds that out
		return stream.ErrRangeMissing
	}
	filler := lines.Filler{Rules: r.s.o.Rules}
	file := lines.File{ReaderAt: h, Part: f.part, Flush: true}
	if f.aside != nil {
		file.Framing = f.aside.framing
	}
	if file.Framing == nil && r.s.o.ByHead != nil {
		file.Framing = r.s.o.ByHead(head[:min(n, markSize)])
	}
	for _, rg := range ranges {
		c := lines.Cursor{Next: rg.From.Num}
		for file.Size = rg.To.Num; c.Next < rg.To.Num; {
			before := c.Next
			_, err := filler.Fill(b, &c, file)
			switch {
			case errors.Is(err, io.ErrUnexpectedEOF):
				return stream.ErrRangeMissing
			case err != nil:
				return err
			case c.Next == before:
				return fmt.Errorf("no record begins at byte %d of %s", before, f.label)
			}
		}
	}
	filler.Complete(b)
	return nil
}
