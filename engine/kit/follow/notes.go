package follow

import (
	"slices"
	"sync"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// maxEarlier bounds the number of earlier positions for which a note (the fingerprints of one file)
// keeps fingerprints. When a note has this number, the method set removes every second position.
// Progress at a removed position is saved with the fingerprint of an earlier position.
const maxEarlier = 64

// notes are the fingerprints that a route's checkpoint stores, by partition. The reader and the
// goroutine that writes checkpoints use them concurrently.
type notes struct {
	mu   sync.Mutex // guards the content of the notes, except suffix
	byID map[string]*note
}

// note describes the read data of one file.
type note struct {
	fingerprint fileid.Fingerprint // at the cursor
	// at earlier positions, ascending, that may still become a watermark
	earlier []fileid.Fingerprint
	suffix  []byte // the last known bytes before fingerprint.At; only the reader uses it
	saved   int64  // the last saved watermark
}

// begin starts the note (the fingerprints) of a partition with the progress m from the checkpoint,
// which may be empty.
func (n *notes) begin(id string, m stream.Mark) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &note{fingerprint: fingerprintOf(m), saved: m.Watermark.Num}
	n.byID[id] = t
	return t
}

func (n *notes) end(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byID, id)
}

// set replaces the fingerprint at the cursor, and keeps the old fingerprint, because the watermark
// may be at the position of the old one when progress is saved. It removes the fingerprints at
// positions that can no longer become the watermark.
func (n *notes) set(t *note, fingerprint fileid.Fingerprint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.fingerprint.At != fingerprint.At && t.fingerprint.At > 0 {
		t.earlier = t.earlier[t.upTo(t.saved):]
		if len(t.earlier) >= maxEarlier {
			for i := range maxEarlier / 2 {
				t.earlier[i] = t.earlier[2*i]
			}
			t.earlier = t.earlier[:maxEarlier/2]
		}
		t.earlier = append(t.earlier, t.fingerprint)
	}
	t.fingerprint = fingerprint
}

// grow updates the fingerprint at the cursor of a file that has grown. If head, the first bytes of
// the file, is longer than the bytes hashed so far, grow replaces their hash by that of head.
func (n *notes) grow(t *note, head []byte) {
	if len(head) <= t.fingerprint.Head {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	t.fingerprint = t.fingerprint.WithHead(head)
}

// move records in the note t that another file (to) holds the data of the partition now. elsewhere
// is set if the inode of that file is not the one in the partition's id.
func (n *notes) move(t *note, to fileid.File, elsewhere bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &t.fingerprint
	p.Moved, p.MovedBirth, p.ModTime, p.Packed = fileid.Key{}, 0, 0, 0
	if elsewhere {
		t.fingerprint.Moved, t.fingerprint.MovedBirth = to.Key(), to.Birth
	}
}

// all returns the fingerprints of t, the one at the cursor first.
func (n *notes) all(t *note) []fileid.Fingerprint {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]fileid.Fingerprint{t.fingerprint}, t.earlier...)
}

// at returns the fingerprint to save with a watermark, the position up to which all data is
// settled. It is the fingerprint of the last position at or before the watermark. If there is none,
// it is that of the first position after the watermark, since the bytes before that position were
// read as well.
func (n *notes) at(id string, watermark int64) fileid.Fingerprint {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.byID[id]
	if t == nil {
		return fileid.Fingerprint{}
	}
	out := t.fingerprint
	if out.At > watermark && len(t.earlier) > 0 {
		out = t.earlier[t.upTo(watermark)]
	}
	out.Moved, out.MovedBirth = t.fingerprint.Moved, t.fingerprint.MovedBirth
	return out
}

// upTo returns the index in earlier of the last position at or before a watermark. It returns 0 if
// there is none.
func (t *note) upTo(watermark int64) int {
	i := 0
	for i+1 < len(t.earlier) && t.earlier[i+1].At <= watermark {
		i++
	}
	return i
}

// shorten replaces the fingerprints of t by one at an earlier position, up to which a copy has the
// data of the file.
func (n *notes) shorten(t *note, fingerprint fileid.Fingerprint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fingerprint.Moved, fingerprint.MovedBirth = t.fingerprint.Moved, t.fingerprint.MovedBirth
	t.fingerprint, t.earlier = fingerprint, nil
}

