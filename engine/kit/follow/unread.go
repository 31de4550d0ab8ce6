package follow

import "slices"

// addUnread notes that f, which has just failed or was changed while it was read, may be a file of
// an earlier run. Its possible copies are held back meanwhile.
func (t *rotation) addUnread(f *file) {
	if t.c.strategy.grows() && t.c.identify.isKnown(f) {
		t.unread[f] = true
	}
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
		if !t.isUnread(u) {
			delete(t.unread, u)
		} else if u != f && t.isRelated(f, u.label) && t.beganSo(u, head) {
			return true
		}
	}
	return false
}

// beganSo reports whether u may be a file of an earlier run that began with head.
func (t *rotation) beganSo(u *file, head []byte) bool {
	for _, e := range t.c.identify.knownAs(u) {
		id := e.id
		begins := func(m storedMark) bool { return mayBeginAs(id, fingerprintOf(m.mark), head) }
		if slices.ContainsFunc(t.c.identify.marks(e), begins) {
			return true
		}
	}
	return false
}
