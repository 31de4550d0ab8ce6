package follow

import (
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// copied finds out whether f, which nobody knows, is a copy that a rotation made of a file that was
// read: copytruncate, or a move to another file system. Then it is read on from where that one was
// read to. done says that it is one, or may be one and is held back; read that there is something
// to be read of it now.
//
// Two files with the same content are two files, as long as both are there. So a copy counts only
// when its original is gone or was rewritten, and until then a file that equals another one of a
// related name is held back for CopyWait.
func (r *Reader) copied(f *file, head []byte) (done, read bool) {
	if r.rotated.asking != nil {
		return false, false
	}
	r.rotated.asking = f
	defer func() { r.rotated.asking = nil }()
	hold, grows, untold, unread := false, false, false, r.unreadKin(f, head)
	var unbegun *file
	for _, e := range r.kin(f, head) {
		g, w := r.rotated.byEntry[e], r.rotated.widows[e]
		equal := false
		if w == nil && g != nil { // looked at once more after it was compared: it may be emptied meanwhile
			standing := r.standsNow(g)
			if equal = standing && r.equals(f, g, head); standing && !equal {
				standing = r.standsNow(g)
			}
			if w = r.rotated.widows[e]; w == nil && !standing { // it cannot be told now
				untold = true
				unread = unread || g.trouble != nil
				continue
			}
		}
		switch {
		case w != nil && r.unfinished(f, w, head):
			hold = true
			continue
		case w != nil && w.blank():
			if unbegun == nil && r.mayBe(f, w, head) {
				unbegun = w
			}
			continue
		case w != nil && f.beingMade(w):
			r.pace.soon()
			return true, false
		case w != nil:
		case !equal:
			continue
		case g.deleted() && f.holds(g.all()) >= g.all() && mayInherit(r.s, f, g):
			w = r.bereave(g) // moved to another file system, or restored: only the old one's handle was left
		case f.deletedNow() && mayInherit(r.s, g, f) && (f.info.Birth <= g.info.Birth || !g.info.Birth.known()):
			r.s.log.Info("a deleted file is read in a copy of it", "file", f.label, "copy", g.label, "size", f.aside.twinTo)
			r.count("files_rotated", 1)
			r.startBehind(f, head, f.aside.twinTo)
			return true, true
		default:
			hold = true
			continue
		}
		if ok, err := r.inherit(f, w, head); err != nil {
			r.unreadNow(f, err)
			return true, false
		} else if ok {
			return true, true
		}
		if r.maybeRestored(f, w, head) {
			hold, f.rare().restored = true, true
		}
		grows = grows || r.mayGrowInto(f, w, head)
	}
	if unread && r.holdUnread(f) || (hold || untold || grows && unbegun == nil) && r.holdBack(f, untold) {
		return true, false
	}
	if unbegun != nil && r.rotated.widows[unbegun.entry] == unbegun { // but what was read of the data, if any was, comes first
		r.adopt(f, unbegun)
		return true, true
	}
	r.sayNew(f)
	return false, false
}

// untoldMost is how many listings a file is held back for at most when its time is over and one
// that it may be a copy of cannot be looked at, because its name is gone since the last listing.
const untoldMost = 3

// holdBack says whether f, which may be a copy, is looked at again later.
func (r *Reader) holdBack(f *file, untold bool) bool {
	now := r.s.now()
	f.rare().asked = now
	f.held = max(f.held, f.since+r.grow.CopyWait)
	r.holding = max(r.holding, f.held)
	if now < f.held {
		r.pace.dueAt(f.held)
		return true
	}
	if !untold {
		return false
	}
	a := f.rare()
	if a.untold == 0 {
		a.untold = r.scans + untoldMost
	}
	r.pace.soon()
	return r.scans < a.untold
}

// askAgain says whether to compare a file that is held back with others once more: it was changed,
// or a file was met, renamed, deleted or emptied since, or it was not compared for as long as an
// idle reader waits at most, because not every change shows in a listing.
func (r *Reader) askAgain(f *file, now time.Duration) bool {
	a := f.rare()
	if a.unread > now {
		return false
	}
	at := a.asked + r.s.o.PollMax
	if now < at && f.since <= a.asked && r.stirred <= a.asked {
		r.pace.dueAt(at)
		return false
	}
	return true
}

// standsNow says whether what was handed out of g stands in it at this moment. Where something else
// does, g is a widow.
func (r *Reader) standsNow(g *file) bool { return r.lookNow(g) && r.verify(g, false) }

// sayNew reports that what may have been restored, without its old time, is read as a new file:
// better twice than not at all.
func (r *Reader) sayNew(f *file) {
	if f.aside == nil || !f.aside.restored {
		return
	}
	f.aside.restored = false
	r.s.log.Warn("a file has the name and the content of one that is gone, and is newer: it is read from its beginning; what was read of "+
		"the other one comes twice if it was restored from a backup that did not keep its time", "file", f.label, "size", f.info.Size)
	r.count("files_doubtful", 1)
}

// kin returns the files and widows of the names from which f's may have been made, the longest
// first, but for those of which something else was read than f, which begins with head, begins
// with: widows of many rotations may be waiting.
func (r *Reader) kin(f *file, head []byte) []*Entry {
	var out []*Entry
	r.riseKin(f.label)
	base := path.Base(f.label)
	for n := len(base); n > 0; n-- {
		found := 0
		for _, g := range r.rotated.stems[base[:n]] {
			if g != f && g.entry != nil && !g.lost && r.mayBegin(g, head) {
				out = append(out, g.entry)
				if found++; found == maxKin {
					break
				}
			}
		}
	}
	return out
}

// mayBegin says whether what was read of g may begin with head, or head with it, as far as that is
// known without a look at g.
func (r *Reader) mayBegin(g *file, head []byte) bool {
	if g.note == nil {
		return true
	}
	if p := g.note.proof; p.Head > 0 {
		return len(head) < p.Head || p.FitsHead(head)
	}
	id := r.s.idOf(g.entry)
	return len(head) < id.Len || id.MatchHead(head)
}

// equals says whether f is a copy of the beginning of g, as far as head and end tell, and notes how
// far.
func (r *Reader) equals(f, g *file, head []byte) bool {
	k := min(f.holds(fileid.MaxHead), g.holds(fileid.MaxHead), fileid.MaxHead)
	if k == 0 {
		return false
	}
	mine, other := make([]byte, fileid.MaxBefore), make([]byte, fileid.MaxHead)
	if g.readFull(other[:k], 0) != nil || !slices.Equal(head[:k], other[:k]) {
		return false
	}
	n := g.all()
	n = min(n, f.holds(n))
	k = min(n, fileid.MaxBefore)
	if f.readFull(mine[:k], n-k) != nil || g.readFull(other[:k], n-k) != nil || !slices.Equal(mine[:k], other[:k]) {
		return false
	}
	a := f.rare()
	a.twin, a.twinTo, a.twinOf = g.entry, n, f.info.Size
	return true
}

// inherit lets f lead on from a widow whose data it holds. Not every file that begins with the same
// bytes does: where the old one's name was simply given to a new file of the same content, the new
// one is new.
func (r *Reader) inherit(f, w *file, head []byte) (bool, error) {
	if !w.displaced && !mayInherit(r.s, f, w) && !r.apart(f, w) {
		return false, nil
	}
	return r.leadOn(f, w, head)
}

// apart says whether f is the very file that w was, which another route has found elsewhere: one of
// the two is a copy of the other, and each route goes on where it is.
func (r *Reader) apart(f, w *file) bool {
	return sameFile(f.info, w.info) && r.s.movedOn(w.entry, f.info)
}

// leadOn is inherit for a file that may be what became of w: as far as the proofs of what was read
// of w stand in it, it was read.
func (r *Reader) leadOn(f, w *file, head []byte) (bool, error) {
	if a := f.aside; a != nil && a.twin == w.entry && a.twinTo < w.cursor.Next {
		grown, err := r.grewAsCopy(f)
		if err != nil {
			return false, err
		}
		if !grown {
			r.startCopy(f, w, head, a.twinTo)
			return true, nil
		}
	}
	if w.note.proof.At == 0 && r.sameHead(f, w, head) {
		r.adopt(f, w)
		return true, nil
	}
	proofs := append([]fileid.Proof{w.note.proof}, w.note.earlier...)
	slices.SortFunc(proofs, func(a, b fileid.Proof) int { return int(b.At - a.At) })
	for i, p := range proofs {
		if p.At == 0 {
			continue
		}
		ok, err := f.fits(p, head, r.head[fileid.MaxHead:])
		switch {
		case err != nil:
			return false, err
		case !ok:
		case i == 0 && f.holds(w.cursor.Next) >= w.cursor.Next && !r.apart(f, w):
			r.adopt(f, w)
			return true, nil
		default:
			r.startCopy(f, w, head, p.At)
			return true, nil
		}
	}
	return false, nil
}

// blank says whether nothing was read of a widow.
func (f *file) blank() bool {
	return f.cursor.Next == 0 && len(f.cursor.Above) == 0 && f.note.proof.At == 0
}

// mayBe says whether f begins as the widow w did, of which nothing was read, and has all that was
// seen of it.
func (r *Reader) mayBe(f, w *file, head []byte) bool {
	if shows(f, w, head) {
		return true
	}
	id := r.s.idOf(w.entry)
	if !w.displaced && !mayInherit(r.s, f, w) || f.view != nil || f.info.Size < w.info.Size || w.info.Size == 0 {
		return false
	}
	return int64(id.Len) >= min(w.info.Size, fileid.MaxHead) && id.MatchHead(head)
}

// sameHead is for a widow of which only its id and, by a sink's ledger, its watermark are known,
// because the process was killed before it saved a note: f holds that much, and begins with the
// bytes that the id has hashed, if those say enough.
func (r *Reader) sameHead(f, w *file, head []byte) bool {
	id := r.s.idOf(w.entry)
	if w.cursor.Next == 0 || f.holds(w.cursor.Next) < w.cursor.Next || int64(id.Len) < min(w.cursor.Next, fileid.MaxBefore) {
		return false
	}
	seen := f.seen(head, false)
	seen.Dev, seen.Ino, seen.Birth, seen.ModTime = id.Dev, id.Ino, id.Birth, id.ModTime
	return id.Match(seen)
}

// maybeRestored says whether f, under the name of w and with its content, may still turn out to be
// a restored copy: cp -p and tar give a file its old time after its bytes.
func (r *Reader) maybeRestored(f, w *file, head []byte) bool {
	if w.displaced || mayInherit(r.s, f, w) || w.note.proof.At == 0 {
		return false
	}
	ok, err := f.fits(w.note.proof, head, r.head[fileid.MaxHead:])
	return ok && err == nil
}

// mayInherit reports whether f may be what became of w, whose file is gone: it has another name, or
// was written before it was made, as a copy that kept its time. With ByContent its content alone
// counts.
func mayInherit(s *Set, f, w *file) bool {
	return f.label != w.label || f.info.ModTime < f.info.Birth || s.o.Identity == ByContent
}

// deleted says whether a file that is open has no name any more, as far as is known of it; a
// listing may still have to find that out.
func (f *file) deleted() bool {
	return f.info.Links == 0 && (f.orphan && !f.beside || f.info.Ino != 0 && f.handle != nil)
}

// deletedNow is deleted as of this moment: what is known of a file that nobody writes to may be
// old.
func (f *file) deletedNow() bool {
	if f.handle != nil {
		if info, err := f.handle.Stat(); err == nil {
			f.info.Links = info.Links
		}
	}
	return f.deleted()
}

// bereave gives up the handle of a deleted file for one that holds the same data.
func (r *Reader) bereave(g *file) *file {
	if key := keyOf(g.info); r.byKey[key] == g {
		delete(r.byKey, key)
	}
	if r.files[g.label] == g {
		delete(r.files, g.label)
	}
	e := g.entry
	r.widow(g, "a deleted file is read on in a copy of it")
	return r.rotated.widows[e]
}

// adopt makes f the file of a widow, from where that one was read to.
func (r *Reader) adopt(f, w *file) {
	r.unwait(w)
	r.s.takeOver(w.entry, f)
	f.entry, f.cursor, f.note = w.entry, w.cursor, w.note
	f.ledTo(w)
	f.part = &stream.Partition{ID: w.entry.text, Name: f.partName()}
	if id, err := fileid.Parse(w.entry.text); err == nil {
		r.notes.move(f.note, f.seen(nil, false), !isOf(id, f.info)) // an inode may be used again at once
	}
	f.checked, f.touch = false, true
	f.held, f.rare().twin = 0, nil
	r.rotated.add(r, f)
	r.s.log.Info("a file leads on from one that was rotated", "file", f.label, "from", w.label, "read", f.cursor.Next)
	r.count("files_rotated", 1)
}

// startCopy makes f a file of its own of which everything before to was read as part of the widow.
func (r *Reader) startCopy(f, w *file, head []byte, to int64) {
	r.unwait(w)
	w.skipped, w.rare().copy = true, f
	r.lose(w, "a copy leads on from it")
	f.ledTo(w)
	r.startBehind(f, head, to)
	r.s.log.Info("a file is a copy of one that was rotated", "file", f.label, "of", w.label, "read", to)
	r.count("files_rotated", 1)
}

// startBehind makes f a file of its own of which everything before to is read elsewhere.
func (r *Reader) startBehind(f *file, head []byte, to int64) {
	r.attach(f, r.s.giveOwn(f.seen(head, true), f.name), stream.Mark{})
	f.skipTo = to
	f.held, f.rare().twin = 0, nil
}

// takeOver says that e's data lies in f now.
func (s *Set) takeOver(e *Entry, f *file) {
	seen := f.seen(nil, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.dead = false
	s.gaveLocked(e.id)
	e.id.Dev, e.id.Ino, e.id.Birth, e.id.ModTime = seen.Dev, seen.Ino, seen.Birth, 0
	e.name = f.name
	s.byKey[e.id.Key()] = e
}

// move notes where the data of a partition lies now.
func (n *notes) move(t *note, to fileid.File, elsewhere bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.proof.Moved, t.proof.MovedBirth, t.proof.ModTime, t.proof.Packed = fileid.Key{}, 0, 0, 0
	if elsewhere {
		t.proof.Moved, t.proof.MovedBirth = to.Key(), to.Birth
	}
}
