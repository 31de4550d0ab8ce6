package follow

import (
	"maps"
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// outcome is the result of looking at an unlisted file.
type outcome uint8

const (
	continuesNone outcome = iota
	continuesOne          // it is followed from now on
	undecided             // it was renamed since, is still being written, or cannot be read
)

// searchUnlisted looks for the data of awaiting files, which have lost their names or their
// contents. In the directories of these files, it looks at unlisted files (those that the source
// does not read). It also finds compressed files that hold the data of deleted ones.
func (t *rotation) searchUnlisted(deleted []*file) {
	c := t.c
	waiting := len(t.awaiting) + len(deleted)
	t.undecided = false
	dirs := make(map[string]string)
	// several awaiting files may have had the same reused inode
	byKey := make(map[fileid.Key][]*file)
	for _, w := range t.sortedAwaiting() {
		dirs[path.Dir(w.label)] = w.label
		if t.isInPlace(w) || w.extras.unseen {
			key := t.inodeOf(w)
			byKey[key] = append(byKey[key], w)
		}
	}
	for _, f := range deleted {
		dirs[path.Dir(f.label)] = f.label
	}
	var listed []Listed
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		label := dirs[dir]
		err := c.o.Growing.Siblings(label, func(s Listed) {
			key := keyOf(statOf(s.Info))
			was, seen := t.tried[key]
			known := c.table.byKey[key] != nil || c.dormant.table.byKey[key] != nil
			if !known && !(seen && was == tried{s.Info.Size, s.Info.ModTime, waiting, nil}) {
				listed = append(listed, s)
			}
		})
		if err != nil {
			c.log.Debug("a directory cannot be searched for rotated files", "file", label, "error",
				err)
		}
	}
	// the awaiting file itself before copies of it
	slices.SortStableFunc(listed, func(a, b Listed) int {
		return len(byKey[keyOf(statOf(b.Info))]) - len(byKey[keyOf(statOf(a.Info))])
	})
	for _, s := range listed {
		info := statOf(s.Info)
		key, f := keyOf(info), newFile(s, info, c.now(), c.table.scans)
		f.state, f.foundEmpty, f.trouble = unlisted, true, t.tried[key].trouble
		switch t.tryUnlisted(f, s, byKey[key]) {
		case continuesNone:
			t.tried[key] = tried{s.Info.Size, s.Info.ModTime, waiting, nil}
		case undecided:
			t.undecided = true
			t.tried[key] = tried{size: s.Info.Size, trouble: f.trouble}
		}
	}
}

// unreadable looks for an awaiting file that has another name and unread data, but cannot be read.
// It returns the file's label and the error of the last attempt to read it. The error is nil if
// there is no such file.
func (t *rotation) unreadable() (label string, err error) {
	for _, w := range t.sortedAwaiting() {
		found := t.tried[t.inodeOf(w)]
		if found.trouble != nil && t.isInPlace(w) && found.size > w.read() {
			return w.label, found.trouble.last
		}
	}
	return "", nil
}

// isInPlace reports whether the inode of an awaiting file is not known to hold other data.
func (t *rotation) isInPlace(w *file) bool {
	return w.entry == nil || w.entry.phase == known
}

// is reports whether the unlisted file s is the awaiting file w itself, under another name, rather
// than a copy of it. Only the stat of s is compared.
func (t *rotation) is(w *file, s Listed) bool {
	if w.entry == nil {
		return sameFile(w.info, statOf(s.Info))
	}
	return IsOf(w.entry.id, s.Info)
}

