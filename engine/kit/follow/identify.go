package follow

import (
	"cmp"
	"io"
	"slices"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// identifier matches files to identities, by the stored marks of earlier runs and by other known
// files.
type identifier struct {
	c         *Catalogue
	knownOnly bool // known files are being recognised, and no new ones are accepted
}

// storedMark is the stored mark of one route for an identity.
type storedMark struct {
	r    *Reader
	mark stream.Mark
}

// marks returns the marks (the stored progress) of all routes for the file of an identity.
func (n *identifier) marks(e *Entry) []storedMark {
	var out []storedMark
	for _, r := range n.c.readers {
		if m, ok := r.resume(e.text); ok {
			out = append(out, storedMark{r, m})
		}
	}
	return out
}

// file identifies f and finds the routes' positions in it. A non-nil l may keep the bytes that were
// read for this, so that they need not be read again. The method file returns false if f cannot be
// read now.
func (n *identifier) file(f *file, l *filler) bool {
	c := n.c
	head, err := c.unpacker.firstHead(f, l)
	if err != nil {
		c.handles.readFailed(f, err)
		return false
	}
	if f.view != nil && (!c.unpacker.isWhole(f) || c.unpacker.hasNothing(f, head)) {
		return false
	}
	if c.grows() {
		head = slices.Clone(head) // comparing files uses the buffer again
		defer func() {
			if e := f.entry; e != nil && e.prefix == nil {
				e.prefix = slices.Clone(head[:min(len(head), maxPrefix)])
			}
		}()
		n.displaced(f, f.seen(head, true))
	}
	for {
		all := c.ids.find(f.seen(head, true))
		if len(all) == 0 {
			if c.grows() {
				if n.knownOnly || len(head) == 0 {
					return false // new files are identified after the known ones
				}
				if done, read := c.copies.findPredecessor(f, head); done {
					return read
				}
			}
			n.attach(f, c.ids.give(f.seen(head, true), f.name))
			return f.entry != nil
		}
		ok, err := n.recognise(f, all, head)
		if ok && err == nil {
			err = n.addFingerprints(f, head)
		}
		if err != nil {
			c.handles.readFailed(f, err)
			return false
		}
		if ok {
			return f.entry != nil
		}
	}
}

// recognise makes f the file of the identity all[0] if f contains the data that the routes have
// read. The parameter all lists the identities that match f by stat and head. There may be several,
// because states of old versions may have several ids for one file. A route with progress under
// another of these ids keeps that id. If all[0] turns out not to belong to f, recognise returns
// false, and the caller tries again.
func (n *identifier) recognise(f *file, all []*Entry, head []byte) (bool, error) {
	c, e := n.c, all[0]
	switch w := e.file; {
	case w == nil:
	case w.state == awaiting:
		return n.recogniseAwaited(f, w, head)
	case w.state == finished:
		c.watched.drop(w) // its source's name for it was changed back
		return false, nil
	case w != f:
		c.replaced(w, "a file was copied away and rewritten in place; the copy is read on")
		return false, nil
	}
	why, err := n.differs(f, e, head)
	if err != nil {
		return false, err
	}
	if why != "" {
		n.mismatch(f, e, why)
		return false, nil
	}
	aliases := all[1:]
	for _, a := range aliases {
		if why, err := n.differs(f, a, head); err != nil || why != "" || a.file != nil {
			aliases = nil
			break
		}
	}
	n.attach(f, e, aliases...)
	return true, nil
}

// mismatch is called if f has the inode of e, but not its data. The routes may have stored several
// inodes for e. If another one of them may have the data, mismatch removes only the inode of f from
// e. Example: route a has stored the inode of a copy that a rotation made. Route b was idle since
// the rotation, and its mark still has the inode of the original.
func (n *identifier) mismatch(f *file, e *Entry, why string) {
	if !n.c.ids.leave(e, f.info, func(id fileid.ID) bool { return n.isStillListed(e, id) }) {
		n.c.strategy.mismatch(f, e, why)
	}
}

// isStillListed reports whether the inode of an id may still have the data of e: the inode is
// listed and not recognised yet, or is a dormant file with the id of e.
func (n *identifier) isStillListed(e *Entry, id fileid.ID) bool {
	if f := n.c.table.byKey[id.Key()]; f != nil && f.entry == nil && isOf(id, f.info) {
		return true
	}
	d := n.c.dormant.table.byKey[id.Key()]
	return d != nil && isOf(id, stat{Dev: id.Dev, Ino: id.Ino, Birth: d.birth}) && d.text == e.text
}

// recogniseAwaited makes f the successor of the awaiting file w if f contains the data that was
// read of w. w has lost its name or its content, and f has the inode of w.
func (n *identifier) recogniseAwaited(f, w *file, head []byte) (bool, error) {
	c := n.c
	if f.view != nil || w.blank() { // how much of it there is may not be known yet
		c.copies.adopt(f, w)
		return true, nil
	}
	if f.isBeingMade(w) {
		return false, io.ErrUnexpectedEOF // it is looked at again
	}
	ok, err := c.copies.continueFrom(f, w, head)
	if err == nil && !ok { // it was rewritten meanwhile
		c.ids.displace(w.entry)
	}
	return ok, err
}

// differs returns the reason why f does not contain the data that the routes have read, according
// to their stored progress for e. It returns "" if f contains this data.
func (n *identifier) differs(f *file, e *Entry, head []byte) (string, error) {
	for _, m := range n.marks(e) {
		if why, err := n.lacks(f, m.mark, head); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// lacks returns the reason why f does not contain the data that was read according to m, or "" if
// it does.
func (n *identifier) lacks(f *file, m stream.Mark, head []byte) (string, error) {
	fingerprint := fingerprintOf(m)
	k, _, end := fingerprint.Wants()
	least := max(int64(k), end)
	if !n.c.grows() || fingerprint.At == 0 || !isCopyOf(m.Part.ID, f) {
		least = max(least, highest(m)) // only a copy may lack data that was read
	}
	if least > f.holds(least) {
		return "a file is shorter than what was read of it in an earlier run; ", nil
	}
	ok, err := f.fits(fingerprint, head, n.c.head[fileid.MaxHead:])
	if ok || err != nil {
		return "", err
	}
	return "a file was rewritten in place since an earlier run; ", nil
}

// attach makes f the file of e and gives every route a cursor in it. The aliases are other
// identities of the same file, from states of old versions. If a route has stored progress for one
// of them, and none for e, its cursor keeps the alias as its id.
func (n *identifier) attach(f *file, e *Entry, aliases ...*Entry) {
	c := n.c
	f.entry, e.file, f.dataElsewhere, f.heldUntil = e, f, false, 0
	c.ids.noteName(e, f.name)
	c.ids.resolvePlace(e, f.info)
	for _, r := range c.readers {
		own := e
		if _, ok := r.resume(e.text); !ok {
			for _, a := range aliases {
				if _, ok := r.resume(a.text); ok {
					own, a.file = a, f
				}
			}
		}
		r.begin(f, own)
	}
	c.rotation.index(f)
}

// addFingerprints creates missing fingerprints for a growing file. A position may come from an
// operator, or from a sink's ledger that is ahead of the checkpoint. The checkpoint then has no
// fingerprint for it. Without a fingerprint, a later copy of the file could not be recognised.
func (n *identifier) addFingerprints(f *file, head []byte) error {
	if !n.c.grows() || f.entry == nil || f.view != nil || f.handle == nil {
		return nil
	}
	for _, cur := range f.cursors {
		at := cur.pos.Next
		if cur.note.fingerprint.At == at || at > f.info.Size {
			continue
		}
		if err := cur.setFingerprint(at, head); err != nil {
			return err
		}
	}
	return nil
}

// displaced handles the identities that have the inode of f, but do not match the beginning of f.
// From now on, the data that was read under these identities is searched for in other files.
func (n *identifier) displaced(f *file, seen fileid.File) {
	all := n.c.ids.find(seen)
	for _, e := range n.c.ids.at(f.info) {
		if slices.Contains(all, e) {
			continue
		}
		if e.file == nil {
			n.mismatch(f, e, "a file was rewritten in place since an earlier run; ")
		} else if e.file.state == awaiting {
			n.c.ids.displace(e)
		}
	}
}

// recall recognises a file of earlier runs by its stat alone, if the stat and the stored progress
// prove that every route has read all of the file. Such a file need not be opened at startup.
func (n *identifier) recall(f *file) bool {
	c, grows := n.c, n.c.grows()
	isUnfinished := func(m storedMark) bool { return !m.mark.Finished }
	var e *Entry
	for _, o := range c.ids.at(f.info) {
		switch {
		case e == nil && f.info.Birth.known() && o.id.Certain() && n.isWhole(o.text, f.info):
			e = o
		case grows && slices.ContainsFunc(n.marks(o), isUnfinished):
			return false // the data of o may be awaited; only a look at the file shows that
		}
	}
	if e == nil || e.file != nil || !grows && slices.ContainsFunc(n.marks(e), isUnfinished) {
		return false
	}
	n.attach(f, e)
	for _, cur := range f.cursors {
		cur.drained, cur.unread = f.info.Size, 0
		if cur.note.fingerprint.Packed > 0 {
			f.ensureExtras().packed = true
		}
	}
	c.handles.noteClosed(f)
	return true
}

// isWhole reports whether every route has stored that all of a file with this stat was delivered.
func (n *identifier) isWhole(text string, info stat) bool {
	for _, r := range n.c.readers {
		if !r.isWhole(text, info) {
			return false
		}
	}
	return len(n.c.readers) > 0
}

func (r *Reader) isWhole(text string, info stat) bool {
	m, ok := r.resume(text)
	return ok && isWhole(m, fingerprintOf(m), info)
}

// isWhole reports whether all of a file with this stat was delivered according to m, which has the
// given fingerprint.
func isWhole(m stream.Mark, p fileid.Fingerprint, info stat) bool {
	return len(m.Above) == 0 && m.Watermark.Num == p.At && cmp.Or(p.Packed, p.At) == info.Size &&
		p.ModTime != 0 && p.ModTime == int64(info.ModTime)
}

// recogniseKnown recognises the files of earlier runs. It does so before new files are identified,
// because a new file may be a copy of one of them.
func (n *identifier) recogniseKnown() {
	var files []*file
	for _, f := range n.c.table.byKey {
		if n.isKnown(f) {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, byLabel)
	n.recogniseAll(files)
}

// recogniseTries bounds the looks at a file of an earlier run that changes during each look.
const recogniseTries = 3

// recogniseAll matches files to identities of earlier runs. A file matches none if its inode was
// reused or if it was rewritten. A file that matches none is identified only after all others,
// because it may be a copy of one of them.
//
// If a file was deleted since it was listed, it waits for a file with the same data from now on.
// recogniseAll does not leave this to the next listing, because the copy may be listed already. If
// a file cannot be matched now, it is looked at again after the next listing. A copy of such a file
// is read as a new file meanwhile.
func (n *identifier) recogniseAll(files []*file) {
	c := n.c
	n.knownOnly = true
	defer func() { n.knownOnly = false }()
	for _, f := range files {
		for tries := 0; tries < recogniseTries && f.entry == nil && !n.recall(f); tries++ {
			if !c.handles.refresh(f) {
				if f.handle == nil && f.trouble == nil {
					c.table.unlabel(f)
					c.strategy.nameGone(f) // the next listing will not have it
				}
				break
			}
			if n.file(f, nil) || f.view != nil || f.trouble != nil || !n.isKnown(f) {
				break
			}
		}
	}
}

// isKnown reports whether f has no id yet and its stat matches a file of an earlier run.
func (n *identifier) isKnown(f *file) bool { return f.entry == nil && len(n.knownAs(f)) > 0 }

// knownAs returns the identities of earlier runs that match f's stat and have no file yet.
func (n *identifier) knownAs(f *file) []*Entry {
	return slices.DeleteFunc(n.c.ids.at(f.info), func(e *Entry) bool { return e.file != nil })
}

// lostKnown handles a file f that lost its name before it was looked at. f may be one of several
// files of earlier runs. From now on, each of these waits for a file with its data.
func (n *identifier) lostKnown(f *file) {
	for _, e := range n.knownAs(f) {
		w := n.c.rotation.awaitStored(e, "its name is gone and it was not held open")
		if w == nil {
			continue
		}
		// The awaiting file w gets the size of f, unless w was compressed: positions in w then
		// count decompressed bytes, and the size of f compressed ones.
		if e.phase == known && w.fingerprint().Packed == 0 {
			w.info.Size, w.dataElsewhere = f.info.Size, false
		}
		f.dataElsewhere = true // its missing data belongs to the awaiting file
	}
}
