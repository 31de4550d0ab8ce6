package follow

import (
	"slices"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// replaces reports whether f, which equals the deleted file g, holds all data of g, so that the
// handle of g is not needed any more.
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
// It returns the awaiting file with the identity of g.
func (k *copies) giveUpHandle(g *file) *file {
	e := g.entry
	k.c.strategy.(*growing).await(g, "a deleted file is read on in a copy of it")
	return awaited(e)
}

// begin makes f the successor of w, of which no route has read anything. If w is deleted but still
// open, begin first closes it.
func (k *copies) begin(f, w *file) {
	if w.state != awaiting {
		w = k.giveUpHandle(w)
	}
	k.adopt(f, w)
}

// adopt makes f the successor of w, which awaits one. The routes continue in f at the positions up
// to which they have read w.
func (k *copies) adopt(f, w *file) {
	k.take(f, w, func(*cursor) bool { return true })
	k.c.rotation.unwait(w)
	w.state = w.state.on(ends)
	k.gather(f)
	k.c.log.Info("rotated file continued", "file", f.label, "from", w.label, "read", f.read())
	k.c.count("files_rotated", 1)
}

// take gives f the identity of w, and the cursors of w for which move returns true.
func (k *copies) take(f, w *file, move func(*cursor) bool) {
	c := k.c
	c.rotation.unindex(w)
	k.identify(f, w, w.entry)
	var stay []*cursor
	for _, cur := range w.cursors {
		if !move(cur) {
			stay = append(stay, cur)
			continue
		}
		k.moveCursor(cur, f)
		f.cursors = append(f.cursors, cur)
	}
	w.cursors = stay
	c.ids.move(f.entry, f.seen(nil, false), f.name)
}

// identify gives the identity e to f, which contains data of w.
func (k *copies) identify(f, w *file, e *Entry) {
	f.entry, e.file, f.dataElsewhere, f.held = e, f, false, 0
	f.ensureExtras().equal = nil
	if f.state == unlisted {
		f.extras.listed = w.partName()
	}
	k.c.rotation.index(f)
}

// gather finds routes that have read the data of f under the identity of another awaiting file. It
// moves their cursors to f, so that they do not begin at the start of f.
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
	}
}

// moveCursor makes cur continue in f, which holds the data of its partition now.
func (k *copies) moveCursor(cur *cursor, f *file) {
	cur.f, cur.verified, cur.touch, cur.drained, cur.leftPacked = f, version{}, true, 0, 0
	cur.sealed, cur.storedFinished, cur.own, cur.unsettled = false, false, nil, 0
	cur.part = &stream.Partition{ID: cur.entry.text, Name: f.partName()}
	if cur.entry != f.entry {
		k.c.ids.move(cur.entry, f.seen(nil, false), f.name)
		cur.entry.file = f
	}
	if id, err := fileid.Parse(cur.entry.text); err == nil {
		// an inode may be reused immediately
		cur.r.notes.move(cur.note, f.seen(nil, false), !isOf(id, f.info))
	}
}

// startCopy makes f a copy of the first bytes of w, up to a position (the parameter to). f becomes
// the successor of w for the routes that have read at most these bytes. The other routes have read
// more of w. For them, f is a separate file in which they skip these bytes, once their progress in
// w shows that these bytes are settled. If the process ends before that, the next one finds f by
// the fingerprint that their progress in w has from now on.
func (k *copies) startCopy(f, w *file, head []byte, to int64) {
	c := k.c
	short := func(cur *cursor) bool { return cur.pos.Next <= to }
	moves := slices.ContainsFunc(w.cursors, short)
	if moves {
		k.take(f, w, short)
	}
	own := c.ids.give(f.seen(head, true), f.name)
	own.file = f
	if f.entry == nil {
		k.identify(f, w, own)
	}
	for _, cur := range w.cursors {
		cur.copy = cur.r.begin(f, own)
		cur.copy.skipTo, cur.copy.original = to, cur
		if p, err := f.fingerprintAt(to, head); err == nil { // else a kill may repeat data
			cur.r.notes.shorten(cur.note, p)
			cur.r.notes.set(cur.copy.note, p) // finds a copy of f before the skip
		}
	}
	c.rotation.unwait(w)
	w.state = w.state.on(ends)
	w.dataElsewhere = true
	if moves { // f has its identity now
		for _, cur := range w.cursors {
			cur.r.lostCursors = append(cur.r.lostCursors, cur)
			c.drop(cur)
		}
		w.entry, w.cursors = nil, nil
	} else {
		c.ids.end(w.entry)
		c.giveUp(w)
	}
	c.log.Info("copy of a rotated file", "file", f.label, "of", w.label, "read", to)
	c.count("files_rotated", 1)
}
