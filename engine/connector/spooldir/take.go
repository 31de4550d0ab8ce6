package spooldir

import (
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/vfs"
)

// unreadable says how long a file that could not be read is left alone.
var unreadable = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second)

// take hands out what b takes of f. stay says that b is complete and that f, which has more, stays first in the queue.
func (r *reader) take(b *penstock.Batch, f *file) (stay bool) {
	if f.lost {
		return r.sealLost(b, f)
	}
	if !r.look(f) {
		return false
	}
	at, now := r.s.quietAt(f.info.ModTime, f.since)
	quiet := at <= now
	if f.entry == nil && !r.identify(f) || !r.verify(f) {
		return false
	}
	res, err := r.filler.Fill(b, &f.cursor, lines.File{ReaderAt: f.handle, Part: f.part, Size: f.info.Size, Sealed: quiet})
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.soon() // it has just become shorter: the next look says by how much
		return false
	case err != nil:
		r.fail(f, err)
		return false
	case res == lines.NoRoom:
		return true
	}
	f.remember(b)
	r.readable(f)
	if res == lines.Full {
		return true
	}
	f.unread, f.drained = 0, f.info.Size
	if quiet {
		r.seal(f)
	} else {
		r.dueAt(at)
	}
	return false
}

// sealLost hands out the seal of a file of which nothing more can be read.
func (r *reader) sealLost(b *penstock.Batch, f *file) (stay bool) {
	f.cursor.Above = nil
	res, err := r.filler.Fill(b, &f.cursor, lines.File{Part: f.part, Size: f.cursor.Next, Sealed: true})
	if err == nil && res == lines.NoRoom {
		return true
	}
	r.ghosts--
	r.release(f)
	return false
}

// lookSpacing is how long a stat of a file's handle is good for, far from its end.
const lookSpacing = 5 * time.Millisecond

// look opens f, if need be, and stats it by its handle. false: not now.
func (r *reader) look(f *file) bool {
	if f.handle == nil && !r.openFile(f) {
		return false
	}
	now := r.s.now()
	if now-f.looked < lookSpacing && f.info.Size-f.cursor.Next > 2*r.target {
		return true // its end is far off: who reads a large file need not stat it for each batch
	}
	info, err := f.handle.Stat()
	if err != nil {
		r.fail(f, err)
		return false
	}
	f.looked = now
	if !sameFile(info, f.info) {
		r.closeFile(f) // the name was given to another file since the listing
		r.soon()
		return false
	}
	f.saw(info, now)
	r.uses++
	f.used = r.uses
	return true
}

