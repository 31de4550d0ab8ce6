package follow

import (
	"cmp"
	"io"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// file is the catalogue's record of one file, for all routes.
type file struct {
	dir   Dir // through which name leads to it; nil: only a handle does
	name  string
	label string
	info  stat
	since time.Duration // monotonic: size and time of the last change are as they are since then
	state state
	scan  uint32 // the last listing in which it was seen
	met   uint32 // the first one

	entry   *Entry // nil: not identified yet
	cursors []*cursor

	handle vfs.File
	looked time.Duration // when the handle was last asked for its size
	used   uint64        // of the handle, for the least recently used
	// its content, if it is compressed. Offsets and sizes refer to the content, except in stat and
	// version
	view   *unpack.File
	viewAt stamp // the last change when the view was attached

	// not identified: since when bytes have been waiting to be read; 0 if there are none
	unread   time.Duration
	nameless time.Duration // its name is gone since then
	// until when it is held back as a possible copy, or awaited; 0 if that was not checked yet
	held    time.Duration
	trouble *trouble // nil: it could be read
	aside   *aside   // nil: nothing of it was needed
	queues  int      // of readers, in which it stands

	metEmpty bool // it was empty when it was met
	counted  bool // deleted: as unread
	excused  bool // its missing data belongs to another file
}

// aside holds the state that few files need, to keep the other hundred thousand small.
type aside struct {
	framing lines.Framing // its own; nil: that of all
	// until when it waits for the possible original to become readable; 0 if it does not
	unread  time.Duration
	away    bool    // awaiting or stray, and its folder is not there
	unseen  bool    // awaiting: the present content of its inode was not seen
	nothing version // compressed and empty, or damaged: as it was then
	// beside: the listed name of its predecessor, by which the next run detects the rotation
	listed string
	asked  time.Duration // when it was compared with others last, and held back
	twin   *Entry        // the file that it equals as far as twinTo, as far as was seen
	twinTo int64
	twinOf int64 // the size that it had then
	// it has the name and the content of a deleted file, and was not reported as new yet
	restored bool
	// the listing up to which it is held back beyond its time, because its original is unreadable
	untold uint32
	why    string // awaiting: the reason
	// awaiting or nameless, and its time is over: the latest time to give it up; 0 if not yet over
	until time.Duration
	// nameless, and its time is over: the unlisted name under which this listing found it
	besideAs string
	besideIn uint32
	nextLook time.Duration // finished
	checks   uint8         // looks at it
	glimpse  fileid.Proof  // nothing of it was read: proof of the bytes seen before At
	shrunk   int64         // the most bytes that it had before it became shorter
}

// rare returns aside, to be written.
func (f *file) rare() *aside {
	if f.aside == nil {
		f.aside = &aside{}
	}
	return f.aside
}

// trouble is the reason why a file cannot be read.
type trouble struct {
	failures backoff.State
	// the compressed data is truncated or damaged: it is tried again when the file has changed
	broken  bool
	retryAt time.Duration
	last    error
}

// failed returns the last failure, nil once the file was read again.
func (f *file) failed() error {
	if f.trouble == nil {
		return nil
	}
	return f.trouble.last
}

// saw takes a new stat; size or time of the last change may have changed.
func (f *file) saw(i stat, now time.Duration) {
	if i.Size != f.info.Size || i.ModTime != f.info.ModTime {
		f.since = now
	}
	if i.Size < f.info.Size {
		f.rare().shrunk = max(f.rare().shrunk, f.info.Size)
		f.state = f.state.on(truncated)
	}
	f.info = i
	if f.entry == nil && f.unread == 0 {
		f.unread = now
	}
	for _, cur := range f.cursors {
		if i.Size > cur.pos.Next && cur.unread == 0 {
			cur.unread = now
		}
	}
}

// seen returns the file as fileid sees it. withTime is false for a file that was followed: a later
// change then says nothing.
func (f *file) seen(head []byte, withTime bool) fileid.File {
	out := fileid.File{Dev: f.info.Dev, Ino: f.info.Ino, Size: f.holds(fileid.MaxHead), Head: head}
	out.Birth = int64(f.info.Birth)
	if withTime {
		out.ModTime = int64(f.info.ModTime)
	}
	return out
}

// data returns where the file's bytes are read.
func (f *file) data() io.ReaderAt {
	if f.view != nil {
		return f.view
	}
	return f.handle
}

// readHead reads the bytes that an id hashes.
func (f *file) readHead(buf []byte) ([]byte, error) {
	n := int(min(f.holds(fileid.MaxHead), fileid.MaxHead))
	return buf[:n], f.readFull(buf[:n], 0)
}

// readFull reads all of buf; a file that is too short is io.ErrUnexpectedEOF.
func (f *file) readFull(buf []byte, off int64) error {
	got, err := f.data().ReadAt(buf, off)
	if got == len(buf) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// fits reports whether the file contains the read data described by p. buf has room for both
// ranges.
func (f *file) fits(p fileid.Proof, head, buf []byte) (bool, error) {
	n, off, end := p.Wants()
	if len(head) < n || f.view != nil && !p.FitsHead(head) { // before all is decompressed
		return false, nil
	}
	if f.holds(end) < max(end, int64(n)) {
		return false, nil
	}
	before := buf[:end-off]
	if err := f.readFull(before, off); err != nil {
		return false, err
	}
	return p.Fits(head, before), nil
}

// proof returns the proof of the route that has read furthest.
func (f *file) proof() fileid.Proof {
	if cur := f.furthest(); cur != nil {
		return cur.note.proof
	}
	return fileid.Proof{}
}

// blank reports whether no route has read anything.
func (f *file) blank() bool { return f.all((*cursor).blank) }

// unchanged reports whether the delivered data is still in the file: the head matches the id, and
// the bytes before the cursor are the ones that were read. If the head has grown, its new bytes are
// recorded.
func (cur *cursor) unchanged(id fileid.ID, buf []byte) (bool, error) {
	f := cur.f
	head, err := f.readHead(buf)
	if err != nil {
		return false, err
	}
	if !id.Match(f.seen(head, false)) {
		return false, nil
	}
	ok, err := f.fits(cur.note.proof, head, buf[fileid.MaxHead:])
	if ok && len(cur.note.suffix) == 0 && cur.note.proof.Len > 0 {
		cur.note.suffix = append(cur.note.suffix, buf[fileid.MaxHead:][:cur.note.proof.Len]...)
	}
	if ok {
		cur.r.notes.grow(cur.note, head[:min(int64(len(head)), cur.pos.Next)])
	}
	return ok, err
}

// attachView has the views see the file as it is now.
func (f *file) attachView() error {
	if f.view != nil && !(f.view.Is(f.handle, f.info.Size) && f.viewAt == f.info.ModTime) {
		f.viewAt = f.info.ModTime
		if err := f.view.Attach(f.handle, f.info.Size); err != nil {
			return err
		}
	}
	for _, cur := range f.cursors {
		if cur.own != nil && !(cur.own.Is(f.handle, f.info.Size) && cur.ownAt == f.info.ModTime) {
			cur.ownAt = f.info.ModTime
			if err := cur.own.Attach(f.handle, f.info.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropView forgets how the file was compressed.
func (f *file) dropView() {
	if f.view != nil {
		f.view.Close()
		f.view = nil
	}
	for _, cur := range f.cursors {
		if cur.own != nil {
			cur.own.Close()
			cur.own = nil
		}
	}
}

// close gives the handle back.
func (f *file) close() error {
	if f.view != nil {
		f.view.Close()
	}
	for _, cur := range f.cursors {
		if cur.own != nil {
			cur.own.Close()
		}
	}
	if f.handle == nil {
		return nil
	}
	err := f.handle.Close()
	f.handle = nil
	return err
}

// isEmpty reports whether nothing was in a compressed file that is not identified, and it has not
// changed since.
func (f *file) isEmpty() bool { return f.view != nil && f.entry == nil && f.isNothingNew() }

// isNothingNew reports whether a compressed file that was empty or damaged has not changed since.
func (f *file) isNothingNew() bool { return f.aside != nil && f.aside.nothing.is(f.info) }

// isUnmet reports whether it is not known yet which file it is.
func (f *file) isUnmet() bool {
	return f.entry == nil && f.info.Size > 0 && f.trouble == nil && !f.isEmpty()
}

// byHandle reports whether only its handle leads to the file.
func (f *file) byHandle() bool { return f.state == nameless || f.dir == nil }

// isRead reports whether f is read without a listed name.
func (f *file) isUnlisted() bool { return f.state == nameless || f.state == beside }

// partName returns the name of f's partition.
func (f *file) partName() string {
	if f.aside != nil {
		return cmp.Or(f.aside.listed, f.label)
	}
	return f.label
}

// rename gives f another name; spans that were handed out keep the partition with the old one.
func (f *file) rename(dir Dir, name, label string) {
	f.dir, f.name, f.label = dir, name, label
	if f.aside != nil {
		f.aside.listed = ""
	}
	for _, cur := range f.cursors {
		part := *cur.part
		part.Name = label
		cur.part = &part
	}
}

func (f *file) isAway() bool { return f.aside != nil && f.aside.away }

// isTwin reports whether all of a file that was held back stands in the one that it equals, where
// it is read.
func (f *file) isTwin() bool {
	return f.aside != nil && f.aside.twin != nil && f.aside.twinTo >= f.info.Size
}

// isDeleted reports whether a file that is open has no name any more, as far as is known of it; a
// listing may still have to find that out.
func (f *file) isDeleted() bool {
	return f.info.Links == 0 && (f.state == nameless || f.info.Ino != 0 && f.handle != nil)
}

// isDeletedNow is isDeleted as of this moment: the recorded state of a file without writes may be
// outdated.
func (f *file) isDeletedNow() bool {
	if f.handle != nil {
		if info, err := f.handle.Stat(); err == nil {
			f.info.Links = info.Links
		}
	}
	return f.isDeleted()
}

// isBeingMade reports whether f, which may be a copy of w, was being made when it was looked at: it
// held less than was read of w, and holds more by now. As long as it is not looked at again, an
// earlier position in w would be taken for where f leads on.
func (f *file) isBeingMade(w *file) bool {
	if f.info.Size >= w.read() || f.view != nil {
		return false
	}
	info, err := f.handle.Stat()
	return err == nil && info.Size > f.info.Size
}
