package follow

import (
	"bytes"
	"cmp"
	"path"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// maxRelated is the maximum number of known files with the same stem (the name without its last
// extension) that a new file is compared with.
const maxRelated = 32

// copies detects copies that a rotation makes of known files: by copytruncate, by a move to another
// file system, or by compression.
//
// As long as two files with the same content exist, they are different files, and both are read. A
// copy therefore takes the place of its original only if the original was deleted or rewritten.
// Example: logrotate copies app.log to app.log.1 and then truncates app.log. Until the truncation,
// app.log.1 may be a file of its own. Therefore app.log.1 is held back (not read) for CopyWait.
type copies struct {
	c     *Catalogue
	until time.Duration // when no possible copy will be held back any more
}

// verdict is the result of comparing a new file with related ones.
type verdict struct {
	hold      bool  // it may be a copy of an existing file, or is still being written
	grows     bool  // it may be an incomplete copy of an awaiting file
	continued *file // an unread file, awaiting or deleted, that it continues
	unlisted  bool  // the new file is unlisted and not followed yet: only certain results count
}

// findPredecessor looks for a known file that f continues, for example as its copy. No route knows
// f yet. The result done is false if f is a new file. If done is true, read reports whether f
// continues a known file and can be read now. If read is false, f is looked at again later.
func (k *copies) findPredecessor(f *file, head []byte) (done, read bool) {
	k.c.handles.keep = f
	defer func() { k.c.handles.keep = nil }()
	v := verdict{}
	for _, e := range k.relatedEntries(f, head) {
		// v.hold means that the new file f may be a copy of a file that was compared before. In the
		// list, the files that some route has not read completely come first. When the others
		// follow, f is held back, and not compared with them.
		if v.hold && e.file != nil && !isNeeded(e.file) && k.holdBack(f) {
			return true, false
		}
		if done, read := k.compare(f, e, head, &v); done {
			return true, read
		}
	}
	if (v.hold || v.grows && v.continued == nil) && k.holdBack(f) {
		return true, false
	}
	// files with read data were compared first
	if w := v.continued; w != nil && (w.state == awaiting || w.isDeleted()) {
		k.begin(f, w)
		return true, true
	}
	if g, ok := k.c.strategy.(*growing); ok && !g.canBegin(f) {
		return true, false
	}
	if f.extras != nil && f.extras.restored { // better delivered twice than lost
		f.extras.restored = false
		k.c.log.Warn("a file has the name and the content of one that is gone, and is newer: "+
			"it is read from its beginning; data is repeated if it is a copy",
			"file", f.label, "size", f.info.Size)
		k.c.count("files_doubtful", 1)
	}
	return false, false
}

// compare compares f, which begins with head, with the file of e, and adds the result to v. If done
// is true, no other file needs to be compared, and done and read are the results of
// findPredecessor.
func (k *copies) compare(f *file, e *Entry, head []byte, v *verdict) (done, read bool) {
	c := k.c
	g, w := e.file, awaited(e)
	equal := false
	// If the new file f and the known file g differ, check once more that g holds its delivered
	// data: g may have been emptied during the comparison.
	if w == nil && g != nil {
		intact := k.isIntact(g)
		if equal = intact && k.equals(f, g, head); intact && !equal {
			intact = k.isIntact(g)
		}
		if w = awaited(e); w == nil && !intact {
			// unless g is unreadable, the next listing shows where it is
			return g.trouble == nil, false
		}
	}
	switch {
	case w != nil && k.isUnfinished(f, w, head):
		v.hold = true
		return false, false
	case w != nil && w.blank():
		if v.continued == nil && (k.holdsSeenBytes(f, w, head) || !v.unlisted && k.mayBe(f, w, head)) {
			v.continued = w
		}
		return false, false
	case w != nil && f.isBeingMade(w):
		c.pace.soon()
		return true, false
	case w != nil:
	case !equal:
		return false, false
	case g.isDeleted() && k.replaces(f, g, head) &&
		(!v.unlisted || f.view != nil && f.size() > 0 && f.view.Err() == nil):
		// compressed, moved to another file system, or restored
		if g.blank() {
			v.continued = cmp.Or(v.continued, g)
			return false, false
		}
		w = k.giveUpHandle(g)
	default:
		v.hold = true
		return false, false
	}
	// If mayInherit returns false, the new file f does not continue the awaiting file w, even if
	// both have equal bytes: f may be a new file with the name and the content of w. But f may also
	// be a copy of w that is being restored, and does not have the old modification time yet:
	// commands such as cp -p and tar set it last. So f is held back.
	if w.entry.phase != known || k.mayInherit(f, w) {
		ok, err := k.continueFrom(f, w, head)
		if err != nil && !v.unlisted {
			c.handles.readFailed(f, err)
		}
		if ok || err != nil {
			return true, ok
		}
	} else if p := w.fingerprint(); p.At > 0 && k.fits(f, p, head) {
		v.hold, f.ensureExtras().restored = true, true
	}
	v.grows = v.grows || k.mayGrowInto(f, w, head)
	return false, false
}

// awaited returns the file of e if it is awaiting a successor, else nil.
func awaited(e *Entry) *file {
	if f := e.file; f != nil && f.state == awaiting {
		return f
	}
	return nil
}

// holdBack holds back f, a possible copy, until it has not changed for CopyWait, and a route has
// opened. It reports whether f is still held back. If f was deleted meanwhile, and another file has
// all its data, f is never read: the next listing gives it up.
func (k *copies) holdBack(f *file) bool {
	c, now := k.c, k.c.now()
	f.ensureExtras().compared = now
	f.heldUntil = max(f.heldUntil, f.since+c.o.Growing.CopyWait)
	k.until = max(k.until, f.heldUntil)
	isHeld := now < f.heldUntil || !c.lister.opened || f.isDeleted() && f.isHeldElsewhere()
	if isHeld {
		c.pace.dueAt(f.heldUntil)
	}
	return isHeld
}

// mayCompareAgain reports whether to compare a held-back file with others once more. It returns
// true PollMax after the last comparison, or if since then the file has changed or another file has
// begun to await a successor.
func (k *copies) mayCompareAgain(f *file, now time.Duration) bool {
	a := f.ensureExtras()
	at := a.compared + k.c.o.PollMax
	if now < at && f.since <= a.compared && k.c.rotation.waited <= a.compared {
		k.c.pace.dueAt(at)
		return false
	}
	return true
}

// isIntact reports whether g still contains the data that was delivered from it. It returns false,
// too, if g cannot be read now. If g holds other data, the identity of g awaits from now on another
// file with the delivered data.
func (k *copies) isIntact(g *file) bool {
	if !k.c.handles.refresh(g) {
		return false
	}
	cur := g.furthest()
	return cur == nil || k.c.verify(cur, false)
}

// relatedEntries returns the identities of files with names from which a rotation may have made the
// name of f. Example: app.log for app.log.1. There may be many, so it omits those with read data
// that does not fit head, the beginning of f.
//
// Several files may hold the same data, but f can be the copy of only one. Files that some route
// has not read completely come first: without their copies, their unread data would be lost. Within
// each group, files with longer stems (names without the last extension) come first.
func (k *copies) relatedEntries(f *file, head []byte) []*Entry {
	var needed, others []*Entry
	k.c.dormant.reactivateRelated(f.label)
	base := path.Base(f.label)
	for n := len(base); n > 0; n-- {
		found := 0
		for _, g := range k.c.rotation.stems[base[:n]] {
			if g != f && g.entry != nil && g.entry.file != nil && g.state != ended &&
				k.mayBegin(g, head) {
				if isNeeded(g) {
					needed = append(needed, g.entry)
				} else {
					others = append(others, g.entry)
				}
				if found++; found == maxRelated {
					break
				}
			}
		}
	}
	return append(needed, others...)
}

// mayBegin reports whether the data that was read of g may begin like head, the first bytes of a
// new file. It compares only the remembered bytes and hashes of g, and does not read g.
func (k *copies) mayBegin(g *file, head []byte) bool {
	id, p := g.entry.id, g.fingerprint()
	n := min(len(head), len(g.entry.prefix))
	switch {
	case !bytes.Equal(head[:n], g.entry.prefix[:n]):
		return false
	case p.Head > 0:
		return len(head) < p.Head || p.FitsHead(head)
	}
	return len(head) < id.Len || id.MatchHead(head)
}

// continueFrom makes f the successor of w if f contains the data that was read of w, or the
// beginning of this data. It reports whether it has done so. w is an awaiting file: it has lost its
// name or its content. w may have fingerprints at several positions. The routes continue in f at
// the last of these positions with a fingerprint that matches f.
func (k *copies) continueFrom(f, w *file, head []byte) (bool, error) {
	c := k.c
	if a := f.extras; a != nil && a.equal == w.entry && a.equalTo < w.read() {
		grown, err := k.grewAsCopy(f)
		if err != nil {
			return false, err
		}
		if !grown {
			k.adoptPart(f, w, head, a.equalTo)
			return true, nil
		}
	}
	if w.fingerprint().At == 0 && k.hasSameHead(f, w, head) {
		k.adopt(f, w)
		return true, nil
	}
	for i, p := range w.fingerprints() {
		ok, err := f.fits(p, head, c.head[fileid.MaxHead:])
		switch {
		case err != nil:
			return false, err
		case !ok:
		case i == 0 && f.holds(w.read()) >= w.read():
			k.adopt(f, w)
			return true, nil
		case w.entry.phase != known && sameFile(f.info, w.info):
			// w was rewritten in place: f only begins with the same bytes
		case k.mayBecomeWhole(f, w):
			c.pace.dueAt(w.heldUntil - c.o.Growing.CopyWait/2)
			return false, nil
		default:
			k.adoptPart(f, w, head, p.At)
			return true, nil
		}
	}
	return false, nil
}
