package follow

import (
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

const (
	// maxKin is how many files of one stem a new file is compared with.
	maxKin = 32
	// untoldMost is how many listings a file is held back for at most when its time is over and one that it may be a copy of
	// cannot be looked at, because its name is gone since the last listing.
	untoldMost = 3
)

// copies finds out what a rotation made of the files that were read: copytruncate, a move to another file system, compression.
//
// Two files with the same content are two files, as long as both are there. So a copy counts only when its original is gone or
// was rewritten, and until then a file that equals another one of a related name is held back for CopyWait.
type copies struct {
	c      *Catalogue
	asking bool          // a file is compared with others: no further ones are compared
	until  time.Duration // until when a file is held back that may be a copy
}

// verdict is what the comparison of a new file with related ones has found.
type verdict struct {
	hold    bool  // it may be a copy of a file that is still there, or that is still being made
	grows   bool  // it may be a copy of an awaiting file that is still being made
	untold  bool  // a file that it may be a copy of cannot be looked at
	unread  bool  // the same, and it is a file that cannot be read
	unbegun *file // the awaiting file that it leads on from, of which nothing was read
}

// meet finds out whether f, which no route knows, leads on from a file that was read. done reports that it does, or may and is
// held back; read that there is something to be read of it now.
func (k *copies) meet(f *file, head []byte) (done, read bool) {
	if k.asking {
		return false, false
	}
	k.asking, k.c.handles.keep = true, f
	defer func() { k.asking, k.c.handles.keep = false, nil }()
	v := verdict{unread: k.c.rotation.hasUnreadKin(f, head)}
	for _, e := range k.kin(f, head) {
		if done, read := k.compare(f, e, head, &v); done {
			return true, read
		}
	}
	if v.unread && k.holdUnread(f) || (v.hold || v.untold || v.grows && v.unbegun == nil) && k.holdBack(f, v.untold) {
		return true, false
	}
	if w := v.unbegun; w != nil && w.state == awaiting { // but what was read of the data, if any was, comes first
		k.adopt(f, w)
		return true, true
	}
	if g, ok := k.c.strategy.(*growing); ok && !g.canBegin(f) {
		return true, false
	}
	k.logNew(f)
	return false, false
}

// compare compares f, which begins with head, with the file of e.
func (k *copies) compare(f *file, e *Entry, head []byte, v *verdict) (done, read bool) {
	c := k.c
	g, w := e.file, awaited(e)
	equal := false
	if w == nil && g != nil { // looked at once more after it was compared: it may be emptied meanwhile
		standing := k.stands(g)
		if equal = standing && k.equals(f, g, head); standing && !equal {
			standing = k.stands(g)
		}
		if w = awaited(e); w == nil && !standing { // it cannot be told now
			v.untold = true
			v.unread = v.unread || g.trouble != nil
			return false, false
		}
	}
	switch {
	case w != nil && k.isUnfinished(f, w, head):
		v.hold = true
		return false, false
	case w != nil && w.blank():
		if v.unbegun == nil && k.mayBe(f, w, head) {
			v.unbegun = w
		}
		return false, false
	case w != nil && f.isBeingMade(w):
		c.pace.soon()
		return true, false
	case w != nil:
	case !equal:
		return false, false
	case g.isDeleted() && f.holds(g.size()) >= g.size() && k.mayInherit(f, g):
		w = k.giveUpHandle(g) // moved to another file system, or restored: only the old one's handle was left
	case f.isDeletedNow() && k.mayInherit(g, f) && (f.info.Birth <= g.info.Birth || !g.info.Birth.known()):
		c.log.Info("a deleted file is read in a copy of it", "file", f.label, "copy", g.label, "size", f.aside.twinTo)
		c.count("files_rotated", 1)
		k.startBehind(f, head, f.aside.twinTo)
		return true, true
	default:
		v.hold = true
		return false, false
	}
	if ok, err := k.inherit(f, w, head); err != nil {
		c.handles.unreadNow(f, err)
		return true, false
	} else if ok {
		return true, true
	}
	if k.mayBeRestored(f, w, head) {
		v.hold, f.rare().restored = true, true
	}
	v.grows = v.grows || k.mayGrowInto(f, w, head)
	return false, false
}

// awaited returns the file that waits for the data of e, nil if none does.
func awaited(e *Entry) *file {
	if f := e.file; f != nil && f.state == awaiting {
		return f
	}
	return nil
}

// holdBack reports whether f, which may be a copy, is looked at again later.
func (k *copies) holdBack(f *file, untold bool) bool {
	c, now := k.c, k.c.now()
	f.rare().asked = now
	f.held = max(f.held, f.since+c.o.Growing.CopyWait)
	k.until = max(k.until, f.held)
	if now < f.held {
		c.pace.dueAt(f.held)
		return true
	}
	if !untold {
		return false
	}
	a := f.rare()
	if a.untold == 0 {
		a.untold = c.table.scans + untoldMost
	}
	c.pace.soon()
	return c.table.scans < a.untold
}

// askAgain reports whether to compare a file that is held back with others once more: it was changed, or a file was met,
// renamed, deleted or emptied since, or it was not compared for as long as an idle reader waits at most, because not every
// change shows in a listing.
func (k *copies) askAgain(f *file, now time.Duration) bool {
	a := f.rare()
	if a.unread > now {
		return false
	}
	at := a.asked + k.c.o.PollMax
	if now < at && f.since <= a.asked && k.c.table.changed <= a.asked {
		k.c.pace.dueAt(at)
		return false
	}
	return true
}

// stands reports whether what was handed out of g stands in it at this moment. If other data does, its identity waits.
func (k *copies) stands(g *file) bool {
	if !k.c.handles.lookNow(g) {
		return false
	}
	cur := g.furthest()
	return cur == nil || k.c.verify(cur, false)
}

// logNew logs that a file that may have been restored, without its old time, is read as a new file: better twice than not at
// all.
func (k *copies) logNew(f *file) {
	if f.aside == nil || !f.aside.restored {
		return
	}
	f.aside.restored = false
	k.c.log.Warn("a file has the name and the content of one that is gone, and is newer: it is read from its beginning; what was read of "+
		"the other one comes twice if it was restored from a backup that did not keep its time", "file", f.label, "size", f.info.Size)
	k.c.count("files_doubtful", 1)
}

// kin returns the identities of the names from which f's may have been made, the longest first, but for those of which
// something else was read than f, which begins with head, begins with: those of many rotations may be waiting.
func (k *copies) kin(f *file, head []byte) []*Entry {
	var out []*Entry
	k.c.resting.riseKin(f.label)
	base := path.Base(f.label)
	for n := len(base); n > 0; n-- {
		found := 0
		for _, g := range k.c.rotation.stems[base[:n]] {
			if g != f && g.entry != nil && g.state != ended && k.mayBegin(g, head) {
				out = append(out, g.entry)
				if found++; found == maxKin {
					break
				}
			}
		}
	}
	return out
}

// mayBegin reports whether what was read of g may begin with head, or head with it, as far as that is known without a look
// at g.
func (k *copies) mayBegin(g *file, head []byte) bool {
	if p := g.proof(); p.Head > 0 {
		return len(head) < p.Head || p.FitsHead(head)
	}
	id := k.c.ids.idOf(g.entry)
	return len(head) < id.Len || id.MatchHead(head)
}

// equals reports whether f is a copy of the beginning of g, as far as head and end tell, and notes how far.
func (k *copies) equals(f, g *file, head []byte) bool {
	n := min(f.holds(fileid.MaxHead), g.holds(fileid.MaxHead), fileid.MaxHead)
	if n == 0 {
		return false
	}
	mine, other := make([]byte, fileid.MaxBefore), make([]byte, fileid.MaxHead)
	if g.readFull(other[:n], 0) != nil || !slices.Equal(head[:n], other[:n]) {
		return false
	}
	to := g.size()
	to = min(to, f.holds(to))
	n = min(to, fileid.MaxBefore)
	if f.readFull(mine[:n], to-n) != nil || g.readFull(other[:n], to-n) != nil || !slices.Equal(mine[:n], other[:n]) {
		return false
	}
	a := f.rare()
	a.twin, a.twinTo, a.twinOf = g.entry, to, f.info.Size
	return true
}

// inherit lets f lead on from an awaiting file whose data it holds. Not every file that begins with the same bytes does:
// where the old one's name was simply given to a new file of the same content, the new one is new.
func (k *copies) inherit(f, w *file, head []byte) (bool, error) {
	if k.c.ids.phaseOf(w.entry) == known && !k.mayInherit(f, w) {
		return false, nil
	}
	return k.leadOn(f, w, head)
}

// leadOn is inherit for a file that may be what became of w: as far as the proofs of what was read of w stand in it, it was
// read.
func (k *copies) leadOn(f, w *file, head []byte) (bool, error) {
	c := k.c
	if a := f.aside; a != nil && a.twin == w.entry && a.twinTo < w.read() {
		grown, err := k.grewAsCopy(f)
		if err != nil {
			return false, err
		}
		if !grown {
			k.startCopy(f, w, head, a.twinTo)
			return true, nil
		}
	}
	if w.proof().At == 0 && k.hasSameHead(f, w, head) {
		k.adopt(f, w)
		return true, nil
	}
	for i, p := range w.proofs() {
		ok, err := f.fits(p, head, c.head[fileid.MaxHead:])
		switch {
		case err != nil:
			return false, err
		case !ok:
		case i == 0 && f.holds(w.read()) >= w.read():
			k.adopt(f, w)
			return true, nil
		case k.mayBecomeWhole(f, w, p):
			c.pace.dueAt(w.held - c.o.Growing.CopyWait/2)
			return false, nil
		default:
			k.startCopy(f, w, head, p.At)
			return true, nil
		}
	}
	return false, nil
}

// mayBecomeWhole reports whether f, which is shorter than what one route has read of w, may still be being made: only another
// route, which has read less, finds what it has read in f. The first half of CopyWait is waited for the rest.
func (k *copies) mayBecomeWhole(f, w *file, found fileid.Proof) bool {
	if f.view != nil || f.info.Size >= w.read() || k.c.now() >= w.held-k.c.o.Growing.CopyWait/2 {
		return false
	}
	n := w.furthest().note
	return found != n.proof && !slices.Contains(n.earlier, found)
}

// proofs returns what the routes know of the bytes of a file, the furthest position first.
func (f *file) proofs() []fileid.Proof {
	var out []fileid.Proof
	for _, cur := range f.cursors {
		out = append(out, cur.note.proof)
		out = append(out, cur.note.earlier...)
	}
	out = slices.DeleteFunc(out, func(p fileid.Proof) bool { return p.At == 0 })
	slices.SortStableFunc(out, func(a, b fileid.Proof) int { return int(b.At - a.At) })
	return slices.CompactFunc(out, func(a, b fileid.Proof) bool { return a == b })
}

// mayInherit reports whether f may be what became of w, whose file is gone: it has another name, or was written before it
// was made, as a copy that kept its time. With ByContent its content alone counts.
func (k *copies) mayInherit(f, w *file) bool {
	return f.label != w.label || f.info.ModTime < f.info.Birth || k.c.o.Identity == ByContent
}

// mayBe reports whether f begins as the awaiting file w did, of which nothing was read, and has all that was seen of it.
func (k *copies) mayBe(f, w *file, head []byte) bool {
	if f.shows(w, head) {
		return true
	}
	id := k.c.ids.idOf(w.entry)
	if k.c.ids.phaseOf(w.entry) == known && !k.mayInherit(f, w) || f.view != nil || f.info.Size < w.info.Size || w.info.Size == 0 {
		return false
	}
	return int64(id.Len) >= min(w.info.Size, fileid.MaxHead) && id.MatchHead(head)
}

// shows reports whether f, which begins with head, holds the bytes that were seen in the awaiting file w, of which nothing was
// read, and is no older than they are.
func (f *file) shows(w *file, head []byte) bool {
	p := w.aside.glimpse
	if p.At == 0 || int64(f.info.ModTime) < p.ModTime {
		return false
	}
	var before [fileid.MaxBefore]byte
	ok, err := f.fits(p, head, before[:])
	return ok && err == nil
}

// hasSameHead is for an awaiting file of which only its id and, by a sink's ledger, its watermark are known, because the process
// was killed before it saved a note: f holds that much, and begins with the bytes that the id has hashed, if those are enough.
func (k *copies) hasSameHead(f, w *file, head []byte) bool {
	id, read := k.c.ids.idOf(w.entry), w.read()
	if read == 0 || f.holds(read) < read || int64(id.Len) < min(read, fileid.MaxBefore) {
		return false
	}
	seen := f.seen(head, false)
	seen.Dev, seen.Ino, seen.Birth, seen.ModTime = id.Dev, id.Ino, id.Birth, id.ModTime
	return id.Match(seen)
}

// mayBeRestored reports whether f, under the name of w and with its content, may still turn out to be a restored copy: cp -p
// and tar give a file its old time after its bytes.
func (k *copies) mayBeRestored(f, w *file, head []byte) bool {
	p := w.proof()
	if k.c.ids.phaseOf(w.entry) != known || k.mayInherit(f, w) || p.At == 0 {
		return false
	}
	ok, err := f.fits(p, head, k.c.head[fileid.MaxHead:])
	return ok && err == nil
}

// mayGrowInto reports whether f may be a copy of the awaiting file w that is still being made: it is shorter than what was
// read of w, and begins as that did. Where it has less than the id of w has hashed, that cannot be told: then a copy of a
// file that is gone is waited for, rather than read a second time; what was rewritten in place may have any number of new
// files beside it.
func (k *copies) mayGrowInto(f, w *file, head []byte) bool {
	if f.view != nil || f.isUnlisted() || f.info.Size >= w.read() || !k.mayInherit(f, w) || sameFile(f.info, w.info) {
		return false
	}
	id := k.c.ids.idOf(w.entry)
	return len(head) < id.Len && k.c.ids.phaseOf(w.entry) == known || id.MatchHead(head)
}

// grewAsCopy reports whether a copy that was compared while it was still being made holds more by now: then how far it equals
// the old file is for the proofs to tell.
func (k *copies) grewAsCopy(f *file) (bool, error) {
	if f.view != nil {
		return f.info.Size != f.aside.twinOf, nil
	}
	info, err := f.handle.Stat()
	if err != nil {
		return false, err
	}
	f.saw(statOf(info), k.c.now())
	return f.info.Size > f.aside.twinTo, nil
}

// isUnfinished reports whether f begins as the awaiting file w does, but is compressed and does not end well: it is still
// being written.
func (k *copies) isUnfinished(f, w *file, head []byte) bool {
	p := w.proof()
	if f.view == nil || len(head) < p.Head || !p.FitsHead(head) {
		return false
	}
	f.size()
	return f.view.Err() != nil
}

// giveUpHandle gives up the handle of a deleted file for one that holds the same data.
func (k *copies) giveUpHandle(g *file) *file {
	e := g.entry
	k.c.strategy.(*growing).await(g, "a deleted file is read on in a copy of it")
	return awaited(e)
}

// adopt makes f the file of what waits in w, from where that was read to.
func (k *copies) adopt(f, w *file) {
	k.take(f, w, func(*cursor) bool { return true })
	k.c.rotation.unwait(w)
	w.state = w.state.on(copied)
	k.gather(f)
	k.c.log.Info("a file leads on from one that was rotated", "file", f.label, "from", w.label, "read", f.read())
	k.c.count("files_rotated", 1)
}

// take gives f the identity of w, and those of its cursors of which move is true.
func (k *copies) take(f, w *file, move func(*cursor) bool) {
	c := k.c
	c.rotation.unindex(w)
	f.entry, f.excused, f.held = w.entry, false, 0
	f.rare().twin = nil
	if f.state == beside {
		f.rare().listed = w.partName()
	}
	var stay []*cursor
	for _, cur := range w.cursors {
		if !move(cur) {
			stay = append(stay, cur)
			continue
		}
		cur.f, cur.stands, cur.touch, cur.drained, cur.sealed = f, version{}, true, 0, false
		cur.own = nil
		cur.part = &stream.Partition{ID: cur.entry.text, Name: f.partName()}
		k.place(cur)
		f.cursors = append(f.cursors, cur)
	}
	w.cursors = stay
	c.ids.move(f.entry, f.seen(nil, false), f.name)
	f.entry.file = f
	c.rotation.index(f)
}

// gather gives f the cursors of those routes that have read the same data as another file's, which waits: to them it is no
// beginning.
func (k *copies) gather(f *file) {
	c := k.c
	isNew := func(cur *cursor) bool { return cur.blank() && !cur.skipping() }
	if f.handle == nil || !slices.ContainsFunc(f.cursors, isNew) {
		return
	}
	head := make([]byte, fileid.MaxHead)
	head, err := f.readHead(head)
	if err != nil {
		return // it is read from the beginning: better twice than not at all
	}
	for _, e := range k.kin(f, head) {
		w := awaited(e)
		if w == nil || c.ids.phaseOf(e) == known && !k.mayInherit(f, w) {
			continue
		}
		for _, cur := range slices.Clone(w.cursors) {
			i := slices.IndexFunc(f.cursors, func(o *cursor) bool { return o.r == cur.r && isNew(o) })
			if p := cur.note.proof; i < 0 || p.At == 0 || p.At != cur.pos.Next || f.holds(p.At) < p.At {
				continue
			}
			if ok, err := f.fits(cur.note.proof, head, c.head[fileid.MaxHead:]); !ok || err != nil {
				continue
			}
			c.ids.unref(f.cursors[i].entry, cur.r, false)
			cur.f, cur.stands, cur.touch, cur.drained = f, version{}, true, 0
			cur.part = &stream.Partition{ID: cur.entry.text, Name: f.partName()}
			k.place(cur)
			f.cursors[i] = cur
			w.cursors = slices.DeleteFunc(w.cursors, func(o *cursor) bool { return o == cur })
		}
	}
}

// place notes where the data of a cursor's partition lies now.
func (k *copies) place(cur *cursor) {
	f := cur.f
	if cur.entry != f.entry {
		k.c.ids.move(cur.entry, f.seen(nil, false), f.name)
		cur.entry.file = f
	}
	if id, err := fileid.Parse(cur.entry.text); err == nil {
		cur.r.notes.move(cur.note, f.seen(nil, false), !isOf(id, f.info)) // an inode may be used again at once
	}
}

// startCopy makes f the file of those routes that have read of w no more than stands in f, up to to. The others have read more:
// to them it is a file of its own of which everything before to was read.
func (k *copies) startCopy(f, w *file, head []byte, to int64) {
	c := k.c
	short := func(cur *cursor) bool { return cur.pos.Next <= to && len(cur.pos.Above) == 0 }
	moves := slices.ContainsFunc(w.cursors, short)
	if moves {
		k.take(f, w, short)
	}
	own := c.ids.give(f.seen(head, true), f.name)
	own.file = f
	if f.entry == nil {
		f.entry, f.excused, f.held = own, false, 0
		f.rare().twin = nil
		if f.state == beside {
			f.rare().listed = w.partName()
		}
		c.rotation.index(f)
	}
	for _, cur := range w.cursors {
		cur.copy = cur.r.begin(f, own)
		cur.copy.skipTo = to
	}
	c.rotation.unwait(w)
	w.state = w.state.on(copied)
	w.excused = true
	if moves { // its identity lives on
		for _, cur := range w.cursors {
			cur.r.ghosts = append(cur.r.ghosts, cur)
			c.ids.unref(cur.entry, cur.r, false)
		}
		w.entry, w.cursors = nil, nil
	} else {
		c.ids.end(w.entry)
		c.giveUp(w)
	}
	c.log.Info("a file is a copy of one that was rotated", "file", f.label, "of", w.label, "read", to)
	c.count("files_rotated", 1)
}

// startBehind makes f a file of its own of which everything before to is read elsewhere.
func (k *copies) startBehind(f *file, head []byte, to int64) {
	k.c.identify.attach(f, k.c.ids.give(f.seen(head, true), f.name))
	for _, cur := range f.cursors {
		cur.skipTo = to
	}
	f.rare().twin = nil
}
