package follow

import (
	"fmt"
	"path"

	"github.com/penstock-io/penstock/fileid"
)

// resting are files that every route has delivered completely, with stored progress. These are
// finished files, with finished: keep, and growing files that are not held open. A resting file is
// only listed until it is changed, renamed or deleted, or until a possible copy of it appears. Then
// it is recognised by its progress, as after a restart.
type resting struct {
	c     *Catalogue
	rests rests
	woken []fileid.Key // resting files that were changed since the last listing
}

// passed reports whether a listed file rests and was not changed since. A changed one is recognised
// as after a restart.
func (z *resting) passed(s Sight, info stat) bool {
	c := z.c
	if !c.o.Keep && !c.strategy.grows() {
		return false
	}
	d := z.rests.get(keyOf(info))
	if d == nil {
		return c.table.scans == c.lister.first && z.restsAlready(s, info)
	}
	switch {
	case d.birth != info.Birth && c.strategy.grows():
		z.awaitSuccessor(d)
		return false
	case d.birth != info.Birth, d.size != info.Size, d.modTime != info.ModTime:
		z.rouse(d)
		return false
	case c.strategy.grows() && d.label != s.Label:
		// it was renamed, or this is a hard link to it: that is known at the end of the listing
		return false
	}
	d.scan = c.table.scans
	return true
}

// restsAlready makes a completely delivered file of an earlier run a resting file at once, and
// reports whether it did.
func (z *resting) restsAlready(s Sight, info stat) bool {
	c := z.c
	e := c.identify.recallable(info)
	if e == nil || e.file != nil {
		return false
	}
	for _, m := range c.identify.marks(e) {
		if grows := c.strategy.grows(); grows && (m.mark.Finished || m.mark.Part.Name != s.Label) ||
			!grows && !m.mark.Finished {
			return false
		}
	}
	text := e.text
	c.ids.rest(e)
	c.ids.drop(e)
	for _, r := range c.readers {
		delete(r.forgets.stored, text)
	}
	z.lay(s.Dir, s.Name, s.Label, text, info)
	return true
}

func (z *resting) lay(dir Dir, name, label, text string, info stat) {
	d := rest{text: text, key: keyOf(info), size: info.Size, modTime: info.ModTime,
		birth: info.Birth, scan: z.c.table.scans}
	if z.c.strategy.grows() {
		d.dir, d.label, d.name = dir, label, len(name)
	}
	z.rests.put(d)
}

// rouse recreates the identity of a resting file. It returns nil if no route has stored progress of
// it.
func (z *resting) rouse(d *rest) *Entry {
	c, text, key, was := z.c, d.text, d.key, *d
	z.rests.remove(key)
	var e *Entry
	for _, r := range c.readers {
		m, ok := r.resume(text)
		if !ok {
			continue
		}
		m.Part.ID = text
		if given, now, ok := c.placeOf(m); ok {
			e = c.ids.store(given, now, text, m.Part.Name)
			r.forgets.stored[text] = true
		}
	}
	if e == nil {
		c.ids.gave(&was)
	}
	z.woken = append(z.woken, key)
	return e
}

// awaitSuccessor waits for the successor of a resting file that was deleted.
func (z *resting) awaitSuccessor(d *rest) {
	if e := z.rouse(d); e != nil {
		z.c.rotation.awaitStored(e, "its name is gone and it was not held open")
	}
}

// missed calls awaitSuccessor for resting files that are not listed. It recognises changed resting
// files before any other file, because a new file may be a copy of one of them.
func (z *resting) missed() {
	c := z.c
	z.rests.each(func(d *rest) bool {
		if d.scan != c.table.scans {
			z.awaitSuccessor(d)
		}
		return true
	})
	var again []*file
	for _, key := range z.woken {
		if f := c.table.byKey[key]; f != nil {
			again = append(again, f)
		}
	}
	z.woken = nil
	c.identify.recogniseAll(again)
}

// rise turns a resting file back into a followed file.
func (z *resting) rise(d *rest) {
	c, label, key := z.c, d.label, d.key
	if c.table.byLabel[label] != nil || c.table.byKey[key] != nil {
		return
	}
	now := c.now()
	f := &file{
		dir: d.dir, name: label[len(label)-d.name:], label: label, since: now, unread: max(now, 1),
		scan: d.scan, met: d.scan,
		info:     stat{Size: d.size, ModTime: d.modTime, Birth: d.birth, Dev: key.Dev, Ino: key.Ino, Links: 1},
		metEmpty: true,
	}
	z.rouse(d)
	c.table.byLabel[label], c.table.byKey[key] = f, f
	c.identify.recogniseAll([]*file{f})
}

// riseKin calls rise for resting files with names that the name of a new file may be derived from.
func (z *resting) riseKin(label string) {
	base := path.Base(label)
	var kin []rest
	for n := len(base); n > 0 && z.rests.len() > 0; n-- {
		kin = z.rests.ofStem(kin, base[:n], maxKin)
	}
	for i := range kin {
		z.rise(&kin[i])
	}
}

