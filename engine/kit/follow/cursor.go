package follow

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// cursor is the read position of one route in one file.
type cursor struct {
	r *Reader
	f *file
	// identity of the cursor's partition. It may differ from that of the file (see claim,
	// copies.gather and copies.separate)
	entry *Entry
	part  *stream.Partition
	pos   lines.Cursor
	note  *note // the read data, to recognise the file

	// own is a separate decompressor of a compressed file. It is nil for the first route of the
	// file, which uses the decompressor of the file.
	own      *unpack.File
	verified version       // version of the file in which the delivered data was found
	drained  int64         // at this size of the file all whole records were handed out
	last     int64         // where it was sealed, in bytes of the file
	skipTo   int64         // growing: everything before counts as read
	unread   time.Duration // since when bytes have been waiting, 0 if none are
	// if the file is compressed and its decompressor was dropped: the number of unread bytes at
	// that time, plus 1. Otherwise 0
	leftPacked int64
	// if the file is awaiting a successor: the number of bytes that an earlier reader of the
	// route has read, and that were not settled when the route restarted
	unsettled int64
	// original is set in a copy that lacks data that the route has read, until the bytes before
	// skipTo are skipped. It is the cursor that has read this data (see copies.separate).
	original *cursor

	sealed bool // all of it was handed out
	touch  bool // its progress has to be saved again, even if nothing more is read
}

// version is the state of a file at one moment, as its stat shows it. The zero value is no state.
type version struct {
	at   stamp
	size int64
	ok   bool
}

func versionOf(i stat) version { return version{i.ModTime, i.Size, true} }

// is reports whether the stat i has the size and the modification time of v.
func (v version) is(i stat) bool { return v.ok && v.size == i.Size && v.at == i.ModTime }

// by returns the cursor of the route of r in the file, or nil if it has none there.
func (f *file) by(r *Reader) *cursor {
	for _, cur := range f.cursors {
		if cur.r == r {
			return cur
		}
	}
	return nil
}

func (f *file) entries() (out []*Entry) {
	for _, cur := range f.cursors {
		out = append(out, cur.entry)
	}
	return out
}

// furthest returns the cursor with the furthest read position, or nil if no route has a cursor.
func (f *file) furthest() *cursor {
	var out *cursor
	for _, cur := range f.cursors {
		if out == nil || cur.pos.Next > out.pos.Next {
			out = cur
		}
	}
	return out
}

// read returns the furthest position up to which a route has read the file, or 0.
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

// isFinished reports whether the route has read the file to its end, in this run or an earlier one.
func (cur *cursor) isFinished() bool {
	if cur.sealed {
		return true
	}
	m, _ := cur.r.resume(cur.entry.text)
	return m.Finished
}

// changed reports whether the file has changed, by size or modification time, since the delivered
// data was last verified to be in it.
func (cur *cursor) changed() bool { return !cur.verified.is(cur.f.info) }

// isDrained reports whether the route has handed out all whole records of the file as it is now.
func (cur *cursor) isDrained() bool { return cur.drained == cur.f.info.Size && !cur.changed() }

func (cur *cursor) stamp() { cur.verified = versionOf(cur.f.info) }

