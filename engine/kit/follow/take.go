package follow

import (
	"io"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// ending is the known state of the end of a file.
type ending struct {
	sealed bool          // nothing will follow
	flush  bool          // the last record is handed out as it is, without its end
	at     time.Duration // when either may become true; 0: an event will show it
}

// take fills b from f. stay reports whether b is complete and f, which may have more data, stays
// first in the queue.
func (r *Reader) take(b *stream.Batch, f *file) (stay bool) {
	defer r.filler.release()
	end, ok := r.c.establish(f, &r.filler)
	if !ok {
		return false
	}
	cur := f.by(r)
	if cur == nil {
		return false
	}
	later := cur.verifiedLater(end)
	if !r.c.verify(cur, later) || cur.sealed && !cur.changed() {
		return false
	}
	if cur.waitsForOriginal() {
		return false
	}
	if cur.skipping() {
		if stay, ok := r.skip(b, cur); stay || !ok {
			return stay
		}
	}
	if cur.touch {
		at := stream.Position{Num: cur.pos.Next}
		b.Spans = append(b.Spans, stream.Span{Part: cur.part,
			Range: stream.Range{From: at, To: at}, Verbatim: true})
		cur.touch = false
	}
	before, left := cur.pos.Next, cur.left()
	res, ok := cur.fillVerified(b, end, later)
	if !ok || res == lines.NoRoom {
		return ok
	}
	r.left.Add(cur.left() - left)
	if f.view == nil {
		cur.remember(b, before)
	}
	r.c.handles.readable(f)
	if res == lines.Full {
		return true
	}
	cur.unread, cur.drained = 0, f.info.Size
	if r.c.unpacker.isBroken(f, cur) {
		return false
	}
	cur.noteEnd()
	if !end.sealed && cur.isBeyond() {
		to, _ := cur.known()
		if before > to { // an earlier run has read it
			to = min(to, cur.note.fingerprint.At)
		}
		r.c.copies.separateNow(cur, to)
		return false
	}
	switch {
	case end.sealed:
		r.c.seal(cur)
	case end.at > 0:
		r.c.pace.dueAt(end.at)
	}
	return false
}

// establish opens f, identifies it and determines its end. A non-nil l may keep the bytes that were
// read for the identification. ok is false if f cannot be read now.
func (c *Catalogue) establish(f *file, l *filler) (end ending, ok bool) {
	if !c.table.has(f) && f.state != finished || !c.handles.refresh(f) {
		return end, false
	}
	if end, ok = c.strategy.endOf(f); !ok || f.view != nil && !c.unpacker.isWhole(f) {
		return end, false
	}
	if f.entry == nil {
		if !c.identify.file(f, l) {
			return end, false
		}
		if end.sealed { // its successor is known only now
			return c.strategy.endOf(f)
		}
	}
	return end, true
}

// rereading is the end of messages about a file that was rewritten. The start of the message gives
// the reason.
const rereading = "it is read from its beginning, unread data of the old content is lost"

// verify reports whether the route can continue to read the file. If the file has changed, verify
// checks that the delivered data is still in the file. If the parameter later is set, the caller
// makes this check after its read instead. verify returns false if the file was replaced, cannot be
// read, or was sealed and has not grown.
func (c *Catalogue) verify(cur *cursor, later bool) bool {
	switch {
	case cur.shorter() && !cur.isBeyond():
		c.replaced(cur.f, "a file became shorter than what was read of it; "+rereading)
		return false
	case !cur.changed(), later:
		return true
	}
	return c.isStillIntact(cur)
}

// isStillIntact compares a changed file with the delivered data, for verify. It returns false if
// the file was replaced, cannot be read, or was sealed and has not grown.
func (c *Catalogue) isStillIntact(cur *cursor) bool {
	f := cur.f
	same, err := cur.unchanged(cur.entry.id, c.head[:])
	if err != nil {
		c.handles.readFailed(f, err)
		return false
	}
	if !same {
		c.replaced(f, "a file was rewritten in place; "+rereading)
		return false
	}
	if cur.sealed && f.info.Size == cur.last { // touched
		cur.stamp()
		c.closeSealed(f)
		return false
	}
	if cur.sealed {
		c.strategy.grew(cur)
	}
	return true
}

// verifiedLater reports whether verifyRead may check after the read that a growing file still has
// its delivered data. Usually it may: a check before the read would cost as many system calls as
// the read itself. But with framing the check must come before the read, because framing may fail
// on the bytes of another file. The same applies to special cases, for example if the file is
// sealed or compressed, or if bytes must be skipped.
func (cur *cursor) verifiedLater(end ending) bool {
	c, f := cur.r.c, cur.f
	if !c.grows() || !cur.verified.ok || cur.sealed || f.view != nil || end.sealed ||
		end.flush {
		return false
	}
	if c.o.Rules.Framing != nil || cur.skipping() {
		return false
	}
	at, fingerprint := cur.pos.Next, &cur.note.fingerprint
	hasHead := int64(fingerprint.Head) == min(at, fileid.MaxHead)
	return at > 0 && fingerprint.At == at && len(cur.note.suffix) > 0 && hasHead
}

// fillVerified does the same as fillFrom, but takes nothing from a growing file that no longer
// contains its delivered data. It returns false if nothing was taken and the file must be looked at
// again.
func (cur *cursor) fillVerified(b *stream.Batch, end ending, later bool) (lines.Result, bool) {
	c, f := cur.r.c, cur.f
	before, saved, data := cur.pos, cur.r.filler.Save(b), len(b.Data)
	res, err := cur.fillFrom(b, end)
	switch {
	case err != nil:
		c.handles.readFailed(f, err)
		return res, false
	case res == lines.NoRoom:
		return res, true
	case c.grows() && cur.pos.Next > before.Next &&
		!cur.verifyRead(b.Data[data:], before.Next):
		cur.r.filler.Restore(b, saved)
		cur.pos = before
		cur.distrust()
		return res, false
	case later && cur.pos.Next == before.Next:
		return res, c.isStillIntact(cur)
	}
	return res, true
}

// verifyRead reports whether the file still has the data that was delivered before the last Fill,
// up to a given position (before). If not, the file was rewritten while Fill read it. data are the
// bytes that Fill has added.
func (cur *cursor) verifyRead(data []byte, before int64) bool {
	c, f := cur.r.c, cur.f
	fingerprint := cur.note.fingerprint
	switch {
	case fingerprint.At != before || f.view != nil:
		return true // nothing is known of the bytes before, or it was read before this Fill
	case before == 0:
		return cur.hasSameBeginning(data)
	}
	head := c.head[:fingerprint.Head]
	if err := f.readFull(head, 0); err != nil {
		return false
	}
	return c.copies.fits(f, fingerprint, head)
}

// hasSameBeginning reports whether a file still begins as it did when it got its id. data are its
// first bytes that were handed out.
func (cur *cursor) hasSameBeginning(data []byte) bool {
	id := cur.entry.id
	if id.MatchHead(data) {
		return true
	}
	// it is longer than the delivered data, or differs from it
	head, err := cur.f.readHead(cur.r.c.head[:])
	return err == nil && id.MatchHead(head)
}

// distrust schedules an early check that the delivered data is still in the file.
func (cur *cursor) distrust() {
	cur.verified = version{}
	cur.r.c.pace.soon()
}

// skip makes the route skip the bytes before cur.skipTo. It adds a span without bytes to b, so that
// they count as settled (delivered, dead-lettered or dropped). ok reports whether it has added the
// span. stay reports whether b has no room for the span.
//
// If cur has replaced another cursor in a copy (see copies.separate), skip also ends that cursor.
// Its partition is sealed only after the span, because the seal deletes its progress. Before the
// span, only this progress shows which bytes of the copy were read.
func (r *Reader) skip(b *stream.Batch, cur *cursor) (stay, ok bool) {
	if len(b.Spans) >= lines.MaxSpans {
		return true, false
	}
	head, err := cur.f.readHead(r.c.head[:])
	if err == nil && !cur.entry.id.MatchHead(head) { // it was rewritten since it got its id
		cur.distrust()
		return false, false
	}
	if err == nil {
		err = cur.setFingerprint(cur.skipTo, head)
	}
	if err != nil {
		r.c.handles.readFailed(cur.f, err)
		return false, false
	}
	from, to := stream.Position{Num: cur.pos.Next}, stream.Position{Num: cur.skipTo}
	b.Spans = append(b.Spans, stream.Span{Part: cur.part, Range: stream.Range{From: from, To: to}})
	cur.pos.Next = cur.skipTo
	r.c.copies.endOriginal(cur)
	return false, true
}

// sealLost adds the seal of a lost file to b. It returns false if b has no room.
func (r *Reader) sealLost(b *stream.Batch, cur *cursor) bool {
	cur.pos.Above = nil
	res, err := r.filler.Fill(b, &cur.pos, lines.File{Part: cur.part, Size: cur.pos.Next, Sealed: true})
	if err == nil && res == lines.NoRoom {
		return false
	}
	if !r.awaitsDone(cur.part.ID) {
		r.forgets.add(cur.part.ID)
	}
	return true
}

// firstBlockSize is how much of a complete file is read to recognise it.
const firstBlockSize = 16 << 10

// filler fills the batches of a route. The first bytes of a complete file are read once, to
// recognise it and to fill a batch. A small file is therefore read with one system call.
type filler struct {
	lines.Filler
	of    *file  // the file that begins with block; nil: none
	block []byte // reused
}

// readFirst reads the first bytes of f and copies its head to head.
func (l *filler) readFirst(f *file, head []byte) ([]byte, error) {
	n := int(min(f.info.Size, firstBlockSize))
	l.of, l.block = nil, slices.Grow(l.block[:0], n)[:n]
	if err := f.readFull(l.block, 0); err != nil {
		return nil, err
	}
	l.of = f
	return head[:copy(head, l.block)], nil
}

// source returns the reader for f, which is not compressed.
func (l *filler) source(f *file) io.ReaderAt {
	if l.of == f {
		return l
	}
	return f.handle
}

// ReadAt implements io.ReaderAt for the file that begins with block.
func (l *filler) ReadAt(p []byte, off int64) (int, error) {
	if off >= 0 && off+int64(len(p)) <= int64(len(l.block)) {
		return copy(p, l.block[off:]), nil
	}
	return l.of.data().ReadAt(p, off)
}

// release forgets the block: the file may be changed from now on.
func (l *filler) release() { l.of = nil }
