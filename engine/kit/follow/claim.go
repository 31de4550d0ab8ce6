package follow

import "github.com/penstock-io/penstock/stream"

// claim gives a newly joined route its cursors in files that have one id in the catalogue and
// another id in the progress of the route. The ids may differ in three cases:
//
//   - The route was added while the source was running.
//   - The progress was only in a sink's ledger, and not in the checkpoint, when the file was found.
//   - The state was written by an old version, which may have given a file several ids.
func (n *identifier) claim(r *Reader, stored []*Entry) {
	for _, e := range stored {
		m, ok := r.resume(e.text)
		if e.file == nil && ok && !m.Finished {
			e.file = n.fileOf(r, e, m)
		}
		f := e.file
		if f == nil || f.entry == e || f.by(r) != nil || !ok {
			continue
		}
		if _, other := r.resume(f.entry.text); !other {
			r.begin(f, e)
		}
	}
}

// fileOf returns the file that contains the data that route r has read under the id of e, according
// to its mark m. The file has another id in the catalogue. It may be the file that r has read, or a
// copy of it. fileOf returns nil if there is none.
func (n *identifier) fileOf(r *Reader, e *Entry, m stream.Mark) *file {
	c := n.c
	for _, f := range c.files() {
		if f.entry == nil || f.state == awaiting || f.by(r) != nil || !n.holds(f, e, m) {
			continue
		}
		if _, other := r.resume(f.entry.text); other {
			continue
		}
		if isOf(e.id, f.info) {
			return f
		}
		if c.copies.mayInherit(f, &file{label: m.Part.Name}) {
			c.copies.moveEntry(e, f)
			return f
		}
	}
	return nil
}

// holds reports whether f contains the data that a route has read under the id of e, according to
// its mark m. f has another id in the catalogue.
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
