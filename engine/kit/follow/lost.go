package follow

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// sealLost hands out the seal of a file of which nothing more can be read. By its mark the copy
// that leads on from it is known until that one has a mark of its own: so what was read of it is
// skipped in the copy first.
func (r *Reader) sealLost(b *stream.Batch, f *file) (stay bool) {
	if f.aside != nil && f.aside.copy != nil {
		stay, ok := r.skipIn(b, f.aside.copy)
		if stay {
			return true
		}
		if !ok {
			r.seals = append(r.seals, f)
			return false
		}
	}
	f.cursor.Above = nil
	res, err := r.filler.Fill(b, &f.cursor, lines.File{Part: f.part, Size: f.cursor.Next, Sealed: true})
	if err == nil && res == lines.NoRoom {
		return true
	}
	r.ghosts--
	r.gone.now(f.part.ID)
	r.release(f)
	return false
}

// skipIn is skip for a file whose turn may not have come yet. ok says that there is nothing left to
// be skipped.
func (r *Reader) skipIn(b *stream.Batch, f *file) (stay, ok bool) {
	there := func() bool { return f.skipping() && !f.lost && r.byKey[keyOf(f.info)] == f }
	if there() && r.look(f) && r.verify(f, false) {
		return r.skip(b, f)
	}
	return false, !there()
}

// lose gives a file up whose bytes cannot be reached any more.
func (r *Reader) lose(f *file, why string) {
	if f.lost {
		return
	}
	if f.entry == nil {
		r.closeFile(f)
		if key := keyOf(f.info); r.byKey[key] == f {
			delete(r.byKey, key)
		}
		r.vanished(f)
		return
	}
	unread := f.left()
	if r.grow == nil || unread > 0 && !f.skipped {
		r.s.h.Fault(fmt.Errorf("file %q is gone before it was read to its end, %d of %d bytes are lost: %s",
			f.label, unread, f.info.Size, why))
		r.count("files_vanished", 1)
		r.count("bytes_vanished", unread)
	}
	r.closeFile(f)
	r.rotated.drop(f)
	f.lost, f.sealed = true, false
	if key := keyOf(f.info); r.byKey[key] == f {
		delete(r.byKey, key)
	}
	r.s.end(r, f.entry)
	r.ghosts++
	r.queue = append(r.queue, f)
}

// rewritten reports a file whose bytes were replaced, and how many of them were not read, as far as
// that was seen.
func (r *Reader) rewritten(w *file) {
	r.count("files_replaced", 1)
	lost := max(w.aside.shrunk, w.aside.glimpse.At) - w.cursor.Next
	if lost <= 0 {
		r.s.log.Warn(w.aside.why, "file", w.label, "read", w.cursor.Next)
		return
	}
	r.s.h.Fault(fmt.Errorf("file %q was rewritten before it was read to its end, %d bytes are lost", w.label, lost))
	r.count("bytes_vanished", lost)
}

// vanished reports that a file is gone of which nothing was read.
func (r *Reader) vanished(f *file) {
	if f.info.Size == 0 {
		return
	}
	r.s.h.Fault(fmt.Errorf("file %q is gone before anything of it was read, %d bytes are lost", f.label, f.info.Size))
	r.count("files_vanished", 1)
	r.count("bytes_vanished", f.info.Size)
}

// fail reports that f cannot be read, once, and has it tried again later; the others go on.
func (r *Reader) fail(f *file, err error) {
	t := &trouble{}
	if f.trouble != nil {
		t = f.trouble
	}
	wait, next, _ := unreadable.Next(t.failures, nil)
	t.failures, t.retryAt = next, r.s.now()+wait
	r.pace.dueAt(t.retryAt)
	r.closeFile(f)
	if f.entry != nil && (f.orphan && !f.beside || f.dir == nil) {
		r.lose(f, err.Error())
		return
	}
	if f.trouble == nil {
		r.s.log.Warn("a file cannot be read; it is tried again, the others go on", "file", f.label, "error", err)
		r.count("files_unreadable", 1)
	}
	t.last = err
	f.trouble = t
	r.noteUnread(f)
}

// readable notes that f was read.
func (r *Reader) readable(f *file) {
	if f.trouble != nil {
		r.s.log.Info("a file can be read again", "file", f.label, "after_failures", f.trouble.failures.N)
		f.trouble = nil
	}
}

// refuse reports, once for each label and reason, that something is not read.
func (r *Reader) refuse(label, why string) {
	if r.refused[label] == why {
		return
	}
	r.refused[label] = why
	r.s.log.Warn("left alone", "file", label, "reason", why)
	r.count("files_refused", 1)
}
