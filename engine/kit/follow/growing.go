package follow

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// onceWait is how long a reader with Once waits at most for a file without name, instead of
// GoneWait.
const onceWait = time.Second

// endOfGrowing says whether a file that may grow for ever is at its end: its name is gone, and it
// has not changed for long; a listing since then does not have it either.
func (r *Reader) endOfGrowing(f *file) ending {
	now := r.s.now()
	if f.orphan {
		if f.info.Links > 0 && r.isAway(f.label, f.info.Dev) {
			f.nameless = now // its name is with its folder
		}
		at := max(f.since, f.nameless) + r.goneWait() // what leads on from it may only be coming
		return ending{sealed: r.listed >= at, at: at} // it may have a name again that no listing has seen yet
	}
	wait := r.grow.PartialWait
	if wait <= 0 && f.view != nil {
		wait = r.goneWait() // nobody goes on with a line in what was compressed
	}
	if wait <= 0 {
		return ending{}
	}
	at := f.since + wait
	return ending{flush: now >= at, at: at}
}

func (r *Reader) goneWait() time.Duration {
	if r.o.Once {
		return min(onceWait, r.grow.GoneWait)
	}
	return r.grow.GoneWait
}

// readyGrowing is ready for files that may grow for ever: all that is there is read at once.
func (r *Reader) readyGrowing(f *file, now time.Duration) bool {
	if r.troubled(f, now) {
		return false
	}
	if f.orphan && !f.sealed && !r.reach(f, now) {
		return false
	}
	switch {
	case f.sealed:
		return f.changed()
	case f.empty() || f.view != nil && !r.rests(f):
		return false
	case f.entry == nil && f.info.Size == 0:
		if f.orphan {
			r.endEmpty(f, now)
		}
		return false
	case f.entry == nil && f.held > now:
		r.pace.dueAt(f.held)
		return r.askAgain(f, now)
	case f.entry == nil && r.recall(f):
		return false
	case f.info.Size != f.drained || f.changed():
		return true
	}
	at := r.endOfGrowing(f).at
	partial := f.partial()
	switch {
	case at == 0 || !f.orphan && !partial:
		return false
	case now >= at:
		return true
	}
	r.pace.dueAt(at)
	return false
}

// endEmpty gives up a file without name in which there is nothing, when its time is over.
func (r *Reader) endEmpty(f *file, now time.Duration) {
	if at := r.endOfGrowing(f).at; now < at {
		r.pace.dueAt(at)
		return
	}
	r.closeFile(f)
	delete(r.byKey, keyOf(f.info))
}

// reach stats a file without name by its handle; one beside that was closed is opened again, or
// waited for if its name is gone.
func (r *Reader) reach(f *file, now time.Duration) bool {
	if f.handle == nil && (!r.openFile(f) || f.handle == nil) {
		if f.trouble == nil {
			delete(r.byKey, keyOf(f.info))
			r.widow(f, "a rotated file is gone before it was read to its end")
		}
		return false
	}
	seen, err := f.handle.Stat()
	info := statOf(seen)
	switch {
	case err != nil:
		r.fail(f, err)
		return false
	case !sameFile(info, f.info):
		delete(r.byKey, keyOf(f.info))
		r.widow(f, "a rotated file is gone before it was read to its end")
		return false
	}
	f.saw(info, now)
	f.looked = now
	return true
}

// recall recognises a file of an earlier run, all of which was read, by its stat alone, so that a
// start need not open every file.
func (r *Reader) recall(f *file) bool {
	k, m, ok := r.recallable(f.info)
	if !ok || r.grow == nil && !m.Finished || r.rotated.byText(r, k.text) {
		return false
	}
	r.attach(f, r.s.know(k, f.name), m)
	f.drained, f.unread = f.info.Size, 0
	if r.grow != nil {
		r.shut = append(r.shut, f)
	}
	return true
}

// recallable finds what the route has stored of a file, if its stat alone proves that all of it was
// read.
func (r *Reader) recallable(info stat) (knownID, stream.Mark, bool) {
	if !info.Birth.known() {
		return knownID{}, stream.Mark{}, false
	}
	r.s.mu.Lock()
	known := r.known[keyOf(info)]
	r.s.mu.Unlock()
	var found knownID
	var mark stream.Mark
	for _, k := range known {
		if !isOf(k.id, info) {
			continue
		}
		if m, ok := r.wholeMark(k.text, info); ok && k.id.Certain() && found.text == "" {
			found, mark = k, m
		} else if m, ok := r.resume(k.text); ok && !m.Finished && r.grow != nil {
			return knownID{}, stream.Mark{}, false // what stood there before is waited for: who looks finds that out
		}
	}
	return found, mark, found.text != ""
}

