package follow

import (
	"cmp"
	"io"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// file is what one reader knows of one file.
type file struct {
	dir   Dir // through which name leads to it; nil: only a handle does
	name  string
	label string
	info  stat
	since time.Duration // monotonic: size and time of the last change are as they are since then

	entry  *Entry // nil: not identified yet
	part   *stream.Partition
	cursor lines.Cursor
	note   *note         // what was read of it, to know it again; nil before it is identified
	looked time.Duration // when the handle was last asked for its size
	proved time.Duration // growing: when what was handed out was last looked at and found to stand in it
	handle vfs.File
	view   *unpack.File  // what it holds, if it is compressed: offsets and sizes are of that, but for info.Size, drained, last and stampLen
	viewAt stamp         // the last change when the view was attached
	used   uint64        // of the handle, for the least recently used
	unread time.Duration // monotonic: since when bytes have been waiting to be read, 0: none are

	drained  int64 // of this size all whole records were handed out
	last     int64 // where it was sealed
	stampAt  stamp
	stampLen int64
	nameless time.Duration // monotonic: an orphan's name is gone since then
	held     time.Duration // growing: until when it is held back, because it may be a copy; 0: it was not asked yet
	skipTo   int64         // growing: what is before counts as read
	trouble  *trouble      // nil: it could be read
	aside    *aside        // nil: nothing of it was needed
	scan     uint32        // the last listing in which it was seen

	sealed    bool
	orphan    bool // its name is gone, it is read to the end by its handle
	lost      bool // what was not read is gone: only the seal is left to be handed out
	skipped   bool // lost is nothing to speak of: the seal says that all of it was read
	finished  bool // its source has finished it; it is looked at again in case its writer goes on
	flushed   bool // growing: the partial last record was handed out as one
	checked   bool // stampAt and stampLen say as of when what was read is known to stand in it
	beside    bool // growing: it is no file of the listing, but leads on from one that was rotated
	touch     bool // growing: its mark has to be saved anew, although nothing of it may be read
	displaced bool // of a widow: its inode lives on with other content
	fromEnd   bool // growing: it was there at the very first start, which begins at the ends
	queued    bool // it stands in the queue
}

// aside is what few files need, out of the way of the hundred thousand others.
type aside struct {
	framing  lines.Framing // its own; nil: that of all
	unread   time.Duration // growing: until when it waits for one to be readable that it may be a copy of; 0: it does not
	away     bool          // a widow or stray whose folder is not there
	unseen   bool          // of a widow: the route has not seen what stands in its inode by now
	listed   string        // of a file beside: the name of that one, by which the next run finds out that it was rotated
	asked    time.Duration // growing: when it was compared with others last, and held back
	twin     *Entry        // growing: the file that it equals as far as twinTo, as far as was seen
	twinTo   int64
	twinOf   int64         // the size that it had then
	restored bool          // growing: it has the name and the content of one that is gone, and is not said to be new yet
	untold   uint32        // growing: the listing up to which it is held back beyond its time, because that file cannot be looked at
	why      string        // of a widow: what happened
	copy     *file         // of one that is lost: what leads on from it as a file of its own
	until    time.Duration // of a widow, or one without name, whose time is over: when it is given up at the latest; 0: not yet over
	besideAs string        // of one without name, whose time is over: where it was found beside, in this listing
	besideIn uint32
	nextLook time.Duration // at a finished file
	checks   uint8         // looks at it
	glimpse  fileid.Proof  // of a file of which nothing was read: what stands before At was seen
	shrunk   int64         // the most bytes that it had before it became shorter
}

// rare is what few files need, to be written.
func (f *file) rare() *aside {
	if f.aside == nil {
		f.aside = &aside{}
	}
	return f.aside
}

// trouble is what keeps a file from being read.
type trouble struct {
	failures backoff.State
	broken   bool // what is compressed ends in the middle or is damaged: it is tried again when the file has changed
	retryAt  time.Duration
	last     error
}

// failed is the last failure, nil once the file was read again.
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
	}
	f.info = i
	if f.entry == nil || i.Size > f.cursor.Next {
		if f.unread == 0 {
			f.unread = now
		}
	}
}

// seen is the file as fileid sees it. withTime is false for a file that we have followed: a later
// change then says nothing.
func (f *file) seen(head []byte, withTime bool) fileid.File {
	out := fileid.File{Dev: f.info.Dev, Ino: f.info.Ino, Size: f.holds(fileid.MaxHead), Head: head}
	out.Birth = int64(f.info.Birth)
	if withTime {
		out.ModTime = int64(f.info.ModTime)
	}
	return out
}

// readHead reads what an id hashes.
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

// fits says whether what p says was read stands in the file. buf has room for both stretches.
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

// unchanged says whether what was handed out still stands in the file: the head is that of the id,
// the bytes before the cursor are those that were read. What more of the head is there now is
// noted.
func (f *file) unchanged(id fileid.ID, buf []byte, ns *notes) (bool, error) {
	head, err := f.readHead(buf)
	if err != nil {
		return false, err
	}
	if !id.Match(f.seen(head, false)) {
		return false, nil
	}
	ok, err := f.fits(f.note.proof, head, buf[fileid.MaxHead:])
	if ok && len(f.note.suffix) == 0 && f.note.proof.Len > 0 {
		f.note.suffix = append(f.note.suffix, buf[fileid.MaxHead:][:f.note.proof.Len]...)
	}
	if ok {
		ns.grow(f.note, head[:min(int64(len(head)), f.cursor.Next)])
	}
	return ok, err
}

// stamp notes that all that was handed out stands in the file as it is now.
func (f *file) stamp() { f.checked, f.stampAt, f.stampLen = true, f.info.ModTime, f.info.Size }

// changed says whether the file was written since stamp.
func (f *file) changed() bool {
	return !f.checked || f.stampLen != f.info.Size || f.stampAt != f.info.ModTime
}

// close gives the handle back.
func (f *file) close() error {
	if f.view != nil {
		f.view.Close()
	}
	if f.handle == nil {
		return nil
	}
	err := f.handle.Close()
	f.handle = nil
	return err
}

// partName is the name of f's partition.
func (f *file) partName() string {
	if f.aside != nil {
		return cmp.Or(f.aside.listed, f.label)
	}
	return f.label
}

// ledTo notes that f leads on from a widow.
func (f *file) ledTo(w *file) {
	if f.beside {
		f.rare().listed = w.part.Name
	}
}

// rename gives f another name; spans that were handed out keep the partition with the old one.
func (f *file) rename(dir Dir, name, label string) {
	f.dir, f.name, f.label = dir, name, label
	if f.aside != nil {
		f.aside.listed = ""
	}
	if f.part != nil {
		part := *f.part
		part.Name = label
		f.part = &part
	}
}
