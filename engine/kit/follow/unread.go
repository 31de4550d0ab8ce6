package follow

import (
	"path"
	"slices"
	"time"
)

// unreadMost is how long a file is held back at most because one that it may be a copy of cannot be
// read: then it is read as a new one, rather than never.
const unreadMost = 5 * time.Minute

// unread are files of earlier runs that could not be read yet, or were changed at each look, by the
// stems of their labels: which files they are is not known, nor which copies of them are.
type unread map[string][]*file

// noteUnread notes that f, which has just failed or was changed while it was read, may be a file of
// an earlier run.
func (r *Reader) noteUnread(f *file) {
	if r.grow == nil || !r.isKnown(f) {
		return
	}
	if r.rotated.unread == nil {
		r.rotated.unread = make(unread)
	}
	key := stem(f.label)
	if list := r.rotated.unread[key]; !slices.Contains(list, f) {
		r.rotated.unread[key] = append(list, f)
	}
}

// meetUnread recognises those that can be read, before any other file.
func (r *Reader) meetUnread() {
	var list []*file
	for key, files := range r.rotated.unread {
		files = slices.DeleteFunc(files, func(u *file) bool { return !r.isUnread(u) })
		if r.rotated.unread[key] = files; len(files) == 0 {
			delete(r.rotated.unread, key)
		}
		for _, u := range files {
			if u.trouble == nil && !u.empty() {
				list = append(list, u)
			}
		}
	}
	slices.SortFunc(list, byLabel)
	r.recognised(list)
}

// isUnread says whether u may be a file of an earlier run still. One that can be read is known to
// be none that was finished.
func (r *Reader) isUnread(u *file) bool {
	return r.byKey[keyOf(u.info)] == u && u.entry == nil && slices.ContainsFunc(r.knownAs(u), func(k knownID) bool {
		m, ok := r.resume(k.text)
		return ok && (u.trouble != nil || !m.Finished)
	})
}

// unreadKin says whether f, which begins with head, may be a copy of a file of an earlier run that
// cannot be read now: it has a name that may have been made from that one's, and begins as it did.
func (r *Reader) unreadKin(f *file, head []byte) bool {
	base := path.Base(f.label)
	for n := len(base); n > 0 && len(r.rotated.unread) > 0; n-- {
		key := base[:n]
		of := func(u *file) bool { return u != f && r.isUnread(u) && r.beganSo(u, head) }
		if slices.ContainsFunc(r.rotated.unread[key], of) {
			return true
		}
	}
	return false
}

// beganSo says whether u may be a file of an earlier run that began with head.
func (r *Reader) beganSo(u *file, head []byte) bool {
	for _, k := range r.knownAs(u) {
		m, ok := r.resume(k.text)
		if !ok {
			continue
		}
		if p := r.proofOf(m); p.Head > 0 {
			if len(head) < p.Head || p.FitsHead(head) {
				return true
			}
		} else if len(head) < k.id.Len || k.id.MatchHead(head) {
			return true
		}
	}
	return false
}

// holdUnread says whether f waits until a file can be read that it may be a copy of.
func (r *Reader) holdUnread(f *file) bool {
	now, a := r.s.now(), f.rare()
	a.asked = now
	if a.unread == 0 {
		a.unread = now + unreadMost
	}
	if now >= a.unread {
		a.restored = false
		r.s.log.Warn("a file begins as one does that cannot be read, and waits no longer: it is read from its beginning; what was read of "+
			"the other one comes twice if this is a copy of it", "file", f.label, "size", f.info.Size)
		r.count("files_doubtful", 1)
		return false
	}
	f.held = max(f.held, min(a.unread, now+packedWait))
	r.holding = max(r.holding, f.held)
	r.pace.dueAt(f.held)
	return true
}
