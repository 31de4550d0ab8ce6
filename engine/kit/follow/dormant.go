package follow

import (
	"cmp"
	"fmt"
	"path"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// dormant follows the files that every route has delivered completely, according to its stored
// progress. These are files that stay in place after their ends (finished: keep), and growing files
// that are not held open. A dormant file is only listed until it is changed, renamed or deleted, or
// until a possible copy of it appears. Then it is recognised by its stored progress, as after a
// restart.
type dormant struct {
	c     *Catalogue
	table dormantTable
}

// see reports whether a listed file is dormant and unchanged. A changed dormant file is recognised
// by its stored progress, as after a restart.
func (z *dormant) see(s Listed, info stat) bool {
	c := z.c
	if !c.o.Keep && !c.grows() {
		return false
	}
	d := z.table.byKey[keyOf(info)]
	switch {
	case d == nil:
		return false
	case d.birth != info.Birth, d.size != info.Size, d.modTime != info.ModTime:
		z.reactivate(d)
		return false
	case c.grows() && d.label != s.Label:
		// Either the dormant file was renamed to the label of s, or s is a second name (hard link)
		// of it. The end of the listing shows which: if the old label was listed as well, s is a
		// hard link.
		return false
	case c.grows():
		d.dir, d.nameLen = s.Dir, int32(len(s.Name))
	}
	d.scan = c.table.scans
	return true
}

// begin reports whether the file of m, stored progress of a newly joined route r, needs no identity
// because it is dormant. The parameter id has the inode and the birth time of the file, and p is the
// stored fingerprint.
//
// Before the first listing, begin makes the file dormant if r has delivered all of it according to m.
// So most files need no identity at startup. A file gets its identity after all if the listing does
// not have it unchanged, or if another route has not delivered all of it.
func (z *dormant) begin(r *Reader, m stream.Mark, id fileid.ID, p fileid.Fingerprint) bool {
	c, grows := z.c, z.c.grows()
	info := stat{Size: cmp.Or(p.Packed, p.At), ModTime: stamp(p.ModTime), Birth: stamp(id.Birth),
		Dev: id.Dev, Ino: id.Ino}
	d := z.table.byKey[id.Key()]
	stored, ok := r.resume(m.Part.ID) // it also has the ranges that wait for a retry
	switch {
	case !ok, stored.Finished == grows || !grows && !c.o.Keep:
		return false
	case p.Moved != (fileid.Key{}): // only an identity reserves the id at the former place
		return false
	case d != nil && d.text == m.Part.ID:
		return true // joined compares it with m
	case d != nil && d.birth >= info.Birth: // the inode was reused, or the file has two ids
		if d.birth == info.Birth || id.Birth == 0 {
			z.reactivate(d)
		}
		return false
	case c.lister.first > 0 || len(c.readers) > 1 || !id.Certain():
		return false
	case c.ids.get(m.Part.ID) != nil || len(c.ids.at(info)) > 0 || !isWhole(stored, p, info):
		return false
	case d != nil: // the inode was reused
		z.reactivate(d)
	}
	z.add(Listed{Label: m.Part.Name}, m.Part.ID, info, 0)
	return true
}

// add adds the dormant file s with an id (text). scan is the last listing in which it was seen.
func (z *dormant) add(s Listed, text string, info stat, scan uint32) {
	d := &dormantFile{text: text, key: keyOf(info), size: info.Size, modTime: info.ModTime,
		birth: info.Birth, scan: scan}
	if z.c.grows() {
		d.dir, d.label, d.nameLen = s.Dir, s.Label, int32(len(s.Name))
	}
	z.table.put(d)
}

// reactivate recreates the identity of a dormant file from the stored progress. If files may grow,
// the current or next listing then recognises the file, or makes it wait for a successor, as at
// startup.
func (z *dormant) reactivate(d *dormantFile) {
	c, text := z.c, d.text
	z.table.remove(d)
	var e *Entry
	for _, r := range c.readers {
		m, ok := r.resume(text)
		if !ok {
			continue
		}
		m.Part.ID = text
		if given, now, _, ok := c.placeOf(m); ok {
			e = c.ids.store(given, now, text, m.Part.Name)
			r.forgets.stored[text] = true
		}
	}
	if e == nil {
		c.ids.reserve(d)
	}
	if c.grows() {
		c.lister.searchStored = true
	}
}

// missed reactivates the dormant files that the last listing does not have.
func (z *dormant) missed() {
	isMissing := func(d *dormantFile) bool { return d.scan != z.c.table.scans }
	for _, d := range z.table.matching(isMissing) {
		z.reactivate(d)
	}
}

// followAgain turns a dormant file back into a followed file.
func (z *dormant) followAgain(d *dormantFile) {
	c, label, key := z.c, d.label, d.key
	if c.table.byLabel[label] != nil || c.table.byKey[key] != nil {
		return
	}
	s := Listed{Dir: d.dir, Name: label[len(label)-int(d.nameLen):], Label: label}
	info := stat{Size: d.size, ModTime: d.modTime, Birth: d.birth, Dev: key.Dev, Ino: key.Ino, Links: 1}
	f := newFile(s, info, c.now(), d.scan)
	z.reactivate(d)
	c.table.byLabel[label], c.table.byKey[key] = f, f
	c.identify.recogniseAll([]*file{f})
}

// reactivateRelated follows dormant files again, which are otherwise only listed until they change:
// those from which a rotation may have made the file with the given label. Example: app.log for the
// label app.log.1. The new file can only be compared with followed files.
func (z *dormant) reactivateRelated(label string) {
	base := path.Base(label)
	var related []*dormantFile
	for n := len(base); n > 0; n-- {
		found := 0
		of := z.table.hash(base[:n])
		for d := z.table.byStem[of]; d != nil && found < maxRelated; d = d.next {
			if stem(d.label) == base[:n] {
				related = append(related, d)
				found++
			}
		}
	}
	for _, d := range related {
		z.followAgain(d)
	}
}

// joined ends the dormancy of those files that a newly joined route has not delivered completely, or
// has read in another inode.
func (z *dormant) joined(r *Reader) {
	c := z.c
	isUnread := func(d *dormantFile) bool {
		return !r.isWhole(d.text, stat{Size: d.size, ModTime: d.modTime}) || c.ids.get(d.text) != nil
	}
	for _, d := range z.table.matching(isUnread) {
		if c.grows() && c.lister.first > 0 {
			z.followAgain(d)
		} else {
			z.reactivate(d) // the next listing finds it
		}
	}
}

// forget removes the dormant file with this id and inode from the table of dormant files.
func (z *dormant) forget(id string, key fileid.Key) {
	if d := z.table.byKey[key]; d != nil && d.text == id {
		z.c.ids.reserve(d)
		z.table.remove(d)
	}
}

// retire makes files dormant (only listed until they change) once all routes have delivered them
// completely and have stored this in their progress. Resume must return this progress, because a
// dormant file that changes is recognised by it.
func (z *dormant) retire() {
	if z.c.grows() {
		z.retireIdle()
		return
	}
	c := z.c
	for _, r := range c.readers {
		c.ids.mu.Lock()
		list := r.newlyFinished
		r.newlyFinished = nil
		c.ids.mu.Unlock()
		for _, id := range list {
			e := c.ids.get(id)
			if e == nil || e.file == nil {
				continue
			}
			f := e.file
			isStored := func(cur *cursor) bool {
				m, _ := cur.r.resume(id)
				return m.Finished && m.Watermark.Num == cur.pos.Next && cur.sealed &&
					!cur.changed() && cur.entry == e
			}
			if f.entry == e && c.table.has(f) && f.all(isStored) && e.phase == known {
				z.retireFile(f)
			}
		}
	}
}

func (z *dormant) retireFile(f *file) {
	c, text := z.c, f.entry.text
	c.handles.unfollow(f, ends)
	for _, cur := range f.cursors {
		cur.r.notes.end(text)
		delete(cur.r.forgets.stored, text)
	}
	z.add(Listed{Dir: f.dir, Name: f.name, Label: f.label}, text, f.info, f.scan)
	c.ids.noteDormant(f.entry)
	c.release(f)
}

// retireIdle looks, after progress was saved, at the growing files without an open handle
// (handles.closedForRoom). It makes those dormant that all routes have delivered and saved
// completely. It does nothing while a route is not open, while the data of a lost file is searched
// for, or while a possible copy is not read yet.
func (z *dormant) retireIdle() {
	c := z.c
	saved := false
	for _, r := range c.readers {
		saved = r.fresh.Swap(false) || saved
		if r.activity == absent {
			return
		}
	}
	if t := &c.rotation; !saved || len(t.awaiting) > 0 || c.now() < c.copies.until {
		return
	}
	kept := c.handles.closedForRoom[:0]
	for _, f := range c.handles.closedForRoom {
		if z.isIdle(f) && !z.isSaved(f) {
			kept = append(kept, f)
			continue
		}
		if f.closedForRoom = false; z.isIdle(f) { // else it is added again when it is closed again
			z.retireFile(f)
		}
	}
	clear(c.handles.closedForRoom[len(kept):])
	c.handles.closedForRoom = kept
}

// isIdle reports whether a growing file is listed, closed and completely read.
func (z *dormant) isIdle(f *file) bool {
	if f.state != listed || f.entry == nil || f.handle != nil || f.view != nil || f.trouble != nil ||
		f.dir == nil {
		return false
	}
	return z.c.table.has(f) && z.c.table.byLabel[f.label] == f && f.entry.file == f &&
		f.all(func(cur *cursor) bool {
			return !cur.sealed && !cur.touch && !cur.skipping() && !cur.partial() &&
				cur.isDrained() && cur.entry == f.entry
		})
}

// isSaved reports whether every route has stored that all of an idle file was delivered. The stat
// of the file must also be sufficient to identify it.
func (z *dormant) isSaved(f *file) bool {
	e := f.entry
	for _, r := range z.c.readers {
		if m, ok := r.resume(e.text); !ok || m.Finished || m.Part.Name != f.label ||
			!r.isWhole(e.text, f.info) {
			return false
		}
	}
	id := e.id
	return id.Certain() && f.info.Birth.known() && isOf(id, f.info) && e.phase == known
}

// isHardLink reports whether label is a second name of a dormant file, which was also listed under
// its own label. If its own label was not listed, the file was renamed and is recognised under the
// new label.
func (z *dormant) isHardLink(label string, key fileid.Key) bool {
	d := z.table.byKey[key]
	if d == nil {
		return false
	}
	if d.scan == z.c.table.scans {
		z.c.lister.refuse(label, fmt.Sprintf("it is a hard link to %q, which is read", d.label))
		return true
	}
	z.reactivate(d)
	return false
}
