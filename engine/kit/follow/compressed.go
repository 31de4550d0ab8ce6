package follow

import (
	"io"
	"math"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Packed configures how compressed files are read. Its zero value reads every file as it is.
type Packed struct {
	Auto         bool        // the first bytes of each file determine its format
	Kind         unpack.Kind // without Auto: the format of every file
	MaxExpansion int         // as in unpack.Options
}

// compressions are the values of the key `compression`.
var compressions = map[string]Packed{
	"auto": {Auto: true}, "none": {}, "gzip": {Kind: unpack.Gzip}, "zstd": {Kind: unpack.Zstd},
}

// of returns the compression of a file that begins with head.
func (p Packed) of(head []byte) unpack.Kind {
	if p.Auto {
		return unpack.Detect(head)
	}
	return p.Kind
}

const (
	// packedWait is the time for which a compressed file must be unchanged before it is read, if
	// files may grow. A compressor writes a file in one go. Until it has finished, the file may end
	// in the middle of a record.
	packedWait = time.Second
	// packedAhead is the number of bytes that are decompressed in addition to a batch, so that
	// the last record of the batch is usually complete.
	packedAhead = 64 << 10
	// packedBack is the number of decompressed bytes before the read position that are kept.
	packedBack = 512 << 10
	// markSize is the length of the prefix that determines a file's character encoding.
	markSize = 4
	// searchFrom limits the memory for a record of a compressed file that is longer than
	// max_record. With Rules.DeadLetter, such a record becomes a dead letter with its first bytes.
	// If the record is longer than max_record plus searchFrom, its other bytes are not kept in
	// memory, and only its end is searched for.
	searchFrom = 4 << 20
)

// unpacker finds out which files are compressed, and reads them.
type unpacker struct {
	c        *Catalogue
	decoders unpack.Decoders
}

// firstHead reads the head (the first bytes) of a file that has no id yet, and determines its
// compression. If l is not nil and files cannot grow, l keeps the bytes, so that they need not be
// read again.
func (u *unpacker) firstHead(f *file, l *filler) ([]byte, error) {
	if f.view == nil {
		read := f.readHead
		if l != nil && !u.c.grows() {
			read = func(head []byte) ([]byte, error) { return l.readFirst(f, head) }
		}
		head, err := read(u.c.head[:fileid.MaxHead])
		kind := u.c.o.Packed.of(head)
		if err != nil || kind == unpack.None {
			return head, err
		}
		f.view = u.newView(kind)
		if err := f.attachViews(); err != nil {
			return nil, err
		}
	}
	return f.readHead(u.c.head[:])
}

func (u *unpacker) newView(kind unpack.Kind) *unpack.File {
	return unpack.New(kind,
		unpack.Options{MaxExpansion: u.c.o.Packed.MaxExpansion, Go: u.c.h.Go, Decoders: &u.decoders})
}

// findView determines the compression of a file that was recognised by its stat alone.
func (u *unpacker) findView(f *file) error {
	if f.view != nil || f.extras == nil || !f.extras.packed {
		return nil
	}
	var magic [unpack.MaxMagic]byte
	n, err := f.handle.ReadAt(magic[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	if kind := u.c.o.Packed.of(magic[:n]); kind != unpack.None {
		f.view = u.newView(kind)
	}
	return nil
}

// ownView gives the cursor a decompressor of its own. It does nothing if the file is not
// compressed, or if the cursor is the first of the file, which uses the file's decompressor.
func (cur *cursor) ownView() error {
	f := cur.f
	if f.view == nil || cur.own != nil || f.cursors[0] == cur {
		return nil
	}
	cur.own = cur.r.c.unpacker.newView(f.view.Kind())
	return f.attachViews()
}

// isWhole reports whether a compressed file has been unchanged long enough to count as whole: for
// packedWait if files may grow, otherwise for Options.Settle. If not, isWhole schedules another
// look at the file.
func (u *unpacker) isWhole(f *file) bool {
	at, now := u.c.quietAt(f.info.ModTime, f.since)
	if u.c.grows() {
		at = f.since + packedWait
	}
	if at > now {
		u.c.pace.dueAt(at)
	}
	return at <= now
}

// hasNothing reports whether a compressed file without an id has nothing to read, because it cannot
// be read or, if files grow, because it is empty. It logs read errors.
func (u *unpacker) hasNothing(f *file, head []byte) bool {
	switch {
	case len(head) > 0:
		return false
	case u.isBroken(f, nil):
		return true
	case !u.c.grows():
		return false
	}
	f.ensureExtras().empty = versionOf(f.info)
	u.c.handles.close(f)
	return true
}

// isBroken reports whether reading a compressed file has failed, and logs the failure. A truncated
// or damaged file stays open until every route has read it up to the damage. A file with a name is
// then closed, and read again when it has changed. A file without a name is given up, because only
// its handle leads to it. cur is nil if the file is not identified yet.
func (u *unpacker) isBroken(f *file, cur *cursor) bool {
	view := f.view
	if cur != nil {
		view = cur.view()
	}
	if view == nil {
		return false
	}
	err := view.Err()
	switch {
	case err == nil:
		return false
	case !unpack.Broken(err):
		u.c.handles.fail(f, err)
		return true
	}
	allMet := f.all((*cursor).isDrained)
	if f.entry != nil && f.byHandle() && allMet {
		u.c.lose(f, err.Error())
		return true
	}
	if f.trouble == nil {
		u.c.log.Warn("a compressed file cannot be read to its end; the whole records before are "+
			"delivered, the file is left where it is, "+
			"and read on when it has changed", "file", f.label, "delivered", f.read(), "error", err)
		u.c.count("files_unreadable", 1)
		f.trouble = &trouble{}
	}
	f.trouble.broken, f.trouble.last, f.trouble.failures.N = versionOf(f.info), err, onceTries
	if allMet {
		u.c.handles.close(f)
	}
	return true
}

// isTroubled reports whether a route skips a file for now, because the file could not be read. A
// route skips a damaged file only after it has read the file up to the damage.
func (u *unpacker) isTroubled(r *Reader, f *file, now time.Duration) bool {
	cur := f.by(r)
	switch {
	case f.trouble == nil:
		return false
	case f.trouble.broken.is(f.info) && (cur == nil || cur.isDrained()):
		return true
	case f.trouble.retryAt > now:
		u.c.pace.dueAt(f.trouble.retryAt)
		return true
	}
	return false
}

// fillFrom is like [lines.Filler.Fill], but also reads compressed files. The size of a compressed
// file is unknown until it is decompressed, so fillFrom decompresses more as long as b has room.
func (cur *cursor) fillFrom(b *stream.Batch, end ending) (lines.Result, error) {
	r, f := cur.r, cur.f
	grows := r.c.grows()
	file := lines.File{
		ReaderAt: r.filler.source(f), Part: cur.part, Size: f.info.Size, Sealed: end.sealed,
		Flush: end.flush, Growing: grows,
	}
	var err error
	if file.Framing, err = r.c.unpacker.framingOf(f); err != nil {
		return lines.NoRoom, err
	}
	if f.view == nil {
		return r.filler.Fill(b, &cur.pos, file)
	}
	if err := cur.ownView(); err != nil {
		return lines.NoRoom, err
	}
	view := cur.view()
	file.ReaderAt = view
	for ahead := r.target + packedAhead; ; {
		view.Window(ahead + packedBack)
		size, over := view.Size(cur.pos.Next + ahead)
		whole := over && view.Err() == nil
		file.Size, file.Sealed, file.Flush, file.Growing = size, whole && end.sealed, whole && end.flush, over && grows
		if r.c.o.Rules.DeadLetter && !over && ahead > int64(r.c.o.Rules.MaxRecord)+searchFrom {
			file.Size = math.MaxInt64 / 2 // the view knows its end once the search has reached it
		}
		before := cur.pos.Next
		res, err := r.filler.Fill(b, &cur.pos, file)
		if err == io.ErrUnexpectedEOF && !over {
			if _, over = view.Known(); over {
				continue
			}
		}
		if cur.pos.Next > before {
			cur.remember(b, before)
		} else {
			ahead += ahead / 2
		}
		switch {
		case err != nil || res != lines.Drained:
			return res, err
		case over:
			cur.stamp()
			view.Rest()
			return res, nil
		}
	}
}

// framingOf returns the framing of a file. If ByHead is set, it derives the framing from the first
// bytes.
func (u *unpacker) framingOf(f *file) (lines.Framing, error) {
	if u.c.o.ByHead == nil {
		return u.c.o.Rules.Framing, nil
	}
	if a := f.ensureExtras(); a.framing == nil {
		head := make([]byte, min(f.holds(markSize), markSize))
		if err := f.readFull(head, 0); err != nil {
			return nil, err
		}
		if len(head) < 2 { // the mark may not be written completely
			return u.c.o.Rules.Framing, nil
		}
		a.framing = u.c.o.ByHead(head)
	}
	return f.extras.framing, nil
}
