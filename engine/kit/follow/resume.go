package follow

import (
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

func (r *Reader) resume(id string) (stream.Mark, bool) {
	if r.o.Resume == nil || r.activity == absent || r.activity == gone {
		return stream.Mark{}, false
	}
	return r.o.Resume(id)
}

// begin gives r a cursor in the identified file f, at the stored position or at the beginning.
func (r *Reader) begin(f *file, e *Entry) *cursor {
	m, stored := r.resume(e.text)
	cur := &cursor{r: r, f: f, entry: e, pos: lines.Resume(m), unread: f.unread}
	cur.part = &stream.Partition{ID: e.text, Name: f.partName()}
	cur.note = r.notes.begin(e.text, fingerprintOf(m))
	delete(r.forgets.stored, e.text)
	r.c.ids.ref(e)
	f.cursors = append(f.cursors, cur)
	if id, err := fileid.Parse(e.text); f.state != awaiting && err == nil && !isOf(id, f.info) &&
		cur.note.fingerprint.Moved != keyOf(f.info) {
		r.notes.move(cur.note, f.seen(nil, false), true)
		cur.touch = stored
	}
	if cur.stamp(); f.state == awaiting {
		cur.verified = version{}
	}
	r.c.strategy.resumed(cur, m)
	return cur
}

// fingerprintOf returns the fingerprint in a stored note. An invalid fingerprint is empty; it was
// logged when the marks were read.
func fingerprintOf(m stream.Mark) fileid.Fingerprint {
	fingerprint, _ := fileid.ParseFingerprint(m.Metadata)
	return fingerprint
}

// highest returns the end of the last settled range of a file.
func highest(m stream.Mark) int64 {
	high := m.Watermark.Num
	if n := len(m.Above); n > 0 {
		high = max(high, m.Above[n-1].To.Num)
	}
	return high
}
