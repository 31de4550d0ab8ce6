package follow

import (
	"errors"
	"io"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// provedLater says whether it is enough to look after reading whether what was handed out of a
// growing file still stands in it: stood does so for all that is handed out, and to look before as
// well would cost as many calls of the system as the reading. Not so with framing, which may
// stumble over bytes of another file, and not where more has to be known of the file before.
func (r *Reader) provedLater(f *file, end ending) bool {
	if r.grow == nil || !f.checked || f.entry == nil || f.sealed || f.view != nil || end.sealed || end.flush {
		return false
	}
	if r.s.o.Rules.Framing != nil || f.aside != nil && f.aside.framing != nil || f.skipping() {
		return false
	}
	at, proof := f.cursor.Next, &f.note.proof
	return at > 0 && proof.At == at && len(f.note.suffix) > 0 && int64(proof.Head) == min(at, fileid.MaxHead)
}

// fillStanding is fillFrom that takes nothing of a growing file in which what was handed out of it
// stands no more. false: nothing was taken, and f is looked at again.
func (r *Reader) fillStanding(b *stream.Batch, f *file, end ending, later bool) (lines.Result, bool) {
	before, undo := f.cursor, batchLen(b)
	var behind []byte
	if later && f.left() <= atOnce && len(f.cursor.Above) == 0 {
		behind = f.note.suffix
	}
	res, err := r.fillFrom(b, f, end, behind)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.pace.soon() // it has just become shorter: the next look says by how much
		return res, false
	case errors.Is(err, lines.ErrOther):
		r.doubt(f)
		return res, false
	case err != nil:
		r.fail(f, err)
		return res, false
	case res == lines.NoRoom:
		return res, true
	case r.grow != nil && f.cursor.Next > before.Next && !r.stood(b.Data[undo.data:], f, before.Next, behind != nil):
		undo.restore(b)
		r.filler.Undo(b)
		f.cursor = before
		r.doubt(f)
		return res, false
	case later && f.cursor.Next == before.Next:
		return res, r.stands(f)
	}
	return res, true
}

// atOnce is how much of a growing file is read by one call together with the bytes before it. Where
// there is more, those are looked at when it was read, which then costs little beside it: a file
// may be emptied and written anew in the middle of a long read.
const atOnce = 64 << 10

// stood says whether the file was not rewritten while the last Fill read it: what was read before
// the place before is still there. seen says that Fill has found the bytes that end at that place;
// then only the head is left to be looked at. data is what Fill has added.
func (r *Reader) stood(data []byte, f *file, before int64, seen bool) bool {
	switch {
	case f.note.proof.At != before || f.view != nil:
		return true // nothing is known of the bytes before, or it was read before this Fill
	case before == 0:
		return r.began(data, f)
	}
	if f.proved > f.since+lookSpacing && r.untouched(f) {
		return true
	}
	now := r.s.now()
	head := r.head[:f.note.proof.Head]
	if err := f.readFull(head, 0); err != nil {
		return false
	}
	ok, err := seen && f.note.proof.FitsHead(head), error(nil)
	if !seen {
		ok, err = f.fits(f.note.proof, head, r.head[fileid.MaxHead:])
	}
	if ok && err == nil {
		f.proved = now
	}
	return ok && err == nil
}

// began says whether a file of which something was handed out for the first time begins as it did
// when it got its id.
func (r *Reader) began(data []byte, f *file) bool {
	id := r.s.idOf(f.entry)
	if id.MatchHead(data) {
		return true
	}
	head, err := f.readHead(r.head[:]) // it is longer than what was handed out, or that is not what stands there to the byte
	return err == nil && id.MatchHead(head)
}

// doubt has it looked soon whether what was handed out of f still stands in it.
func (r *Reader) doubt(f *file) {
	f.checked = false
	r.pace.soon()
}

// oldStamp is how old the time of a file's last change has to be for a later change to show in it
// on every file system.
const oldStamp = 5 * time.Second

// untouched says whether a file that nobody has written to for long is as it was when its bytes
// were looked at.
func (r *Reader) untouched(f *file) bool {
	if age := time.Now().UnixNano() - int64(f.info.ModTime); age < int64(oldStamp) {
		return false
	}
	seen, err := f.handle.Stat()
	if err != nil {
		return false
	}
	info := statOf(seen)
	return info.Size == f.info.Size && info.ModTime == f.info.ModTime
}