func (r *reader) openFile(f *file) bool {
	dir := r.s.dir
	if f.where == inMoved {
		dir = r.s.moved
	}
	var h vfs.File
	err := fs.ErrNotExist
	if f.where != nowhere {
		h, err = dir.Open(f.name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.soon() // the next listing says what has become of it
		return false
	case errors.Is(err, vfs.ErrNotRegular):
		r.refuse(f.name, err.Error())
		return false
	case err != nil:
		r.fail(f, err)
		return false
	}
	r.makeRoom()
	f.handle = h
	r.open = append(r.open, f)
	return true
}

// makeRoom closes the handle that was used longest ago when too many are open.
func (r *reader) makeRoom() {
	if len(r.open) < r.s.o.OpenFiles {
		return
	}
	oldest := r.open[0]
	for _, f := range r.open {
		if f.used < oldest.used {
			oldest = f
		}
	}
	if oldest.finished && oldest.sealed {
		r.unwatch(oldest)
		return
	}
	r.closeFile(oldest)
	if oldest.orphan || oldest.where == nowhere {
		r.lose(oldest, "too many files without a name are open; raise open_files")
	}
}

func (r *reader) closeFile(f *file) {
	for i, o := range r.open {
		if o == f {
			r.open[i] = r.open[len(r.open)-1]
			r.open = r.open[:len(r.open)-1]
			break
		}
	}
	if err := f.close(); err != nil {
		r.s.log.Warn("a file that was read could not be closed", "file", f.name, "error", err)
	}
}

// closeSealed closes a file that is sealed, unless only the handle leads to it.
func (r *reader) closeSealed(f *file) {
	if f.where != nowhere {
		r.closeFile(f)
	}
}

// identify finds out which file it is and where the route stands in it. false: there is nothing to be read.
func (r *reader) identify(f *file) bool {
	head, err := f.readHead(r.head[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		r.soon()
		return false
	} else if err != nil {
		r.fail(f, err)
		return false
	}
	seen := f.seen(head, true)
	f.entry = r.s.identify(r, seen, f.name)
	m, known := r.resume(f.entry.text)
	if high := highest(m); known && high > f.info.Size {
		r.s.log.Warn("a file is shorter than what was read of it in an earlier run; "+anew,
			"file", f.name, "size", f.info.Size, "read", high)
		r.s.h.Count("files_replaced", 1)
		r.s.kill(f.entry)
		r.release(f)
		f.entry = r.s.identify(r, seen, f.name)
		m, known = penstock.Mark{}, false
	}
	if f.finished {
		r.s.markDone(f.entry)
	}
	f.part = &penstock.Partition{ID: f.entry.text, Name: f.name}
	f.cursor = lines.Resume(m)
	f.checked, f.tailLen, f.stampAt, f.stampLen = true, 0, f.info.ModTime, f.info.Size
	switch {
	case known && m.Finished && f.cursor.Next < f.info.Size:
		r.grew(f)
	case known && m.Finished && r.s.o.Finished == finishedKeep:
		f.sealed, f.last = true, f.info.Size
		r.s.noteSealed(r, f)
		r.closeFile(f)
		return false
	}
	return true
}

func (r *reader) resume(id string) (penstock.Mark, bool) {
	if r.o.Resume == nil {
		return penstock.Mark{}, false
	}
	return r.o.Resume(id)
}

// highest is how far anything of a file was settled.
func highest(m penstock.Mark) int64 {
	high := m.Watermark.Num
	if n := len(m.Above); n > 0 {
		high = max(high, m.Above[n-1].To.Num)
	}
	return high
}

// anew says what becomes of a file that is not the one that it was.
const anew = "it is read anew, what was not read of the old one is gone"

// verify finds out whether what was handed out of f still stands in it. false: it is another file now, or cannot be read.
func (r *reader) verify(f *file) bool {
	switch {
	case f.info.Size < f.cursor.Next:
		r.replaced(f, "a file became shorter than what was read of it; "+anew)
		return false
	case r.s.isDead(f.entry):
		r.replaced(f, "a file was rewritten in place; "+anew)
		return false
	case !f.changed():
		return true
	}
	same, err := f.unchanged(r.head[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		r.soon()
		return false
	} else if err != nil {
		r.fail(f, err)
		return false
	}
	if !same {
		r.replaced(f, "a file was rewritten in place; "+anew)
		return false
	}
	if f.sealed && f.info.Size == f.last { // touched
		f.stampAt, f.stampLen = f.info.ModTime, f.info.Size
		r.closeSealed(f)
		return false
	}
	if f.sealed {
		r.grew(f)
	}
	return true
}

// grew notes that more came after a file had been sealed: it goes on as the same partition.
func (r *reader) grew(f *file) {
	f.sealed = false
	r.s.log.Warn("a file has grown after it counted as finished; the rest is delivered; a longer settle waits",
		"file", f.name, "finished_at", f.cursor.Next, "size", f.info.Size)
	r.s.h.Count("files_grown", 1)
	r.s.noteGrown(r, f)
}

// replaced makes f a new file under the same name and leaves the old one's seal to be handed out.
func (r *reader) replaced(f *file, what string) {
	if f.finished { // it was delivered; what others do with it is their business
		r.unwatch(f)
		return
	}
	if f.cursor.Next > 0 {
		r.s.log.Warn(what, "file", f.name, "read", f.cursor.Next, "size", f.info.Size)
		r.s.h.Count("files_replaced", 1)
	}
	r.s.kill(f.entry)
	ghost := &file{name: f.name, entry: f.entry, part: f.part, cursor: lines.Cursor{Next: f.cursor.Next}, lost: true}
	r.ghosts++
	now := r.s.now()
	*f = file{
		name: f.name, where: f.where, info: f.info, scan: f.scan, handle: f.handle, used: f.used, orphan: f.orphan,
		since: now, unread: now,
	}
	r.queue = append(r.queue, ghost)
	r.soon()
}

// lose gives a file up whose bytes cannot be reached any more.
func (r *reader) lose(f *file, why string) {
	if f.lost {
		return
	}
	r.s.log.Warn("a file is gone before it was read to its end",
		"file", f.name, "read", f.cursor.Next, "size_seen", f.info.Size, "reason", why)
	r.s.h.Count("files_vanished", 1)
	f.lost, f.sealed = true, false
	delete(r.byKey, keyOf(f.info))
	r.s.kill(f.entry)
	r.ghosts++
	r.queue = append(r.queue, f)
}

// seal notes that all of f was handed out.
func (r *reader) seal(f *file) {
	f.sealed, f.last = true, f.cursor.Next
	r.s.noteSealed(r, f)
	r.closeSealed(f)
	if f.finished {
		r.watchAgain(f)
	}
	if f.orphan {
		delete(r.byKey, keyOf(f.info))
		r.release(f)
	}
}

// fail reports that f cannot be read, once, and has it tried again later; the others go on.
func (r *reader) fail(f *file, err error) {
	wait, next, _ := unreadable.Next(f.failures, nil)
	f.failures, f.retryAt = next, r.s.now()+wait
	r.dueAt(f.retryAt)
	r.closeFile(f)
	if f.orphan || f.where == nowhere {
		r.lose(f, err.Error())
		return
	}
	if f.failed == nil {
		r.s.log.Warn("a file cannot be read; it is tried again, the others go on", "file", f.name, "error", err)
		r.s.h.Count("files_unreadable", 1)
	}
	f.failed = err
}

// readable notes that f was read.
func (r *reader) readable(f *file) {
	if f.failed != nil {
		r.s.log.Info("a file can be read again", "file", f.name, "after_failures", f.failures.N)
		f.failed, f.failures, f.retryAt = nil, backoff.State{}, 0
	}
}

// refuse reports, once for each name and reason, that something is not read.
func (r *reader) refuse(name, why string) {
	if r.refused[name] == why {
		return
	}
	r.refused[name] = why
	r.s.log.Warn("left alone", "file", name, "reason", why)
	r.s.h.Count("files_refused", 1)
}

// dueAt asks for a listing at a time, soon for one as early as may be.
func (r *reader) dueAt(at time.Duration) {
	if r.due == 0 || at < r.due {
		r.due = max(at, 1)
	}
}

func (r *reader) soon() { r.dueAt(1) }
