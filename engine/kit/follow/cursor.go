package follow

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/stream"
)

// cursor is where one route stands in one file.
type cursor struct {
	r *Reader
	f *file
	// its id is the partition's; the same as the file's, unless an old state also has another id of
	// the file
	entry *Entry
	part  *stream.Partition
	pos   lines.Cursor
	note  *note // the read data, to recognise the file

	// of a compressed file read by several routes: each but the first has a separate one
	own     *unpack.File
	ownAt   stamp
	stands  version       // version of the file in which the delivered data was found
	proved  time.Duration // growing: when that was verified
	drained int64         // at this size of the file all whole records were handed out
	last    int64         // where it was sealed
	skipTo  int64         // growing: everything before counts as read
	unread  time.Duration // since when bytes have been waiting, 0 if none are
	// of a lost file: the cursor in its copy, which begins after the read data
	copy *cursor

	sealed bool // all of it was handed out
	touch  bool // its progress has to be saved again, although nothing of it may be read
	told   bool // its progress says that it is finished
}

// version is a file as it was at a moment, by its stat. The zero value is none.
type version struct {
	at   stamp
	size int64
	ok   bool
}

func versionOf(i stat) version { return version{i.ModTime, i.Size, true} }

// is reports whether the file looks as it did.
func (v version) is(i stat) bool { return v.ok && v.size == i.Size && v.at == i.ModTime }

// by returns the cursor of a route, nil if it has none.
func (f *file) by(r *Reader) *cursor {
	for _, cur := range f.cursors {
		if cur.r == r {
			return cur
		}
	}
	return nil
}

// furthest returns the cursor that has read most, nil if there is none.
func (f *file) furthest() *cursor {
	var out *cursor
	for _, cur := range f.cursors {
		if out == nil || cur.pos.Next > out.pos.Next {
			out = cur
		}
	}
	return out
}

// read returns how far any route has read.
func (f *file) read() int64 {
	if cur := f.furthest(); cur != nil {
		return cur.pos.Next
	}
	return 0
}

// all reports whether a condition holds for the cursors of all routes.
func (f *file) all(is func(*cursor) bool) bool {
	for _, cur := range f.cursors {
		if !is(cur) {
			return false
		}
	}
	return true
}

func (cur *cursor) isSealed() bool { return cur.sealed }

// changed reports whether the file was written to since the delivered data was found in it.
func (cur *cursor) changed() bool { return !cur.stands.is(cur.f.info) }

func (cur *cursor) stamp() { cur.stands = versionOf(cur.f.info) }

// blank reports whether nothing was read.
func (cur *cursor) blank() bool {
	return cur.pos.Next == 0 && len(cur.pos.Above) == 0 && cur.note.proof.At == 0
}

// isUnreadBySome reports whether some route has read nothing of the file.
func (f *file) isUnreadBySome() bool {
	return len(f.cursors) == 0 || slices.ContainsFunc(f.cursors, (*cursor).blank)
}

// view returns the decompressor of the file for this route, or nil if it is not compressed.
func (cur *cursor) view() *unpack.File {
	if cur.own != nil {
		return cur.own
	}
	return cur.f.view
}

// known returns how many bytes the file has, as far as that was found out, and whether those are
// all.
func (cur *cursor) known() (size int64, end bool) {
	switch v := cur.view(); {
	case v != nil:
		return v.Known()
	case cur.note.proof.Packed > 0:
		return cur.note.proof.At, cur.note.proof.Packed == cur.f.info.Size
	}
	return cur.f.info.Size, true
}

// partial reports whether there is something behind the last record that was handed out, as far as
// is known.
func (cur *cursor) partial() bool {
	size, _ := cur.known()
	return cur.pos.Next < size
}

// atEnd reports whether the file was read to its end, and ends well.
func (cur *cursor) atEnd() bool {
	size, end := cur.known()
	return end && cur.pos.Next == size && (cur.view() == nil || cur.view().Err() == nil)
}

// allRead reports whether nothing more is to be read of a file that was finished.
func (cur *cursor) allRead() bool {
	size, end := cur.known()
	return end && cur.pos.Next >= size
}

// shorter reports whether the file is shorter than the data delivered from it.
func (cur *cursor) shorter() bool {
	if cur.view() != nil {
		return cur.stands.ok && cur.f.info.Size < cur.stands.size
	}
	return cur.f.info.Size < cur.pos.Next
}

// left returns about how much is still to be read: of a compressed file in bytes of the file.
func (cur *cursor) left() int64 {
	if v := cur.view(); v != nil {
		return max(0, cur.f.info.Size-v.Consumed())
	}
	return max(0, cur.f.info.Size-cur.pos.Next)
}

// skipping reports whether the file's beginning is to be left out, because the route starts at its
// end or has read it elsewhere.
func (cur *cursor) skipping() bool { return cur.skipTo > cur.pos.Next }

// left returns how much of a file the route that has read least has still to read.
func (f *file) left() (left int64) {
	if len(f.cursors) == 0 {
		return f.info.Size
	}
	for _, cur := range f.cursors {
		left = max(left, cur.left())
	}
	return left
}

// holds returns how many bytes the file has: of a compressed one as many as are known for certain
// when at least to were asked for.
func (f *file) holds(to int64) int64 {
	if f.view == nil {
		return f.info.Size
	}
	size, _ := f.view.Size(to)
	return size
}

// size returns how many bytes the file has. A compressed one is decompressed for it, once.
func (f *file) size() int64 { return f.holds(math.MaxInt64) }
