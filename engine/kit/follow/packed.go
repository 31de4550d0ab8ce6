package follow

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Packed says how compressed files are read. Its zero value reads every file as it is.
type Packed struct {
	Auto         bool        // each file as its first bytes say
	Kind         unpack.Kind // without Auto: every file is so
	MaxExpansion int         // as in unpack.Options
}

// compressions are the values of the key `compression`.
var compressions = map[string]Packed{
	"auto": {Auto: true}, "none": {}, "gzip": {Kind: unpack.Gzip}, "zstd": {Kind: unpack.Zstd},
}

// PackedAs reads the keys `compression` and `max_expansion` of a source.
func PackedAs(compression string, maxExpansion int) (Packed, error) {
	p, ok := compressions[compression]
	switch {
	case !ok:
		return p, &stream.OptionError{Key: "compression", Err: fmt.Errorf("is %q, want auto, none, gzip or zstd", compression)}
	case maxExpansion < 0:
		return p, &stream.OptionError{Key: "max_expansion", Err: fmt.Errorf("is %d, want 0 or more", maxExpansion)}
	}
	p.MaxExpansion = maxExpansion
	return p, nil
}

const (
	// packedWait is how long a compressed file that is followed must not have changed before it is
	// read: who compresses writes to the end in one go, and what is there before holds half a record,
	// or less.
	packedWait = time.Second
	// packedAhead is how much more than a batch is decompressed, so that the record across its end
	// mostly ends in it.
	packedAhead = 64 << 10
	// packedBack is how much is kept behind the place where a file is read.
	packedBack = 512 << 10
	// markSize is how much of a file says how its characters are written.
	markSize = 4
	// searchFrom is how much more than max_record a record has to have before its end is searched for,
	// rather than its bytes be held.
	searchFrom = 4 << 20
)

// data is where the file's bytes are read.
func (f *file) data() io.ReaderAt {
	if f.view != nil {
		return f.view
	}
	return f.handle
}

// holds is how many bytes the file has: of a compressed one as many as are known for certain when
// at least to were asked for.
func (f *file) holds(to int64) int64 {
	if f.view == nil {
		return f.info.Size
	}
	size, _ := f.view.Size(to)
	return size
}

// all is how many bytes the file has. A compressed one is decompressed for it, once.
func (f *file) all() int64 { return f.holds(math.MaxInt64) }

// known is how many bytes the file has, as far as that was found out, and whether those are all.
func (f *file) known() (size int64, end bool) {
	switch {
	case f.view != nil:
		return f.view.Known()
	case f.note != nil && f.note.proof.Packed > 0:
		return f.note.proof.At, f.note.proof.Packed == f.info.Size
	}
	return f.info.Size, true
}

// partial says whether there is something behind the last record that was handed out, as far as is
// known.
func (f *file) partial() bool {
	size, _ := f.known()
	return f.cursor.Next < size
}

// atEnd says whether the file was read to its end, and ends well.
func (f *file) atEnd() bool {
	size, end := f.known()
	return end && f.cursor.Next == size && (f.view == nil || f.view.Err() == nil)
}

// allRead says whether nothing more is to be read of a file that was finished.
func (f *file) allRead() bool {
	size, end := f.known()
	return end && f.cursor.Next >= size
}

// shorter says whether the file has less than what was handed out of it.
func (f *file) shorter() bool {
	if f.view != nil {
		return f.checked && f.info.Size < f.stampLen
	}
	return f.info.Size < f.cursor.Next
}

// left is about how much is still to be read: of a compressed file in bytes of the file.
func (f *file) left() int64 {
	if f.view == nil {
		return max(0, f.info.Size-f.cursor.Next)
	}
	return max(0, f.info.Size-f.view.Consumed())
}

// firstHead reads the head of a file that has no id yet, and finds out whether it is compressed.
func (r *Reader) firstHead(f *file) ([]byte, error) {
	if f.view == nil {
		read := f.readHead
		if r.grow == nil {
			read = func(head []byte) ([]byte, error) { return r.filler.readFirst(f, head) }
		}
		head, err := read(r.head[:fileid.MaxHead])
		kind := r.s.o.Packed.Kind
		if r.s.o.Packed.Auto {
			kind = unpack.Detect(head)
		}
		if err != nil || kind == unpack.None {
			return head, err
		}
		r.unpack(f, kind)
		if err := f.attachView(); err != nil {
			return nil, err
		}
	}
	return f.readHead(r.head[:])
}

func (r *Reader) unpack(f *file, kind unpack.Kind) {
	f.view = unpack.New(kind, unpack.Options{MaxExpansion: r.s.o.Packed.MaxExpansion, Go: r.s.h.Go, Decoders: &r.unpacks})
}

// findView finds out again how a file is compressed that was known by its stat alone.
func (r *Reader) findView(f *file) error {
	if f.view != nil || f.note == nil || f.note.proof.Packed == 0 {
		return nil
	}
	kind := r.s.o.Packed.Kind
	if r.s.o.Packed.Auto {
		var magic [unpack.MaxMagic]byte
		n, err := f.handle.ReadAt(magic[:], 0)
		if err != nil && err != io.EOF {
			return err
		}
		kind = unpack.Detect(magic[:n])
	}
	if kind != unpack.None {
		r.unpack(f, kind)
	}
	return nil
}

