package follow

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/penstock-io/penstock/fileid"
)

// equals reports whether one of the files f and g begins with all of the other. To be quick, it
// compares only the first and the last bytes of the part that both files have. It stores the length
// of this part in f (equalTo).
func (k *copies) equals(f, g *file, head []byte) bool {
	n := min(f.holds(fileid.MaxHead), g.holds(fileid.MaxHead), fileid.MaxHead)
	if n == 0 {
		return false
	}
	first := make([]byte, n)
	if g.readFull(first, 0) != nil || !bytes.Equal(head[:n], first) {
		return false
	}
	to := g.size()
	to = min(to, f.holds(to))
	mine, err := f.readBefore(to)
	other, otherErr := g.readBefore(to)
	if err != nil || otherErr != nil || !bytes.Equal(mine, other) {
		return false
	}
	a := f.ensureExtras()
	a.equal, a.equalTo, a.equalSize = g.entry, to, f.info.Size
	return true
}

// fingerprints returns the fingerprints of the data that the routes have read of f, the furthest
// position first. They show how much of this data another file contains.
func (f *file) fingerprints() []fileid.Fingerprint {
	var out []fileid.Fingerprint
	for _, cur := range f.cursors {
		out = append(out, cur.r.notes.all(cur.note)...)
	}
	out = slices.DeleteFunc(out, func(p fileid.Fingerprint) bool { return p.At == 0 })
	slices.SortStableFunc(out, func(a, b fileid.Fingerprint) int { return cmp.Compare(b.At, a.At) })
	return slices.CompactFunc(out, func(a, b fileid.Fingerprint) bool { return a == b })
}

// mayBecomeWhole reports whether f may be an incomplete copy of w that is still being written: f
// ends between two positions up to which routes have read w. Example: routes have read 300 and 900
// bytes of w, and f has 500 bytes. The rest of the copy is then awaited for the first half of
// CopyWait.
func (k *copies) mayBecomeWhole(f, w *file) bool {
	return f.view == nil && f.info.Size < w.read() && k.c.now() < w.heldUntil-k.c.o.Growing.CopyWait/2
}

// mayInherit reports whether f may be the successor of the deleted file w. That is the case if f
// has another name than w. It is also the case if f was modified before it was created, because
// then f is a copy with the time of its original. With ByContent, name and times do not count.
func (k *copies) mayInherit(f, w *file) bool {
	return f.label != w.label || f.info.ModTime < f.info.Birth || k.c.o.Identity == ByContent
}

// mayBe reports whether f may have the data of the awaiting file w, which has lost its name or its
// content, and of which nothing was read. There is no fingerprint of read data to compare. So f
// must be at least as long as w, and begin with the bytes that the id of w hashes.
func (k *copies) mayBe(f, w *file, head []byte) bool {
	id := w.entry.id
	if w.entry.phase == known && !k.mayInherit(f, w) || f.view != nil ||
		f.info.Size < w.info.Size || w.info.Size == 0 {
		return false
	}
	return int64(id.Len) >= min(w.info.Size, fileid.MaxHead) && id.MatchHead(head)
}

// holdsSeenBytes reports whether f, which begins with head, may have the data of the awaiting file
// w. w has lost its name or its content, and no route has read anything of it. f must contain the
// bytes that w had when it was last looked at (unreadFingerprint), and must be no older than these
// bytes.
func (k *copies) holdsSeenBytes(f, w *file, head []byte) bool {
	p := w.extras.unreadFingerprint
	return p.At > 0 && int64(f.info.ModTime) >= p.ModTime && k.fits(f, p, head)
}

// hasSameHead reports whether f may have the data of the awaiting file w, which has lost its name
// or its content. It judges by w's id and watermark alone. This is needed if a sink's ledger has
// the watermark, but the process was killed before the checkpoint had a fingerprint of the read
// data. f must have as many bytes as were read of w, and begin with the bytes that the id hashes.
// The id must hash all read bytes, or at least fileid.MaxBefore of them.
func (k *copies) hasSameHead(f, w *file, head []byte) bool {
	id, read := w.entry.id, w.read()
	if read == 0 || f.holds(read) < read || int64(id.Len) < min(read, fileid.MaxBefore) {
		return false
	}
	seen := f.seen(head, false)
	seen.Dev, seen.Ino, seen.Birth, seen.ModTime = id.Dev, id.Ino, id.Birth, id.ModTime
	return id.Match(seen)
}

// fits reports whether f, which begins with head, contains the data that the fingerprint p was made
// of. If f cannot be read, fits returns false.
func (k *copies) fits(f *file, p fileid.Fingerprint, head []byte) bool {
	ok, err := f.fits(p, head, k.c.head[fileid.MaxHead:])
	return ok && err == nil
}

// mayGrowInto reports whether f may be an incomplete copy of the awaiting file w, which has lost
// its name or its content: f is shorter than the read data of w. The caller has compared the
// beginnings of f and w with mayBegin.
//
// If this process never saw the beginning of w, the id of w decides. If f is shorter than the bytes
// that the id hashes, the id cannot be compared. The result is then true if w was deleted, because
// f could otherwise be delivered twice. It is false if w was rewritten in place, because any number
// of unrelated new files may appear next to w.
func (k *copies) mayGrowInto(f, w *file, head []byte) bool {
	if f.view != nil || f.isUnlisted() || f.info.Size >= w.read() || !k.mayInherit(f, w) ||
		sameFile(f.info, w.info) {
		return false
	}
	id := w.entry.id
	return len(w.entry.prefix) > 0 || id.MatchHead(head) ||
		len(head) < id.Len && w.entry.phase == known
}

// grewAsCopy reports whether f may have more bytes than were equal when it was compared with its
// possible original. If so, only the fingerprints show how much of the original f contains.
func (k *copies) grewAsCopy(f *file) (bool, error) {
	if f.view != nil {
		return f.info.Size != f.extras.equalSize, nil
	}
	info, err := f.handle.Stat()
	if err != nil {
		return false, err
	}
	f.update(statOf(info), k.c.now())
	return f.info.Size > f.extras.equalTo, nil
}

// isUnfinished reports whether f begins like w, but is compressed and incomplete, probably because
// it is still being written. w is an awaiting file: it has lost its name or its content.
func (k *copies) isUnfinished(f, w *file, head []byte) bool {
	p := w.fingerprint()
	if f.view == nil || len(head) < p.Head || !p.FitsHead(head) {
		return false
	}
	f.size()
	return f.view.Err() != nil
}