// save records the saved watermarks of partitions.
func (n *notes) save(marks []stream.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range marks {
		if t := n.byID[m.Part.ID]; t != nil {
			t.saved = m.Watermark.Num
		}
	}
}

// isSaved reports whether the saved watermark of t has reached a position.
func (n *notes) isSaved(t *note, position int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return t.saved >= position
}

// Metadata implements stream.PartitionTracker.
func (r *Reader) Metadata(m stream.Mark) string {
	return r.notes.at(m.Part.ID, m.Watermark.Num).String()
}

// setFingerprint makes the fingerprint for a position (the parameter at), and stores it as the one
// at the cursor. It hashes head, the first bytes of the file, and the bytes before the position,
// which it reads.
func (cur *cursor) setFingerprint(at int64, head []byte) error {
	before, err := cur.f.readBefore(at)
	if err != nil {
		return err
	}
	cur.note.suffix = append(cur.note.suffix[:0], before...)
	withHead := cur.note.fingerprint.WithHead(head[:min(int64(len(head)), at)])
	cur.r.notes.set(cur.note, withHead.WithPlace(at, before))
	return nil
}

// fingerprintAt returns the fingerprint of f at a position. It hashes head, the first bytes of the
// file, and the bytes before the position, which it reads.
func (f *file) fingerprintAt(at int64, head []byte) (fileid.Fingerprint, error) {
	before, err := f.readBefore(at)
	p := fileid.Fingerprint{}.WithHead(head[:min(int64(len(head)), at)])
	return p.WithPlace(at, before), err
}

// remember updates the fingerprint at the cursor with the data that the last Fill has read, from a
// given position (before) on. The filler has this data if Fill has decoded or joined records (see
// lines.Filler.Seen). Otherwise it is at the end of b.Data. In three cases it is not there, and the
// fingerprint stays: a line end was added, a record was cut, or a range was skipped.
func (cur *cursor) remember(b *stream.Batch, before int64) {
	r, n := cur.r, len(b.Spans)
	if cur.pos.Next == before || n == 0 || b.Spans[n-1].Part.ID != cur.part.ID {
		cur.stamp()
		return
	}
	s := &b.Spans[n-1]
	size := cur.pos.Next - before
	head, tail, written := r.filler.Seen(before, cur.pos.Next)
	if plain := written || s.To.Num-s.From.Num == int64(s.Bytes) && s.To.Num == cur.pos.Next &&
		s.From.Num <= before; plain {
		fresh := tail
		if !written {
			fresh = b.Data[len(b.Data)-int(size):]
			head = fresh
		}
		t := cur.note
		if t.fingerprint.At != before {
			t.suffix = t.suffix[:0]
		}
		t.suffix = append(t.suffix, fresh[max(0, len(fresh)-fileid.MaxBefore):]...)
		t.suffix = slices.Delete(t.suffix, 0, max(0, len(t.suffix)-fileid.MaxBefore))
		fingerprint := t.fingerprint.WithPlace(cur.pos.Next, t.suffix)
		if before == 0 && s.From.Num == 0 {
			fingerprint = fingerprint.WithHead(head)
		}
		r.notes.set(t, cur.withEnd(fingerprint))
	}
	cur.stamp()
}

// withEnd adds the time of the file, and the size of a compressed file, to a fingerprint at the
// cursor if the route has read the whole file. The next process then recognises the file by them.
func (cur *cursor) withEnd(p fileid.Fingerprint) fileid.Fingerprint {
	if cur.atEnd() {
		p.ModTime = int64(cur.f.info.ModTime)
		if cur.view() != nil {
			p.Packed = cur.f.info.Size
		}
	}
	return p
}

// noteEnd is withEnd for the present fingerprint of a file that has replaced another one. The route
// may have nothing more to read in it.
func (cur *cursor) noteEnd() {
	if p := cur.note.fingerprint; p.ModTime == 0 && p.At > 0 && p.At == cur.pos.Next {
		cur.r.notes.set(cur.note, cur.withEnd(p))
	}
}
