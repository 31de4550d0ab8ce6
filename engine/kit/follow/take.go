package follow

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// unreadable says how long a file that could not be read is left alone.
var unreadable = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second)

// take hands out what b takes of f. stay says that b is complete and that f, which has more, stays
// first in the queue.
func (r *Reader) take(b *stream.Batch, f *file) (stay bool) {
	if f.lost {
		return r.sealLost(b, f)
	}
	defer r.filler.release()
	end, later, ok := r.establish(f)
	if !ok {
		return false
	}
	if f.skipping() {
		if stay, ok := r.skip(b, f); stay || !ok {
			return stay
		}
	}
	if f.touch {
		at := stream.Position{Num: f.cursor.Next}
		b.Spans = append(b.Spans, stream.Span{Part: f.part, Range: stream.Range{From: at, To: at}})
		f.touch = false
	}
	before, left := f.cursor.Next, f.left()
	res, ok := r.fillStanding(b, f, end, later)
	if !ok || res == lines.NoRoom {
		return ok
	}
	r.left -= left - f.left()
	if f.view == nil {
		r.remember(b, f, before)
	}
	r.readable(f)
	if res == lines.Full {
		return true
	}
	f.unread, f.drained = 0, f.info.Size
	f.flushed = end.flush && !f.partial()
	if r.broken(f) {
		return false
	}
	switch {
	case end.sealed:
		r.seal(f)
	case end.at > 0:
		r.pace.dueAt(end.at)
	}
	return false
}

// establish opens f, finds out which file it is and where it ends, and verifies that what was
// handed out stands in it. later reports that this is left until f was read. ok is false if nothing
// can be read of f now.
func (r *Reader) establish(f *file) (end ending, later, ok bool) {
	if !r.look(f) {
		return end, false, false
	}
	end, ok = r.endOf(f)
	if !ok || f.view != nil && !r.rests(f) {
		return end, false, false
	}
	later, known := r.provedLater(f, end), f.entry != nil
	if !known && !r.identify(f) || !r.verify(f, later) {
		return end, false, false
	}
	if !known && end.sealed && r.grow != nil { // what leads on from it is known only now
		if end, ok = r.endOf(f); !ok {
			return end, false, false
		}
	}
	return end, later, true
}

// ending says what is known of the end of a file.
type ending struct {
	sealed bool          // nothing will follow
	flush  bool          // the last record is handed out as it is, without its end
	at     time.Duration // when that may be so; 0: it will be noticed
}

// endOf says what is known of f's end; ok is false where a copy of it is read on in its place, or
// it had to be closed.
func (r *Reader) endOf(f *file) (end ending, ok bool) {
	if r.grow == nil {
		at, now := r.s.quietAt(f.info.ModTime, f.since)
		return ending{sealed: at <= now, at: at}, true
	}
	end = r.endOfGrowing(f)
	if !end.sealed || f.entry == nil {
		return end, true
	}
	e := f.entry
	end.sealed = !r.mayLead(f, r.s.now()) && !r.missed(f)
	return end, r.rotated.byEntry[e] == f && f.handle != nil
}

// identify finds out which file it is and where the route stands in it. false: there is nothing to
// be read.
func (r *Reader) identify(f *file) bool {
	head, err := r.firstHead(f)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		r.pace.soon()
		return false
	} else if err != nil {
		r.fail(f, err)
		return false
	}
	if f.view != nil && (!r.rests(f) || r.nothing(f, head)) {
		return false
	}
	if r.grow != nil {
		head = slices.Clone(head) // comparing files uses the buffer again
		r.displaced(f, f.seen(head, true))
	}
	for {
		e := r.s.find(r, f.seen(head, true), f.name)
		if known := e != nil && r.knows(e); !known || r.foundByOthers(f, e) {
			if done, read := r.metFirst(f, head); done {
				if e != nil {
					r.s.forget(r, e)
				}
				return read
			}
			if e == nil {
				if e = r.s.give(r, f.seen(head, true), f.name); e == nil {
					continue // another route has just met it
				}
			}
			if !known {
				r.attach(f, e, stream.Mark{})
				return f.entry != nil && !f.sealed
			}
		}
		ok, err := r.recognise(f, e, head)
		if err != nil {
			r.s.forget(r, e)
			r.unreadNow(f, err)
			return false
		}
		if !ok {
			continue
		}
		if err := r.proveAnew(f, head); err != nil {
			r.unreadNow(f, err)
			return false
		}
		return f.entry != nil && !f.sealed
	}
}

