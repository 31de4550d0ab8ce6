package follow

import (
	"sync"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// maxEarlier bounds the places that are kept of one file for marks that are not saved yet; more are
// thinned out, and a mark is then saved with the proof of a place before it.
const maxEarlier = 64

// notes are the proofs that a reader's checkpoint wants, by partition. The reader writes, the
// checkpoint's goroutine asks.
type notes struct {
	mu   sync.Mutex // guards what the notes hold, but for suffix
	byID map[string]*note
}

// note is what was read of one file.
type note struct {
	proof   fileid.Proof   // at the cursor
	earlier []fileid.Proof // at the places before it, ascending, that may still become a watermark
	suffix  []byte         // the bytes before proof.At, as far as they are known; the reader's own
}

// begin starts the note of a partition with what the checkpoint knew, or nothing.
func (n *notes) begin(id string, proof fileid.Proof) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &note{proof: proof}
	n.byID[id] = t
	return t
}

// end forgets a partition.
func (n *notes) end(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byID, id)
}

// set replaces the proof at the cursor.
func (n *notes) set(t *note, proof fileid.Proof) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.proof.At != proof.At && t.proof.At > 0 {
		if len(t.earlier) >= maxEarlier {
			for i := range maxEarlier / 2 {
				t.earlier[i] = t.earlier[2*i]
			}
			t.earlier = t.earlier[:maxEarlier/2]
		}
		t.earlier = append(t.earlier, t.proof)
	}
	t.proof = proof
}

// grow adds more of the head to the proof at the cursor.
func (n *notes) grow(t *note, head []byte) {
	if len(head) <= t.proof.Head {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	t.proof = t.proof.WithHead(head)
}

// at is the proof for a watermark: that of the last place at or before it, or of the first place
// where there is none: what stands before that was read, too.
func (n *notes) at(id string, watermark int64) fileid.Proof {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.byID[id]
	if t == nil {
		return fileid.Proof{}
	}
	if t.proof.At <= watermark {
		t.earlier = nil
		return t.proof
	}
	out := t.proof
	if len(t.earlier) > 0 {
		out = t.earlier[0]
	}
	for len(t.earlier) > 0 && t.earlier[0].At <= watermark {
		out = t.earlier[0]
		if len(t.earlier) > 1 && t.earlier[1].At > watermark {
			break
		}
		if len(t.earlier) == 1 {
			break
		}
		t.earlier = t.earlier[1:]
	}
	out.Moved, out.MovedBirth = t.proof.Moved, t.proof.MovedBirth
	return out
}

// Note implements stream.Noter.
func (r *Reader) Note(m stream.Mark) string { return r.notes.at(m.Part.ID, m.Watermark.Num).String() }

// remember notes what the last Fill has handed out of f, from the place before on. What it handed
// out ends b's data, unless a line end was added, a record was cut or a range was skipped: then
// nothing is known of the bytes before the cursor.
func (r *Reader) remember(b *stream.Batch, f *file, before int64) {
	n := len(b.Spans)
	if f.cursor.Next == before || n == 0 || b.Spans[n-1].Part.ID != f.part.ID {
		f.stamp()
		return
	}
	s := &b.Spans[n-1]
	size := f.cursor.Next - before
	head, tail, written := r.filler.Seen(before, f.cursor.Next)
	if plain := written || s.To.Num-s.From.Num == int64(s.Bytes) && s.To.Num == f.cursor.Next && s.From.Num <= before; plain {
		fresh := tail
		if !written {
			fresh = b.Data[len(b.Data)-int(size):]
			head = fresh
		}
		t := f.note
		if t.proof.At != before || len(fresh) >= fileid.MaxBefore {
			t.suffix = t.suffix[:0]
		}
		t.suffix = append(t.suffix, fresh[max(0, len(fresh)-fileid.MaxBefore):]...)
		if over := len(t.suffix) - fileid.MaxBefore; over > 0 {
			t.suffix = t.suffix[:copy(t.suffix, t.suffix[over:])]
		}
		proof := t.proof.WithPlace(f.cursor.Next, t.suffix)
		if before == 0 && s.From.Num == 0 {
			proof = proof.WithHead(head)
		}
		if f.atEnd() {
			proof.ModTime = int64(f.info.ModTime)
			if f.view != nil {
				proof.Packed = f.info.Size
			}
		}
		r.notes.set(t, proof)
	}
	f.stamp()
}
