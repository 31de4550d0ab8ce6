package follow

import (
	"maps"
	"slices"
	"time"
)

// unreadMost is the longest time for which a file is held back because its possible original cannot
// be read. After that it is read as a new file.
const unreadMost = 5 * time.Minute

// addUnread notes that f, which has just failed or was changed while it was read, may be a file of
// an earlier run.
func (t *rotation) addUnread(f *file) {
	if t.c.strategy.grows() && t.c.identify.isKnown(f) {
		t.unread[f] = true
	}
}

// recogniseUnreadable recognises, before any other file, those unreadable files of earlier runs
// (unread) that can be read now.
func (t *rotation) recogniseUnreadable() {
	maps.DeleteFunc(t.unread, func(u *file, _ bool) bool { return !t.isUnread(u) })
	list := slices.SortedFunc(maps.Keys(t.unread), byLabel)
	list = slices.DeleteFunc(list, func(u *file) bool { return u.trouble != nil || u.isEmpty() })
	t.c.identify.recogniseAll(list)
}

// isUnread reports whether u may still be a file of an earlier run that a route has to read. If u
// is readable, a file that all routes have finished does not count.
func (t *rotation) isUnread(u *file) bool {
	return t.c.table.has(u) && u.entry == nil && slices.ContainsFunc(t.c.identify.knownAs(u), func(e *Entry) bool {
		return slices.ContainsFunc(t.c.identify.marks(e), func(m storedMark) bool {
			return u.trouble != nil || !m.mark.Finished
		})
	})
}

// hasUnreadRelated reports whether f, which begins with head, may be a copy of a file of an earlier
// run that cannot be read now: its name may be derived from that file's name, and both begin alike.
func (t *rotation) hasUnreadRelated(f *file, head []byte) bool {
	for u := range t.unread {
		if u != f && t.isRelated(f, u.label) && t.isUnread(u) && t.beganSo(u, head) {
			return true
		}
	}
	return false
}

// beganSo reports whether u may be a file of an earlier run that began with head.
func (t *rotation) beganSo(u *file, head []byte) bool {
	for _, e := range t.c.identify.knownAs(u) {
		id := t.c.ids.idOf(e)
		begins := func(m storedMark) bool { return mayBeginAs(id, fingerprintOf(m.mark), head) }
		if slices.ContainsFunc(t.c.identify.marks(e), begins) {
			return true
		}
	}
	return false
}

// holdUnread reports whether f waits because its possible original cannot be read.
func (k *copies) holdUnread(f *file) bool {
	now, a := k.c.now(), f.ensureExtras()
	a.compared = now
	if a.unread == 0 {
		a.unread = now + unreadMost
	}
	if now >= a.unread {
		a.restored = false
		k.c.log.Warn("a file begins as one does that cannot be read, and waits no longer: it is "+
			"read from its beginning; what was read of "+
			"the other one comes twice if this is a copy of it", "file", f.label, "size", f.info.Size)
		k.c.count("files_doubtful", 1)
		return false
	}
	f.held = max(f.held, min(a.unread, now+packedWait))
	k.until = max(k.until, f.held)
	k.c.pace.dueAt(f.held)
	return true
}