// tryUnlisted follows the unlisted file f if it continues an awaiting file, which has lost its name
// or its content. It also follows f if f is an awaiting file that was rewritten (see isRewritten).
// The parameter at lists the awaiting files that had the inode of f.
func (t *rotation) tryUnlisted(f *file, s Listed, at []*file) outcome {
	c := t.c
	if c.table.byKey[keyOf(f.info)] != nil {
		return continuesNone // it was followed by another name meanwhile, a hard link
	}
	same := slices.DeleteFunc(slices.Clone(at), func(w *file) bool {
		return w.state != awaiting || !t.is(w, s)
	})
	if slices.ContainsFunc(same, func(w *file) bool { return w.label == s.Label }) {
		return continuesNone // it is no longer wanted, or will be listed again
	}
	inPlace := slices.DeleteFunc(slices.Clone(same), func(w *file) bool { return !t.isInPlace(w) })
	result := continuesNone
	if len(inPlace) > 0 || s.Info.Size > 0 && t.hasRelated(f) {
		result = t.recogniseUnlisted(f, inPlace)
	}
	if result != continuesOne && t.isRewritten(f, same, result) {
		f.nameless, f.ensureExtras().listed = c.now(), same[0].label
		for _, w := range same {
			c.ids.displace(w.entry)
		}
		result = continuesOne
	}
	if result != continuesOne {
		c.handles.close(f)
		f.dropView()
		return result
	}
	c.table.add(f)
	c.pace.soon()
	return result
}

// recogniseUnlisted makes the unlisted file f the successor of an awaiting file (one that has lost
// its name or its content) if f has its data. The parameter same lists the awaiting files that had
// the inode of f, and the first suitable one is used. If the list is empty, f may be a copy of an
// awaiting file with a related name.
func (t *rotation) recogniseUnlisted(f *file, same []*file) outcome {
	c := t.c
	if !c.handles.refresh(f) {
		for _, w := range same { // it is not given up while its file cannot be read
			if f.trouble != nil {
				w.heldUntil = max(w.heldUntil, c.now()+c.o.Growing.CopyWait)
			}
		}
		return undecided
	}
	c.handles.readable(f)
	head, err := c.unpacker.firstHead(f, nil)
	if err != nil {
		return undecided
	}
	head = slices.Clone(head)
	if len(same) == 0 {
		return t.continueRelated(f, head)
	}
	var unread *file // was renamed out of the listing before anything of it was read
	for _, w := range same {
		if w.entry == nil {
			unread = w
			continue
		}
		if f.holds(w.read()) < w.read() {
			continue
		}
		if ok, err := f.fits(w.fingerprint(), head, c.head[fileid.MaxHead:]); err != nil {
			return undecided
		} else if ok {
			c.copies.adopt(f, w)
			return continuesOne
		}
	}
	if w := unread; w != nil {
		for _, o := range same { // f has none of their data
			if o.entry != nil {
				c.ids.displace(o.entry)
			}
		}
		t.unwait(w)
		w.state = w.state.on(ends)
		f.firstScan, f.foundEmpty, f.ensureExtras().listed = w.firstScan, w.foundEmpty, w.partName()
		return continuesOne
	}
	return continuesNone
}

// isRewritten reports whether f, an unlisted file, certainly was each of the awaiting files in the
// list same, but no longer has their read data. This happens if the file was emptied, written to
// and renamed between two listings. The parameter result is the result of recogniseUnlisted.
func (t *rotation) isRewritten(f *file, same []*file, result outcome) bool {
	for _, w := range same {
		if w.entry == nil || !w.extras.unseen || !f.info.Birth.known() {
			return false
		}
		id, p := w.entry.id, w.fingerprint()
		if id.Key() != w.entry.given || id.Birth != int64(f.info.Birth) {
			return false
		}
		// its data may still be in f
		if t.isInPlace(w) && (f.handle == nil || result == undecided || p.At == 0 || p.Packed > 0) {
			return false
		}
	}
	return len(same) > 0
}

