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
	dir       Dir // opens name; nil if only a handle leads to the file
	name      string
	label     string
	info      stat
	since     time.Duration // monotonic: when size or modification time last changed
	state     state
	scan      uint32 // the last listing in which it was seen
	firstScan uint32 // the first listing in which it was seen

	entry   *Entry // nil: not identified yet
	cursors []*cursor

	handle      vfs.File
	refreshedAt time.Duration // when the handle was last used (see handles.refresh)
	// decompressor of the file; nil if the file is not compressed. Positions of a compressed file
	// count decompressed bytes. The types stat and version have its compressed size
	view    *unpack.File
	viewsAt stamp // the last change when the decompressors were attached

	// time since which bytes wait to be read, if the file is not identified; 0 if there are
	// none
	unread   time.Duration
	nameless time.Duration // its name is gone since then
	// time until which the file is held back as a possible copy, or awaits a successor (another
	// file with its data); 0 if neither is the case
	heldUntil time.Duration
	trouble   *trouble // nil: it could be read
	extras    *extras  // nil: nothing of it was needed

	foundEmpty    bool // it was empty when it was first listed
	counted       bool // deleted: it was added to the counters of unread files
	closedForRoom bool // it is in handles.closedForRoom
	dataElsewhere bool // its missing data belongs to another file
}

// newFile returns the record of a file that is seen now, in the listing with the number scan.
func newFile(s Listed, info stat, now time.Duration, scan uint32) *file {
	return &file{
		dir: s.Dir, name: s.Name, label: s.Label, info: info, since: now, unread: max(now, 1),
		scan: scan, firstScan: scan,
	}
}

// extras holds the state that few files need, so that the records of all others stay small.
type extras struct {
	framing       lines.Framing // its own; nil: the source's
	folderMissing bool          // awaiting, and its folder is not there
	unseen        bool          // awaiting: the present content of its inode was not seen
	empty         version       // compressed and empty: as it was then
	// if the file has an unlisted name: its last listed name. The next run detects the rotation
	// by this name
	listed    string
	compared  time.Duration // when it was compared with others last, and held back
	equal     *Entry        // the identity of a file with the same first equalTo bytes
	equalTo   int64
	equalSize int64 // its own size at that comparison
	// the file has the name and the content of a deleted file, and no message has reported this yet
	restored bool
	why      string // awaiting: the reason
	// latest time at which an awaiting or nameless file is given up, if its normal waiting time was
	// extended (see lateMost); otherwise 0
	until    time.Duration
	nextLook time.Duration // finished
	checks   uint8         // looks at it
	// fingerprint of the bytes that were seen in the file, if no route has read any of it
	unreadFingerprint fileid.Fingerprint
	shrunk            int64 // the largest size that it had before it shrank
	packed            bool  // recognised by its stat alone, and compressed: see findView
}

func (f *file) ensureExtras() *extras {
	if f.extras == nil {
		f.extras = &extras{}
	}
	return f.extras
}

// trouble is the reason why a file cannot be read.
type trouble struct {
	failures backoff.State
	// the version of the file in which the compressed data is truncated or damaged. Each route
	// reads it up to the damage, and reads on when the file has changed
	broken  version
	retryAt time.Duration
	last    error
}

