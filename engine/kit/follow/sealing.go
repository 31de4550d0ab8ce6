package follow

import "github.com/penstock-io/penstock/engine/kit/lines"

// grew notes that more came after a file had been sealed: it goes on as the same partition.
func (r *Reader) grew(f *file) {
	f.sealed = false
	if r.grow == nil {
		r.s.log.Warn("a file has grown after it counted as finished; the rest is delivered; a longer settle waits",
			"file", f.label, "finished_at", f.cursor.Next, "size", f.info.Size)
	}
	r.count("files_grown", 1)
	r.s.noteGrown(r, f)
}

// replaced makes f a new file under the same name. What is left of the old one is its seal, unless
// a copy leads on from it.
func (r *Reader) replaced(f *file, what string) {
	if f.finished { // it was delivered; what others do with it is their business
		r.unwatch(f)
		return
	}
	if r.grow != nil && r.s.movedOn(f.entry, f.info) && f.deletedNow() {
		r.bereave(f) // as another route has seen
		return
	}
	old := *f
	f.dropView()
	now := r.s.now()
	r.rotated.drop(f)
	r.s.kill(old.entry, old.info)
	*f = file{
		dir: f.dir, name: f.name, label: f.label, info: f.info, scan: f.scan, handle: f.handle, used: f.used, orphan: f.orphan,
		beside: f.beside, since: now, unread: max(now, 1),
	}
	if old.aside != nil && old.aside.listed != "" {
		f.rare().listed = old.aside.listed
	}
	r.pace.soon()
	if r.grow != nil {
		old.handle = nil
		r.widow(&old, what)
		return
	}
	if old.cursor.Next > 0 {
		r.s.log.Warn(what, "file", old.label, "read", old.cursor.Next, "size", old.info.Size)
		r.count("files_replaced", 1)
	}
	ghost := &file{label: old.label, entry: old.entry, part: old.part, cursor: lines.Cursor{Next: old.cursor.Next}, lost: true}
	r.ghosts++
	r.queue = append(r.queue, ghost)
}

// seal notes that all of f was handed out.
func (r *Reader) seal(f *file) {
	f.sealed, f.last = true, f.cursor.Next
	if f.view != nil {
		f.last = f.info.Size
	}
	r.s.noteSealed(r, f)
	if f.orphan && r.grow != nil {
		r.s.catalogue.retain(r, f)
	}
	r.closeSealed(f)
	if f.finished {
		r.watchAgain(f)
	}
	if f.orphan {
		r.closeFile(f)
		if r.byKey[keyOf(f.info)] == f {
			delete(r.byKey, keyOf(f.info))
		}
		if r.grow != nil {
			r.gone.now(f.part.ID)
			endDead(r, f.entry)
			r.sawAll(f)
		}
		r.release(f)
	}
}

// sawAll notes that what stands in the inode of widows by now was read to its end in f: it is not
// looked for there any more.
func (r *Reader) sawAll(f *file) {
	for e, w := range r.rotated.widows {
		if isOf(r.s.idOf(e), f.info) && (w.displaced || f.info.Birth.known()) {
			r.s.kill(e, f.info)
			w.displaced, w.aside.unseen = true, false
		}
	}
}