// joined wakes the resting files that a newly joined route has not delivered completely.
func (z *resting) joined(r *Reader) {
	z.rests.each(func(d *rest) bool {
		info := stat{Size: d.size, ModTime: d.modTime}
		if r.isWhole(d.text, info) {
			return true
		}
		if z.c.strategy.grows() {
			z.rise(d)
		} else {
			z.rouse(d) // the next listing meets it
		}
		return true
	})
	z.woken = nil
}

// forget drops the resting file with an id.
func (z *resting) forget(id string) {
	z.rests.each(func(d *rest) bool {
		if d.text == id {
			z.c.ids.gave(d)
			z.rests.remove(d.key)
			return false
		}
		return true
	})
}

// retire makes resting files of the completely delivered ones with progress stored by all routes.
func (z *resting) retire() {
	if z.c.strategy.grows() {
		z.retireIdle()
		return
	}
	c := z.c
	for _, r := range c.readers {
		for _, id := range r.takeTold() {
			e := c.ids.get(id)
			if e == nil || e.file == nil {
				continue
			}
			f := e.file
			if cur := f.by(r); cur != nil && cur.entry == e {
				cur.told = true
			}
			told := func(cur *cursor) bool { return cur.told && cur.sealed && !cur.changed() && cur.entry == e }
			if f.entry == e && c.table.has(f) && f.all(told) && c.ids.phaseOf(e) == known {
				z.layFile(f)
			}
		}
	}
}

// takeTold returns the partitions that are stored as finished since the last call.
func (r *Reader) takeTold() []string {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	list := r.told
	r.told = nil
	return list
}

// takeFresh reports whether the route has stored progress since the last call.
func (r *Reader) takeFresh() bool {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	fresh := r.fresh
	r.fresh = false
	return fresh
}

func (z *resting) layFile(f *file) {
	c, text := z.c, f.entry.text
	c.handles.close(f)
	f.dropView()
	c.table.remove(f)
	for _, cur := range f.cursors {
		cur.r.notes.end(text)
		delete(cur.r.forgets.stored, text)
	}
	z.lay(f.dir, f.name, f.label, text, f.info)
	z.rests.get(keyOf(f.info)).scan = f.scan
	c.ids.rest(f.entry)
	c.release(f)
}

// retireIdle looks, after each save, at the growing files that were closed to make room for others.
func (z *resting) retireIdle() {
	c := z.c
	saved := false
	for _, r := range c.readers {
		saved = r.takeFresh() || saved
		if r.attendance == absent {
			return
		}
	}
	if t := &c.rotation; !saved || len(t.waiting)+len(t.strays) > 0 || c.now() < c.copies.until {
		return
	}
	kept := c.handles.shut[:0]
	for _, f := range c.handles.shut {
		switch {
		case !z.isIdle(f): // it is added again when it is closed again
		case z.isSaved(f):
			z.layFile(f)
		default:
			kept = append(kept, f)
		}
	}
	clear(c.handles.shut[len(kept):])
	c.handles.shut = kept
}

// isIdle reports whether a growing file is listed, closed and completely read.
func (z *resting) isIdle(f *file) bool {
	if f.state != listed || f.entry == nil || f.handle != nil || f.view != nil || f.queues > 0 ||
		f.trouble != nil || f.dir == nil {
		return false
	}
	return z.c.table.has(f) && z.c.table.byLabel[f.label] == f && f.entry.file == f && f.all(func(cur *cursor) bool {
		return !cur.sealed && !cur.touch && !cur.skipping() && !cur.partial() && !cur.changed() &&
			cur.drained == f.info.Size &&
			cur.entry == f.entry
	})
}

// isSaved reports whether every route has stored that all of an idle file was delivered, so that
// its stat alone identifies it.
func (z *resting) isSaved(f *file) bool {
	e := f.entry
	for _, r := range z.c.readers {
		if m, ok := r.resume(e.text); !ok || m.Finished || m.Part.Name != f.label || !r.isWhole(e.text, f.info) {
			return false
		}
	}
	id := z.c.ids.idOf(e)
	return id.Certain() && f.info.Birth.known() && isOf(id, f.info) && z.c.ids.phaseOf(e) == known
}

// isHardLink reports whether label is a second name of a resting file that was listed under its own
// label, too. If it was not, the file was renamed and is recognised under the new label.
func (z *resting) isHardLink(label string, key fileid.Key) bool {
	d := z.rests.get(key)
	if d == nil {
		return false
	}
	if d.scan == z.c.table.scans {
		z.c.lister.refuse(label, fmt.Sprintf("it is a hard link to %q, which is read", d.label))
		return true
	}
	z.rouse(d)
	return false
}