// continueRelated makes f the successor of an awaiting or deleted file (see isDeletedUnread) with a
// related name, such as app.log for app.log.1. f must contain the data that was read of that file.
// For an awaiting file, the beginning of this data is enough (see continueFrom).
func (t *rotation) continueRelated(f *file, head []byte) outcome {
	k, v := &t.c.copies, verdict{unlisted: true}
	for _, e := range k.relatedEntries(f, head) {
		if awaited(e) == nil && !t.isDeletedUnread(e.file) {
			continue
		}
		if done, _ := k.compare(f, e, head, &v); done && f.entry == nil {
			return undecided
		} else if done {
			return continuesOne
		}
	}
	if v.continued == nil {
		return continuesNone
	}
	k.begin(f, v.continued)
	return continuesOne
}

// isDeletedUnread reports whether f lost its name at least CopyWait ago, and is still open because
// a route has not read all of it.
func (t *rotation) isDeletedUnread(f *file) bool {
	if f.state != nameless || f.entry == nil || f.handle == nil || f.view != nil {
		return false
	}
	long := t.c.now() >= f.nameless+t.c.o.Growing.CopyWait
	return long && f.isDeleted() && f.left() > 0
}

func (t *rotation) deletedUnread() (out []*file) {
	for _, f := range t.c.table.byKey {
		if t.isDeletedUnread(f) {
			out = append(out, f)
		}
	}
	return out
}

// hasRelated reports whether f's name may be derived from the name of a file with an id.
func (t *rotation) hasRelated(f *file) bool {
	base := path.Base(f.label)
	for n := len(base); n > 0; n-- {
		if len(t.stems[base[:n]]) > 0 {
			return true
		}
	}
	return false
}

// lateMost is the maximum additional time for which a nameless or awaiting file waits after its
// normal waiting time. It applies while another file may still be the successor (see
// mayHaveSuccessor).
const lateMost = 10 * packedWait

// mayHaveSuccessor reports whether one of the listed files may be the successor of w. The file w is
// nameless or awaits a successor, and its waiting time is over. In a catalogue with many files, the
// successor may have been listed in time, but not read yet, and may have another name by now.
// Candidates are therefore read now, by their names in this listing. If a candidate is still being
// compressed, or is held back, mayHaveSuccessor returns true, for at most the time lateMost. A
// candidate that is the successor takes over w.
func (t *rotation) mayHaveSuccessor(w *file, now time.Duration) bool {
	c := t.c
	var list []*file
	id := w.entry.id
	for _, f := range c.table.byKey {
		if f.isUnidentified() && (t.isRelated(f, w.label) || isOf(id, f.info)) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, byLabel)
	for _, f := range list {
		if f.isUnidentified() && c.table.has(f) && c.handles.refresh(f) && f.entry == nil {
			c.identify.file(f, nil)
		}
	}
	if !slices.ContainsFunc(list, (*file).isUnidentified) && !t.isUnreadIn(w, id) && !t.undecided {
		return false
	}
	a := w.ensureExtras()
	if a.until == 0 {
		a.until = now + lateMost
	}
	c.pace.dueAt(min(a.until, now+packedWait))
	return now < a.until
}

// isUnreadIn reports whether the awaiting file w is still needed to recognise the file in which w
// was rewritten in place. w is needed while some route has read nothing of the new content: this
// route has no mark of the new content. If the file then gets an unlisted name, the next process
// can find it only by the inode in the route's mark of w.
func (t *rotation) isUnreadIn(w *file, id fileid.ID) bool {
	f := t.c.table.byKey[id.Key()]
	return w.state == awaiting && w.entry.phase != known && f != nil &&
		isOf(id, f.info) && f.isUnreadBySome() &&
		(f.isUnlisted() || f.info.Size > 0 || f.isMovedOrGrown())
}

// isMovedOrGrown reports whether a file that was empty when it was listed has data or another name
// by now.
func (f *file) isMovedOrGrown() bool {
	if f.dir == nil {
		return false
	}
	seen, err := f.dir.Stat(f.name)
	return err != nil || seen.Size > 0 || !sameFile(statOf(seen), f.info)
}