// knows says whether the route has read anything of e's file, or stored a mark of it; else only
// other routes know it.
func (r *Reader) knows(e *Entry) bool {
	_, known := r.resume(e.text)
	return known || r.rotated.byEntry[e] != nil || r.rotated.widows[e] != nil
}

// foundByOthers says whether the route had done with e's file for good before the start, and only
// other routes know that f holds its data: this one may have read that as another file's, which
// comes first.
func (r *Reader) foundByOthers(f *file, e *Entry) bool {
	m, _ := r.resume(e.text)
	if r.grow == nil || !m.Finished || r.rotated.byEntry[e] != nil || r.rotated.widows[e] != nil {
		return false
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return !slices.ContainsFunc(r.known[keyOf(f.info)], func(k knownID) bool { return k.text == e.text })
}

// metFirst finds out where the route begins in a growing file that is new to it, whatever other
// routes know of it. done says that it is not to be taken as a new one, read that there is
// something to be read of it now.
func (r *Reader) metFirst(f *file, head []byte) (done, read bool) {
	switch {
	case r.grow == nil:
		return false, false
	case r.rotated.meeting: // when those that are known have been met
		return true, false
	case len(head) == 0:
		return true, false // there is nothing to know it by, and nothing to be read
	}
	if done, read := r.copied(f, head); done {
		return true, read
	}
	return f.fromEnd && !r.startAtEnd(f), false
}

// recognise makes f the file of e, which it seems to be by stat and head, if what the route has
// stored of e stands in it. false: it does not, and e is not the file's any more.
func (r *Reader) recognise(f *file, e *Entry, head []byte) (bool, error) {
	if g := r.rotated.byEntry[e]; g != nil && g != f { // another route has seen that the data moved
		if w := r.rotated.widows[e]; w == nil {
			r.replaced(g, "a file was copied away and rewritten in place; the copy is read on")
		}
	}
	if w := r.rotated.widows[e]; w != nil {
		if f.view != nil { // how much of it there is may not be known yet
			r.s.forget(r, e)
			r.adopt(f, w)
			return true, nil
		}
		if f.beingMade(w) {
			return false, io.ErrUnexpectedEOF // it is looked at again
		}
		ok, err := r.leadOn(f, w, head)
		if err != nil {
			return false, err
		}
		if !ok {
			r.meetApart(f, w, head)
		}
		r.s.forget(r, e) // the widow's is taken over
		return true, nil
	}
	m, known := r.resume(e.text)
	why := ""
	if high := highest(m); known && high > f.holds(high) {
		why = "a file is shorter than what was read of it in an earlier run; "
	} else if proof := r.proofOf(m); known {
		n, off, end := proof.Wants()
		if most := max(int64(n), end); most > f.holds(most) {
			why = "a file is shorter than what was read of it in an earlier run; "
		} else if ok, err := f.fits(proof, head, r.head[len(r.head)-int(end-off):]); err != nil {
			return false, err
		} else if !ok {
			why = "a file was rewritten in place since an earlier run; "
		}
	}
	if why == "" {
		r.attach(f, e, m)
		return true, nil
	}
	r.s.kill(e, f.info)
	if r.grow != nil {
		r.widowOf(e, m, r.s.isDead(e), why+anew)
		return false, nil
	}
	r.s.forget(r, e)
	r.s.log.Warn(why+anew, "file", f.label, "size", f.info.Size, "read", highest(m))
	r.count("files_replaced", 1)
	return false, nil
}

// meetApart meets a file where another route has seen the data of the widow w go, and in which it
// does not stand as this route has read it. What this route knows of the data, it knows by another
// file, if at all.
func (r *Reader) meetApart(f, w *file, head []byte) {
	if done, _ := r.metFirst(f, head); done {
		return
	}
	if w.blank() && r.rotated.widows[w.entry] == w && r.s.standsAt(w.entry, f.info) {
		r.adopt(f, w)
		return
	}
	r.attach(f, r.s.giveOwn(f.seen(head, true), f.name), stream.Mark{})
}

// proveAnew makes the proof of a file that grows, of which the checkpoint has none for where it
// stands: a sink's own ledger, which is ahead of it, or a hand, has said how far that is. Without
// one nothing would lead on from it once it is copied away.
func (r *Reader) proveAnew(f *file, head []byte) error {
	at := f.cursor.Next
	if r.grow == nil || f.entry == nil || f.view != nil || f.note.proof.At == at || at > f.info.Size {
		return nil
	}
	before := make([]byte, min(at, fileid.MaxBefore))
	if err := f.readFull(before, at-int64(len(before))); err != nil {
		return err
	}
	f.note.suffix = append(f.note.suffix[:0], before...)
	r.notes.set(f.note, f.note.proof.WithHead(head[:min(int64(len(head)), at)]).WithPlace(at, before))
	return nil
}

// attach makes f the file of e, from m on.
func (r *Reader) attach(f *file, e *Entry, m stream.Mark) {
	f.entry, f.skipped = e, false
	if f.finished {
		r.s.markDone(e)
	}
	f.part = &stream.Partition{ID: e.text, Name: f.partName()}
	f.cursor = lines.Resume(m)
	f.note = r.notes.begin(e.text, r.proofOf(m))
	if id, err := fileid.Parse(e.text); err == nil && !isOf(id, f.info) && f.note.proof.Moved != keyOf(f.info) {
		r.notes.move(f.note, f.seen(nil, false), true) // as another route has found
		f.touch = m.Part.ID != ""
	}
	f.stamp()
	r.rotated.add(r, f)
	switch {
	case m.Finished && !f.allRead():
		r.grew(f)
	case m.Finished && r.s.o.Keep && !f.beside:
		f.sealed, f.last = true, f.info.Size
		r.s.noteSealed(r, f)
		r.closeFile(f)
	}
}

func (r *Reader) resume(id string) (stream.Mark, bool) {
	if r.o.Resume == nil {
		return stream.Mark{}, false
	}
	return r.o.Resume(id)
}

// anew says what becomes of a file that is not the one that it was.
const anew = "it is read anew, what was not read of the old one is gone"

// verify finds out whether what was handed out of f still stands in it, unless that is looked at
// later. false: it is another file now, or cannot be read.
func (r *Reader) verify(f *file, later bool) bool {
	switch {
	case f.shorter():
		r.replaced(f, "a file became shorter than what was read of it; "+anew)
		return false
	case !r.s.standsAt(f.entry, f.info):
		r.replaced(f, "a file was rewritten in place; "+anew)
		return false
	case !f.changed(), later:
		return true
	}
	return r.stands(f)
}

// stands is verify for a file that was changed.
func (r *Reader) stands(f *file) bool {
	same, err := f.unchanged(r.s.idOf(f.entry), r.head[:], &r.notes)
	if err != nil {
		r.unreadNow(f, err)
		return false
	}
	if !same {
		r.replaced(f, "a file was rewritten in place; "+anew)
		return false
	}
	if f.sealed && f.info.Size == f.last { // touched
		f.stamp()
		r.closeSealed(f)
		return false
	}
	if f.sealed {
		r.grew(f)
	}
	return true
}

// unreadNow deals with an error of reading: a file that has just become shorter is looked at again
// soon.
func (r *Reader) unreadNow(f *file, err error) {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		r.pace.soon()
		return
	}
	r.fail(f, err)
}

// batchEnd is how much a batch held.
type batchEnd struct {
	data, spans, origins, added int
	last                        stream.Span
}

func batchLen(b *stream.Batch) batchEnd {
	e := batchEnd{data: len(b.Data), spans: len(b.Spans), origins: b.Origins, added: b.Added}
	if e.spans > 0 {
		e.last = b.Spans[e.spans-1]
	}
	return e
}

// restore takes out again what was added since.
func (e batchEnd) restore(b *stream.Batch) {
	b.Data, b.Spans, b.Origins, b.Added = b.Data[:e.data], b.Spans[:e.spans], e.origins, e.added
	if e.spans > 0 {
		b.Spans[e.spans-1] = e.last
	}
}

// highest is how far anything of a file was settled.
func highest(m stream.Mark) int64 {
	high := m.Watermark.Num
	if n := len(m.Above); n > 0 {
		high = max(high, m.Above[n-1].To.Num)
	}
	return high
}