// wholeMark returns the mark of an id if it says that all was delivered of a file that looks so.
func (r *Reader) wholeMark(text string, info stat) (stream.Mark, bool) {
	m, ok := r.resume(text)
	if !ok || len(m.Above) > 0 {
		return m, false
	}
	proof := r.proofOf(m)
	all := proof.At == info.Size
	if proof.Packed > 0 {
		all = proof.Packed == info.Size
	}
	return m, all && m.Watermark.Num == proof.At && proof.ModTime != 0 && proof.ModTime == int64(info.ModTime)
}

// know returns the entry of an id that the route has stored. What another route has found in its
// place stays. The entry is a reader's until it calls forget.
func (s *Set) know(k knownID, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.knowLocked(k.id, k.text)
	if there := s.byKey[e.id.Key()]; there == nil || there.dead {
		s.byKey[e.id.Key()] = e
	}
	e.refs++
	e.name = name
	return e
}

// proofOf is what a mark's note says; one that says nothing was reported when the marks were read.
func (r *Reader) proofOf(m stream.Mark) fileid.Proof {
	proof, _ := fileid.ParseProof(m.Note)
	return proof
}

// skipping says whether the file's beginning is to be left out, because the route starts at its end
// or a copy of it was read.
func (f *file) skipping() bool { return f.skipTo > f.cursor.Next }

// skip hands out a span without bytes: what it covers counts as settled. stay says that b has no
// room for it.
func (r *Reader) skip(b *stream.Batch, f *file) (stay, ok bool) {
	if len(b.Spans) >= lines.MaxSpans {
		return true, false
	}
	from := stream.Position{Num: f.cursor.Next}
	to := stream.Position{Num: f.skipTo}
	before := make([]byte, min(f.skipTo, fileid.MaxBefore))
	head, err := f.readHead(r.head[:])
	if err == nil {
		err = f.readFull(before, f.skipTo-int64(len(before)))
	}
	if err != nil {
		r.unreadNow(f, err)
		return false, false
	}
	if !r.s.idOf(f.entry).MatchHead(head) { // it was rewritten since it got its id
		r.doubt(f)
		return false, false
	}
	b.Spans = append(b.Spans, stream.Span{Part: f.part, Range: stream.Range{From: from, To: to}})
	f.cursor.Next = f.skipTo
	f.note.suffix = append(f.note.suffix[:0], before...)
	r.notes.set(f.note, f.note.proof.WithHead(head[:min(int64(len(head)), f.skipTo)]).WithPlace(f.skipTo, before))
	return false, true
}

// lastLine is where the last line of a file begins that has no end yet, or its size: a start at the
// end must not split a record.
func (f *file) lastLine(most int64, framing lines.Framing) (int64, error) {
	const step = 4096
	var buf [step]byte
	size := f.all()
	start := func(data []byte) int { return bytes.LastIndexByte(data, '\n') + 1 }
	end := size
	if w, ok := framing.(lines.Writer); ok {
		start, end = w.LineStart, size-size%2
	}
	for end > 0 {
		n := min(end, step)
		if err := f.readFull(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := start(buf[:n]); i > 0 {
			return end - n + int64(i), nil
		}
		if end -= n; size-end > most {
			return size, nil // it is longer than a record may be
		}
	}
	return 0, nil
}

// startAtEnd sets where a file that was there at the very first start is read from.
func (r *Reader) startAtEnd(f *file) bool {
	err := r.framingOf(f)
	framing := r.s.o.Rules.Framing
	if f.aside != nil && f.aside.framing != nil {
		framing = f.aside.framing
	}
	at := int64(0)
	if err == nil {
		at, err = f.lastLine(int64(r.s.o.Rules.MaxRecord), framing)
	}
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			r.pace.soon()
		} else {
			r.fail(f, err)
		}
		return false
	}
	f.skipTo, f.fromEnd = at, false
	return true
}
