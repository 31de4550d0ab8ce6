package follow

import (
	"github.com/penstock-io/penstock/stream"
)

// claim gives a newly joined route its cursors in files that have one id in the catalogue and
// another id in the progress of the route. The ids differ if the catalogue met a file before the
// route opened, or if an old state has several ids for a file.
func (n *identifier) claim(r *Reader, stored []*Entry) {
	c := n.c
	for _, e := range stored {
		m, ok := r.resume(e.text)
		if f := e.file; f != nil {
			if _, other := r.resume(f.entry.text); ok && f.entry != e && !other && f.by(r) == nil {
				r.begin(f, e)
			}
			continue
		}
		if !ok || m.Finished {
			continue
		}
		for _, f := range c.files() {
			if f.entry == nil || f.state == awaiting || f.by(r) != nil || !n.holds(f, e, m) {
				continue
			}
			if _, other := r.resume(f.entry.text); other {
				continue
			}
			if !isOf(e.id, f.info) && !c.copies.mayInherit(f, &file{label: m.Part.Name}) {
				continue
			}
			n.rename(f, e)
			r.begin(f, e)
			break
		}
	}
}

// isProvisional reports whether f may still get another id: no route with a cursor in f is active,
// and nothing was read under its present id.
func isProvisional(f *file) bool {
	return f.all(func(cur *cursor) bool {
		return cur.r.activity == absent && cur.blank() && cur.entry == f.entry
	})
}

// holds reports whether f, which has another id, contains the data that a route has stored for e.
func (n *identifier) holds(f *file, e *Entry, m stream.Mark) bool {
	c := n.c
	id := e.id
	same := isOf(id, f.info)
	if !same && !c.rotation.isRelated(f, m.Part.Name) || !c.handles.refresh(f) {
		return false
	}
	head, err := f.readHead(c.head[:])
	if err != nil || same && !id.Match(f.seen(head, false)) || !same && fingerprintOf(m).At == 0 {
		return false
	}
	why, err := n.lacks(f, m, head)
	return why == "" && err == nil
}

// rename makes f the file of e. f also gets the id of e, unless an active route has a cursor in f
// or something was read under f's current id.
func (n *identifier) rename(f *file, e *Entry) {
	c := n.c
	e.file = f
	if !isOf(e.id, f.info) {
		c.ids.move(e, f.seen(nil, false), f.name)
	}
	if !isProvisional(f) {
		return
	}
	old := f.entry
	f.entry = e
	for _, cur := range f.cursors {
		c.ids.unref(old, cur.r, false)
		cur.r.notes.end(old.text)
		cur.entry, cur.note = e, cur.r.notes.begin(e.text, cur.note.fingerprint)
		cur.part = &stream.Partition{ID: e.text, Name: f.partName()}
		c.ids.ref(e)
	}
	c.ids.resolvePlace(e, f.info)
}
