package follow

import (
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// readEnd is the position up to which a route has read a file that is no longer followed. If the
// route restarts before it has saved this position, it cannot read the unsaved part of the file
// again.
type readEnd struct {
	label    string
	from, to int64 // everything before from was skipped
}

// missing returns how many of the bytes that were read are not settled (delivered, dead-lettered or
// dropped) according to the stored progress m.
func (e readEnd) missing(m stream.Mark) int64 {
	from := max(e.from, m.Watermark.Num)
	left := e.to - from
	for _, a := range m.Above {
		left -= max(0, min(a.To.Num, e.to)-max(a.From.Num, from))
	}
	return max(0, left)
}

// noteUnsaved notes the position up to which the route of cur has read a file that is no longer
// followed. It does nothing if all data up to that position is settled and saved.
func (r *Reader) noteUnsaved(cur *cursor) {
	if !r.c.grows() {
		return
	}
	id, end := cur.entry.text, readEnd{label: cur.part.Name, from: cur.skipTo, to: cur.pos.Next}
	m, _ := r.resume(id)
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	if end.missing(m) > 0 && !r.done[id] {
		r.unsaved[id] = end
	}
}

// takeUnsaved returns the record of noteUnsaved for a partition, and removes it.
func (r *Reader) takeUnsaved(id string) readEnd {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	end := r.unsaved[id]
	delete(r.unsaved, id)
	return end
}

// reportUnsaved reports lost data: an earlier reader of the route has read it, but it was not
// settled, and its file is not searched for. The data of an awaiting file is reported when that
// file is given up.
func (r *Reader) reportUnsaved() {
	r.c.ids.mu.Lock()
	ids := slices.Sorted(maps.Keys(r.unsaved))
	r.c.ids.mu.Unlock()
	for _, id := range ids {
		m, stored := r.resume(id)
		if stored && !r.c.ids.isOver(id) {
			continue
		}
		r.reportMissing(r.takeUnsaved(id), m)
	}
}

// reportMissing reports the bytes before end that are not settled according to the stored progress m.
func (r *Reader) reportMissing(end readEnd, m stream.Mark) {
	left := end.missing(m)
	if left == 0 {
		return
	}
	r.c.h.Fault(fmt.Errorf("file %q is gone and was not delivered to its end when the route "+
		"restarted, %d bytes are lost", end.label, left))
	r.count("files_vanished", 1)
	r.count("bytes_vanished", left)
}

// reportLacking reports the bytes that only the originals of copies had (see copies.separate). The
// previous reader of the route (old) has read them, and they were not settled when it was closed.
func (r *Reader) reportLacking(old *Reader) {
	for _, f := range r.c.files() {
		if cur := f.by(old); cur != nil && cur.original != nil {
			m, _ := r.resume(cur.original.entry.text)
			r.reportMissing(readEnd{cur.original.part.Name, cur.skipTo, cur.original.pos.Next}, m)
		}
	}
}
