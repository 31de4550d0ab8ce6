package follow

import (
	"io"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/lines"
)

// firstBlockSize is how much of a complete file is read to recognise it.
const firstBlockSize = 16 << 10

// filler fills the batches of a route. The first bytes of a complete file are read once, to
// recognise it and to fill a batch: a small file costs one system call for both.
type filler struct {
	lines.Filler
	of    *file  // the file that begins with block; nil: none
	block []byte // reused
}

// readFirst reads the first bytes of f and copies its head to head.
func (l *filler) readFirst(f *file, head []byte) ([]byte, error) {
	n := int(min(f.info.Size, firstBlockSize))
	l.of, l.block = nil, slices.Grow(l.block[:0], n)[:n]
	if err := f.readFull(l.block, 0); err != nil {
		return nil, err
	}
	l.of = f
	return head[:copy(head, l.block)], nil
}

// source returns the reader for f, which is not compressed.
func (l *filler) source(f *file) io.ReaderAt {
	if l.of == f {
		return l
	}
	return f.handle
}

// ReadAt implements io.ReaderAt for the file that begins with block.
func (l *filler) ReadAt(p []byte, off int64) (int, error) {
	if off >= 0 && off+int64(len(p)) <= int64(len(l.block)) {
		return copy(p, l.block[off:]), nil
	}
	return l.of.data().ReadAt(p, off)
}

// release forgets the block: the file may be changed from now on.
func (l *filler) release() { l.of = nil }
