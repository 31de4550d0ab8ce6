package follow

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// unreadable is the backoff between attempts to read an unreadable file.
var unreadable = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second)

// quiet is the strategy for files that become complete: each is sealed when it has not changed for
// the configured time (Options.Settle).
type quiet struct{ c *Catalogue }

func (q *quiet) endOf(f *file) (ending, bool) {
	at, now := q.c.quietAt(f.info.ModTime, f.since)
	return ending{sealed: at <= now, at: at}, true
}

func (q *quiet) ready(r *Reader, f *file, now time.Duration) bool {
	c := q.c
	cur := f.by(r)
	switch {
	case c.unpacker.isTroubled(r, f, now), f.entry != nil && cur == nil:
		return false
	case cur != nil && cur.sealed:
		return cur.changed()
	case f.entry == nil && c.o.Keep && c.identify.recall(f):
		return false
	}
	at, now := c.quietAt(f.info.ModTime, f.since)
	if at <= now {
		return true
	}
	c.pace.dueAt(at)
	if f.view != nil { // it is read when it is whole
		return false
	}
	next, drained, unread, changed := int64(0), int64(0), f.unread, true
	if cur != nil {
		next, drained, unread, changed = cur.pos.Next, cur.drained, cur.unread, cur.changed()
	}
	if f.info.Size-max(next, drained) >= r.target {
		return true
	}
	if f.entry == nil && f.info.Size < fileid.MaxHead || f.info.Size <= drained && !changed {
		return false
	}
	if wait := unread + c.o.Settle; unread > 0 && wait > now {
		c.pace.dueAt(wait)
		return false
	}
	return true
}

func (q *quiet) mismatch(f *file, e *Entry, why string) {
	read := int64(0)
	for _, m := range q.c.identify.marks(e) {
		read = max(read, highest(m.mark))
	}
	q.c.ids.displace(e)
	q.c.ids.drop(e)
	q.c.log.Warn(why+rereading, "file", f.label, "size", f.info.Size, "read", read)
	q.c.count("files_replaced", 1)
}

func (q *quiet) resumed(cur *cursor, m stream.Mark) {
	f := cur.f
	if f.state == finished {
		q.c.ids.mu.Lock()
		cur.entry.done = true // an earlier run has finished it
		q.c.ids.mu.Unlock()
	}
	switch {
	case !m.Finished:
	case !cur.allRead():
		q.grew(cur)
	case q.c.o.Keep:
		cur.sealed, cur.last = true, f.info.Size
		q.c.ids.noteSealed(cur)
		q.c.closeSealed(f)
	}
}

func (q *quiet) nameGone(f *file) {
	c := q.c
	switch {
	case Finisher{c}.isStillThere(f):
	case f.entry == nil, f.all((*cursor).isSealed): // nothing of it was read, or all
		c.end(f)
	case f.handle != nil:
		f.state, f.nameless = f.state.on(losesName), c.now()
		c.log.Warn("a file was renamed or deleted while it was read; it is read to its end", "file",
			f.label, "read", f.read())
		c.count("files_orphaned", 1)
	default:
		c.lose(f, "its name is gone and it was not held open")
	}
}

func (q *quiet) rewritten(old *file, why string) {
	c := q.c
	if read := old.read(); read > 0 {
		c.log.Warn(why, "file", old.label, "read", read, "size", old.info.Size)
		c.count("files_replaced", 1)
	}
	for _, cur := range old.cursors {
		cur.r.lostCursors = append(cur.r.lostCursors, cur)
	}
	c.release(old)
}

func (q *quiet) grew(cur *cursor) {
	if cur.sealed = false; cur.last > 0 || cur.pos.Next > 0 {
		q.c.log.Warn("a file has grown after it counted as finished; the rest is delivered; "+
			"raise quiet_period to wait longer",
			"file", cur.f.label, "finished_at", cur.pos.Next, "size", cur.f.info.Size)
	}
	cur.r.count("files_grown", 1)
	q.c.ids.noteGrown(cur)
}

func (q *quiet) sealed(cur *cursor) {
	f := cur.f
	switch {
	case f.state == finished:
		q.c.watched.restartChecks(f)
	case f.state == nameless && f.all((*cursor).isSealed):
		q.c.end(f)
	}
}

func (q *quiet) listed(time.Duration) {
	if q.c.lister.searchStored {
		q.c.lister.searchStored = false
		q.c.dormant.missed()
		q.c.renumber()
		q.relocate()
	}
}
