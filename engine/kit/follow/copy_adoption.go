package follow

import (
	"slices"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// replaces reports whether f holds all data of the deleted file g, so that the handle of g is not
// needed any more. The caller has found f and g equal by a quick comparison (see equals).
func (k *copies) replaces(f, g *file, head []byte) bool {
	if !k.mayInherit(f, g) || f.holds(g.size()) < g.size() {
		return false
	}
	fingerprints := g.fingerprints()
	for _, p := range fingerprints {
		if !k.fits(f, p, head) {
			return false
		}
	}
	return g.blank() || len(fingerprints) > 0
}

// giveUpHandle closes the handle of the deleted file g, because another file holds the same data.
// It returns the record that keeps the identity of g and awaits a successor.
func (k *copies) giveUpHandle(g *file) *file {
	e := g.entry
	k.c.strategy.(*growing).await(g, "a deleted file is read on in a copy of it")
	return awaited(e)
}

// begin makes f the successor of w: the routes read f in place of w. No route has read anything of
// w. If w is deleted but still open, begin first closes it.
func (k *copies) begin(f, w *file) {
	if w.state != awaiting {
		w = k.giveUpHandle(w)
	}
	k.adopt(f, w)
}

// adopt makes f the successor of the awaiting file w, which has lost its name or its content. The
// routes continue in f at the positions up to which they have read w.
func (k *copies) adopt(f, w *file) {
	e := w.entry
	k.c.rotation.unwait(w)
	f.entry, e.file, f.dataElsewhere, f.heldUntil = e, f, false, 0
	f.ensureExtras().equal = nil
	if f.state == unlisted {
		f.extras.listed = w.partName()
	}
	k.c.rotation.index(f)
	for _, cur := range w.cursors {
		k.moveCursor(cur, f)
	}
	f.cursors, w.cursors = append(f.cursors, w.cursors...), nil
	k.moveEntry(e, f)
	w.state = w.state.on(ends)
	k.gather(f)
	k.c.log.Info("rotated file continued", "file", f.label, "from", w.label, "read", f.read())
	k.c.count("files_rotated", 1)
}

// gather finds routes that have read the data of f under the identity of another file. That file
// has lost its name or its content, and still awaits a successor. gather moves their cursors to f,
// so that they do not begin at the start of f.
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
	for _, e := range k.relatedEntries(f, head) {
		w := awaited(e)
		if w == nil || e.phase == known && !k.mayInherit(f, w) {
			continue
		}
		for _, cur := range slices.Clone(w.cursors) {
			i := slices.IndexFunc(f.cursors, func(o *cursor) bool { return o.r == cur.r && isNew(o) })
			p := cur.note.fingerprint
			if i < 0 || p.At == 0 || p.At != cur.pos.Next || !k.fits(f, p, head) {
				continue
			}
			c.ids.unref(f.cursors[i].entry, cur.r, false)
			k.moveCursor(cur, f)
			f.cursors[i] = cur
			w.cursors = slices.DeleteFunc(w.cursors, func(o *cursor) bool { return o == cur })
		}
		if len(w.cursors) == 0 {
			c.rotation.unwait(w)
			w.state = w.state.on(ends)
		}
	}
}

// moveEntry records that f has the data of the identity e now. The id of e has a hash of the first
// bytes of the data. If f is shorter than these bytes, the hash is replaced by one of the bytes
// that f has.
func (k *copies) moveEntry(e *Entry, f *file) {
	to := f.seen(nil, false)
	if most := int64(e.id.Len); f.holds(most) < most && f.handle != nil {
		to.Head, _ = f.readHead(make([]byte, fileid.MaxHead)) // without it, f is read again
	}
	k.c.ids.move(e, to, f.name)
}

// moveCursor makes cur continue in f, which holds the data of its partition now.
func (k *copies) moveCursor(cur *cursor, f *file) {
	cur.f, cur.verified, cur.touch, cur.drained, cur.leftPacked = f, version{}, true, 0, 0
	cur.sealed, cur.own, cur.unsettled = false, nil, 0
	cur.part = &stream.Partition{ID: cur.entry.text, Name: f.partName()}
	if cur.entry != f.entry {
		k.moveEntry(cur.entry, f)
		cur.entry.file = f
	}
	if id, err := fileid.Parse(cur.entry.text); err == nil {
		// by birth time as well: an inode may be reused immediately
		cur.r.notes.move(cur.note, f.seen(nil, false), !isOf(id, f.info))
	}
	if cur.original != nil {
		k.moveCursor(cur.original, f)
	}
}

// adoptPart makes f the successor of w, although f has only the bytes of w before a position (the
// parameter to). A route that has read more bytes of w gets a new partition for the bytes of f
// after this position (see separate).
func (k *copies) adoptPart(f, w *file, head []byte, to int64) {
	k.adopt(f, w)
	for _, cur := range slices.Clone(f.cursors) {
		if cur.pos.Next > to {
			k.separate(cur, head, to)
		}
	}
}

// separate gives a route a new cursor, with a partition of its own, in a copy that lacks data.
// Example: the route has read 900 bytes with cur, and the copy has only the first 500 of them (the
// parameter to is 500). Bytes that the copy has after position 500, now or later, are other data,
// so they need another partition. The new cursor skips the first 500 bytes once the saved progress
// of cur shows that they are settled. Then cur is sealed. If the route restarts before that, it
// resumes in the partition of cur.
func (k *copies) separate(cur *cursor, head []byte, to int64) {
	f, r := cur.f, cur.r
	f.cursors = slices.DeleteFunc(f.cursors, func(o *cursor) bool { return o == cur })
	if cur.own != nil {
		cur.own.Close()
		cur.own = nil
	}
	var own *Entry
	for _, e := range append(f.entries(), f.entry) {
		m, _ := r.resume(e.text)
		if at := highest(m); e != cur.entry && f.holds(at) >= at {
			own = e
		}
	}
	if own == nil {
		own = k.c.ids.give(f.seen(head, true), f.name)
		own.file, own.prefix = f, f.entry.prefix
	}
	next := r.begin(f, own)
	next.original = cur
	k.c.log.Info("copy of a rotated file lacks data that was read", "file", f.label, "has", to,
		"read", cur.pos.Next)
	if next.pos.Next >= to {
		k.endOriginal(next)
		return
	}
	next.skipTo = to
	if p, err := f.fingerprintAt(to, head); err == nil { // else a kill may repeat data
		r.notes.shorten(cur.note, p)
		r.notes.set(next.note, p) // finds a copy of f before the skip
	}
}

// separateNow is separate for a file that is read now.
func (k *copies) separateNow(cur *cursor, to int64) {
	head, err := cur.f.readHead(make([]byte, fileid.MaxHead))
	if err != nil {
		k.c.handles.readFailed(cur.f, err)
		return
	}
	k.separate(cur, head, to)
	k.c.pace.soon()
}

// endOriginal ends the cursor that cur has replaced in a copy that lacks data (see separate). The
// route then seals the partition of that cursor: it hands out a span that marks the partition's
// end. When no route reads that partition any more, the copy gets the id of the partition of cur.
func (k *copies) endOriginal(cur *cursor) {
	f, r, original := cur.f, cur.r, cur.original
	if original == nil {
		return
	}
	cur.original = nil
	r.lostCursors = append(r.lostCursors, original)
	r.noteUnsaved(original)
	e := original.entry
	if !k.c.ids.unref(e, r, false) {
		return
	}
	k.c.ids.end(e)
	if e.file = nil; f.entry == e {
		f.entry, cur.entry.file = cur.entry, f
	}
}