// blank reports whether the route has read nothing of the file.
func (cur *cursor) blank() bool {
	return cur.pos.Next == 0 && len(cur.pos.Above) == 0 && cur.note.fingerprint.At == 0
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

// known returns how many bytes the file is known to have, and whether it has no more.
func (cur *cursor) known() (size int64, end bool) {
	switch v := cur.view(); {
	case v != nil:
		return v.Known()
	case cur.note.fingerprint.Packed > 0:
		return cur.note.fingerprint.At, cur.note.fingerprint.Packed == cur.f.info.Size
	}
	return cur.f.info.Size, true
}

// partial reports whether bytes are known to follow the last record that was handed out.
func (cur *cursor) partial() bool {
	size, _ := cur.known()
	return cur.pos.Next < size
}

// atEnd reports whether the route has read the file to its end, without a decompression error.
func (cur *cursor) atEnd() bool {
	size, end := cur.known()
	return end && cur.pos.Next == size && (cur.view() == nil || cur.view().Err() == nil)
}

// allRead reports whether the route has read at least as many bytes as the file has.
func (cur *cursor) allRead() bool {
	size, end := cur.known()
	return end && cur.pos.Next >= size
}

// shorter reports whether the file is shorter than the data delivered from it. A compressed file is
// compared with its size at the last verification.
func (cur *cursor) shorter() bool {
	if cur.view() != nil {
		return cur.verified.ok && cur.f.info.Size < cur.verified.size
	}
	return cur.f.info.Size < cur.pos.Next
}

// isCopyOf reports whether f, which has the data of an id (text), is a copy: it has another inode
// or birth time than the file that got the id first.
func isCopyOf(text string, f *file) bool {
	id, err := fileid.Parse(text)
	return err == nil && (id.Ino != f.info.Ino || id.Birth != int64(f.info.Birth))
}

// isBeyond reports whether the file is a growing copy that lacks data that the route has read, in
// this run or an earlier one.
func (cur *cursor) isBeyond() bool {
	size, end := cur.known()
	return end && cur.pos.Next > size && cur.r.c.grows() && isCopyOf(cur.entry.text, cur.f)
}

// left estimates how many bytes of the file the route has not read: at least 1 if there are any.
// For a compressed file these are compressed bytes.
func (cur *cursor) left() int64 {
	size, read, v := cur.f.info.Size, cur.pos.Next, cur.view()
	switch {
	case cur.unsettled > 0:
		return cur.unsettled
	case cur.note.fingerprint.Packed > 0:
		return max(0, size-cur.note.fingerprint.Packed)
	case v == nil && cur.leftPacked > 0:
		return cur.leftPacked - 1
	case v == nil:
		return max(0, size-read)
	}
	switch all, end := v.Known(); {
	case read == 0 && (all > 0 || !end):
		return size
	case !end || v.Err() != nil: // after an error the rest is missing
		return max(1, size-v.Consumed())
	case read >= all:
		return 0
	default:
		return max(1, int64(float64(size)*(1-float64(read)/float64(all))))
	}
}

// dropView closes the cursor's decompressor. It first records the number of unread bytes, so that
// the method left returns the same number as before.
func (cur *cursor) dropView() {
	if cur.view() != nil {
		cur.leftPacked = 1 + cur.left()
	}
	if cur.own != nil {
		cur.own.Close()
		cur.own = nil
	}
}

// skipping reports whether the route has still to skip bytes at its position. A route skips the
// beginning of a file if it starts at the file's end (FromEnd), or has read the same data in
// another file.
func (cur *cursor) skipping() bool { return cur.skipTo > cur.pos.Next }

// waitsForOriginal reports whether data that cur has to skip may still be in flight. After a kill,
// such data would have to be read again, and only the copy has it.
func (cur *cursor) waitsForOriginal() bool {
	return cur.original != nil && cur.skipping() &&
		!cur.r.notes.isSaved(cur.original.note, cur.skipTo)
}

// left returns the largest number of bytes of the file that any route has not read.
func (f *file) left() (left int64) {
	if len(f.cursors) == 0 {
		return f.info.Size
	}
	for _, cur := range f.cursors {
		left = max(left, cur.left())
	}
	return left
}

// isNeeded reports whether some route has not read all of the file, or has read less of it than
// another route.
func isNeeded(f *file) bool {
	read := f.read()
	return f.left() > 0 || !f.all(func(cur *cursor) bool { return cur.pos.Next == read })
}

// holds returns the number of bytes in the file. A compressed file is decompressed only until the
// given number of bytes (to) is known. If the file has more bytes, the result may be less than its
// size.
func (f *file) holds(to int64) int64 {
	if f.view == nil {
		return f.info.Size
	}
	size, _ := f.view.Size(to)
	return size
}

// size returns how many bytes the file has. A compressed file is decompressed once for that.
func (f *file) size() int64 { return f.holds(math.MaxInt64) }

// resume returns the stored progress of the route in a partition. It is zero if there is none.
func (r *Reader) resume(id string) (stream.Mark, bool) {
	if r.o.Resume != nil && r.activity != gone {
		if m, ok := r.o.Resume(id); ok {
			return m, true
		}
	}
	return stream.Mark{}, false
}

// begin gives r a cursor in the identified file f, at the stored position or at the beginning.
func (r *Reader) begin(f *file, e *Entry) *cursor {
	m, stored := r.resume(e.text)
	cur := &cursor{r: r, f: f, entry: e, pos: lines.Resume(m), unread: f.unread}
	cur.part = &stream.Partition{ID: e.text, Name: f.partName()}
	cur.note = r.notes.begin(e.text, m)
	delete(r.forgets.stored, e.text)
	r.c.ids.ref(e)
	f.cursors = append(f.cursors, cur)
	if id, err := fileid.Parse(e.text); f.state != awaiting && err == nil && !isOf(id, f.info) &&
		cur.note.fingerprint.Moved != keyOf(f.info) {
		r.notes.move(cur.note, f.seen(nil, false), true)
		cur.touch = stored
	}
	end := r.takeUnsaved(e.text)
	if cur.stamp(); f.state == awaiting {
		cur.verified = version{}
		if cur.unsettled = end.missing(m); cur.unsettled > 0 {
			f.dataElsewhere = false
		}
	}
	r.c.strategy.resumed(cur, m)
	return cur
}

// fingerprintOf returns the fingerprint (hashes of read bytes) in the stored progress m. It is
// empty if the stored fingerprint is invalid, which was logged when the progress was read.
func fingerprintOf(m stream.Mark) fileid.Fingerprint {
	fingerprint, _ := fileid.ParseFingerprint(m.Metadata)
	return fingerprint
}

// highest returns the position after the last settled (delivered, dead-lettered or dropped) byte of
// a file. There may be unsettled bytes before it.
func highest(m stream.Mark) int64 {
	high := m.Watermark.Num
	if n := len(m.Above); n > 0 {
		high = max(high, m.Above[n-1].To.Num)
	}
	return high
}