// update records a new stat of the file, and the time at which a change or unread bytes were first
// seen.
func (f *file) update(i stat, now time.Duration) {
	if i.Size != f.info.Size || i.ModTime != f.info.ModTime {
		f.since = now
	}
	if i.Size < f.info.Size {
		f.ensureExtras().shrunk = max(f.ensureExtras().shrunk, f.info.Size)
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

// seen returns the attributes of the file that package fileid compares. withTime is false for a
// file that was followed: its writer may have changed it, and its modification time is then later
// than the recorded one, although it is the same file.
func (f *file) seen(head []byte, withTime bool) fileid.File {
	out := fileid.File{Dev: f.info.Dev, Ino: f.info.Ino, Size: f.holds(fileid.MaxHead), Head: head}
	out.Birth = int64(f.info.Birth)
	if withTime {
		out.ModTime = int64(f.info.ModTime)
	}
	return out
}

// data returns the reader of the file's content.
func (f *file) data() io.ReaderAt {
	if f.view != nil {
		return f.view
	}
	return f.handle
}

// readHead reads the head of the file into buf: its first bytes, which its id hashes.
func (f *file) readHead(buf []byte) ([]byte, error) {
	n := int(min(f.holds(fileid.MaxHead), fileid.MaxHead))
	return buf[:n], f.readFull(buf[:n], 0)
}

// readBefore returns the last bytes before a position, at most fileid.MaxBefore of them.
func (f *file) readBefore(at int64) ([]byte, error) {
	before := make([]byte, min(at, fileid.MaxBefore))
	return before, f.readFull(before, at-int64(len(before)))
}

// readFull fills buf. It returns io.ErrUnexpectedEOF if the file is too short.
func (f *file) readFull(buf []byte, off int64) error {
	return lines.ReadFull(f.data(), buf, off)
}

// fits reports whether the file contains the data that the fingerprint p was made of. buf must have
// room for the bytes that p hashes before its position.
func (f *file) fits(p fileid.Fingerprint, head, buf []byte) (bool, error) {
	n, off, end := p.Wants()
	if len(head) < n || f.view != nil && !p.FitsHead(head) { // before decompressing all
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

// fingerprint returns the fingerprint of the route that has read furthest.
func (f *file) fingerprint() fileid.Fingerprint {
	if cur := f.furthest(); cur != nil {
		return cur.note.fingerprint
	}
	return fileid.Fingerprint{}
}

func (f *file) blank() bool { return f.all((*cursor).blank) }

// unchanged reports whether the delivered data is still in the file: the head matches the id, and
// the bytes before the cursor are the ones that were read. If the head has grown, the hash of the
// longer head is recorded.
func (cur *cursor) unchanged(id fileid.ID, buf []byte) (bool, error) {
	f := cur.f
	head, err := f.readHead(buf)
	if err != nil {
		return false, err
	}
	if !id.Match(f.seen(head, false)) {
		return false, nil
	}
	ok, err := f.fits(cur.note.fingerprint, head, buf[fileid.MaxHead:])
	if ok && len(cur.note.suffix) == 0 && cur.note.fingerprint.Len > 0 {
		cur.note.suffix = append(cur.note.suffix,
			buf[fileid.MaxHead:][:cur.note.fingerprint.Len]...)
	}
	if ok {
		cur.r.notes.grow(cur.note, head[:min(int64(len(head)), cur.pos.Next)])
	}
	return ok, err
}

// views returns the decompressors of the file: its own, and those of cursors.
func (f *file) views() (out []*unpack.File) {
	if f.view != nil {
		out = append(out, f.view)
	}
	for _, cur := range f.cursors {
		if cur.own != nil {
			out = append(out, cur.own)
		}
	}
	return out
}

// attachViews updates the file's decompressors to its current size and handle.
func (f *file) attachViews() error {
	changed := f.viewsAt != f.info.ModTime
	for _, v := range f.views() {
		if changed || !v.Is(f.handle, f.info.Size) {
			if err := v.Attach(f.handle, f.info.Size); err != nil {
				return err
			}
		}
	}
	f.viewsAt = f.info.ModTime
	return nil
}

// dropView closes the file's decompressors and forgets that it is compressed.
func (f *file) dropView() {
	for _, cur := range f.cursors {
		cur.dropView()
	}
	if f.view != nil {
		f.view.Close()
		f.view = nil
	}
}

func (f *file) close() error {
	for _, v := range f.views() {
		v.Close()
	}
	if f.handle == nil {
		return nil
	}
	err := f.handle.Close()
	f.handle = nil
	return err
}

// isEmpty reports whether a compressed file without an id was empty and has not changed since.
func (f *file) isEmpty() bool {
	return f.entry == nil && f.extras != nil && f.extras.empty.is(f.info)
}

// isUnidentified reports whether a file with readable bytes is not identified yet.
func (f *file) isUnidentified() bool {
	return f.entry == nil && f.info.Size > 0 && f.trouble == nil && !f.isEmpty()
}

// byHandle reports whether only its handle leads to the file.
func (f *file) byHandle() bool { return f.state == nameless || f.dir == nil }

// isUnlisted reports whether f is read without a listed name.
func (f *file) isUnlisted() bool { return f.state == nameless || f.state == unlisted }

func (f *file) partName() string {
	if f.extras != nil {
		return cmp.Or(f.extras.listed, f.label)
	}
	return f.label
}

// rename gives f another name. Spans that were handed out keep the partition with the old name.
func (f *file) rename(dir Dir, name, label string) {
	f.dir, f.name, f.label = dir, name, label
	if f.extras != nil {
		f.extras.listed = ""
	}
	for _, cur := range f.cursors {
		part := *cur.part
		part.Name = label
		cur.part = &part
	}
}

func (f *file) isFolderMissing() bool { return f.extras != nil && f.extras.folderMissing }

// isHeldElsewhere reports whether another file contains all data of f. The routes read that file,
// and f was held back as its possible copy.
func (f *file) isHeldElsewhere() bool {
	return f.extras != nil && f.extras.equal != nil && f.extras.equalTo >= f.info.Size
}

// isDeleted reports whether an open file has no name any more, by its last stat. Perhaps no listing
// has shown this yet.
func (f *file) isDeleted() bool {
	return f.info.Links == 0 && (f.state == nameless || f.info.Ino != 0 && f.handle != nil)
}

// isBeingMade reports whether f, a possible copy of w, is still being written: at the last look it
// had fewer bytes than were read of w, and it has grown since. Without another look, f would
// continue w at too early a position.
func (f *file) isBeingMade(w *file) bool {
	if f.info.Size >= w.read() || f.view != nil {
		return false
	}
	info, err := f.handle.Stat()
	return err == nil && info.Size > f.info.Size
}