// attachView has the view see the file as it is now.
func (f *file) attachView() error {
	if f.view == nil || f.view.Is(f.handle, f.info.Size) && f.viewAt == f.info.ModTime {
		return nil
	}
	f.viewAt = f.info.ModTime
	return f.view.Attach(f.handle, f.info.Size)
}

// dropView forgets how the file was compressed.
func (f *file) dropView() {
	if f.view != nil {
		f.view.Close()
		f.view = nil
	}
}

// rests says whether a compressed file has not changed for so long that it may be whole; if not, it
// is looked at again then.
func (r *Reader) rests(f *file) bool {
	now := r.s.now()
	at := f.since + packedWait
	if r.grow == nil {
		at, now = r.s.quietAt(f.info.ModTime, f.since)
	}
	if at > now {
		r.pace.dueAt(at)
	}
	return at <= now
}

// nothing says whether there is nothing to be read of a compressed file that has no id yet, and
// reports why.
func (r *Reader) nothing(f *file, head []byte) bool {
	switch {
	case len(head) > 0:
		return false
	case r.broken(f):
		return true
	case r.grow == nil: // it is finished like any empty file
		return false
	}
	f.stamp()
	f.drained = f.info.Size
	r.closeFile(f)
	return true
}

// empty says whether nothing was in a compressed file that is followed, and it has not changed
// since.
func (f *file) empty() bool { return f.view != nil && f.entry == nil && f.checked && !f.changed() }

// fillFrom is Fill. The end of a compressed file is not known before it was decompressed: so long
// as b has room, more of it is. before are the bytes that have to stand before what is read; nil:
// that is looked at apart.
func (r *Reader) fillFrom(b *stream.Batch, f *file, end ending, before []byte) (lines.Result, error) {
	file := lines.File{
		ReaderAt: r.filler.source(f), Part: f.part, Size: f.info.Size, Sealed: end.sealed, Flush: end.flush,
		Growing: r.grow != nil, Before: before,
	}
	if err := r.framingOf(f); err != nil {
		return lines.NoRoom, err
	}
	if f.aside != nil {
		file.Framing = f.aside.framing
	}
	if f.view == nil {
		return r.filler.Fill(b, &f.cursor, file)
	}
	for ahead := r.target + packedAhead; ; {
		f.view.Window(ahead + packedBack)
		size, over := f.view.Size(f.cursor.Next + ahead)
		whole := over && f.view.Err() == nil
		file.Size, file.Sealed, file.Flush, file.Growing = size, whole && end.sealed, whole && end.flush, over && r.grow != nil
		if r.s.o.Rules.Bury && !over && ahead > int64(r.s.o.Rules.MaxRecord)+searchFrom {
			file.Size = math.MaxInt64 / 2 // the view knows where it ends when the search has come there
		}
		before := f.cursor.Next
		res, err := r.filler.Fill(b, &f.cursor, file)
		if err == io.ErrUnexpectedEOF && !over {
			if _, over = f.view.Known(); over {
				continue
			}
		}
		if f.cursor.Next > before {
			r.remember(b, f, before)
		} else {
			ahead += ahead / 2
		}
		switch {
		case err != nil || res != lines.Drained:
			return res, err
		case over:
			f.stamp()
			f.view.Rest()
			return res, nil
		}
	}
}

// framingOf finds out which framing a file has, where its first bytes say.
func (r *Reader) framingOf(f *file) error {
	if r.s.o.ByHead == nil || f.aside != nil && f.aside.framing != nil {
		return nil
	}
	head := make([]byte, min(f.holds(markSize), markSize))
	if err := f.readFull(head, 0); err != nil {
		return err
	}
	f.rare().framing = r.s.o.ByHead(head)
	return nil
}

// broken says whether a compressed file cannot be read further than it was, and reports it, once
// for each state of it: it is left where it is, and tried again when it has changed.
func (r *Reader) broken(f *file) bool {
	if f.view == nil {
		return false
	}
	err := f.view.Err()
	switch {
	case err == nil:
		return false
	case !unpack.Broken(err):
		r.fail(f, err)
		return true
	case f.entry != nil && (f.orphan && !f.beside || f.dir == nil):
		r.lose(f, err.Error())
		return true
	}
	f.stamp()
	f.drained = f.info.Size
	if f.trouble == nil {
		r.s.log.Warn("a compressed file cannot be read to its end; the whole records before are delivered, the file is left where it is, "+
			"and read on when it has changed", "file", f.label, "delivered", f.cursor.Next, "error", err)
		r.count("files_unreadable", 1)
		f.trouble = &trouble{}
	}
	f.trouble.broken, f.trouble.last, f.trouble.failures.N = true, err, onceTries
	r.closeFile(f)
	return true
}

// troubled says whether a file that could not be read is left alone for now.
func (r *Reader) troubled(f *file, now time.Duration) bool {
	switch {
	case f.trouble == nil:
		return false
	case f.trouble.broken:
		return !f.changed()
	case f.trouble.retryAt > now:
		r.pace.dueAt(f.trouble.retryAt)
		return true
	}
	return false
}

// unfinished says whether f begins as the widow w does, but is compressed and does not end well: it
// is still being written.
func (r *Reader) unfinished(f, w *file, head []byte) bool {
	if f.view == nil || len(head) < w.note.proof.Head || !w.note.proof.FitsHead(head) {
		return false
	}
	f.all()
	return f.view.Err() != nil
}
