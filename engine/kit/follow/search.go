package follow

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// searchUnlisted looks in the directories of awaiting and missing files for unlisted files
// that continue them. It also finds compressed files that hold the data of deleted ones.
func (t *rotation) searchUnlisted(deleted []*file) {
	c := t.c
	waiting := len(t.awaiting) + len(t.missing) + len(deleted)
	t.undecided = false
	dirs := make(map[string]string)
	// several awaiting files may have had the same reused inode
	byKey := make(map[fileid.Key][]*file)
	for _, w := range t.inOrder() {
		dirs[path.Dir(w.label)] = w.label
		if c.ids.phaseOf(w.entry) == known || w.extras.unseen {
			id := c.ids.idOf(w.entry)
			byKey[id.Key()] = append(byKey[id.Key()], w)
		}
	}
	for _, f := range t.missing {
		dirs[path.Dir(f.label)] = f.label
		byKey[keyOf(f.info)] = append(byKey[keyOf(f.info)], f)
	}
	for _, f := range deleted {
		dirs[path.Dir(f.label)] = f.label
	}
	var sights []Sight
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		label := dirs[dir]
		err := c.place.Siblings(label, func(s Sight) {
			key := keyOf(statOf(s.Info))
			was, seen := t.tried[key]
			known := c.table.byKey[key] != nil || c.dormant.table.get(key) != nil
			if !known && !(seen && was == tried{s.Info.Size, s.Info.ModTime, waiting}) {
				sights = append(sights, s)
			}
		})
		if err != nil {
			c.log.Debug("a directory cannot be searched for rotated files", "file", label, "error",
				err)
		}
	}
	// the awaiting file itself before copies of it
	slices.SortStableFunc(sights, func(a, b Sight) int {
		return len(byKey[keyOf(statOf(b.Info))]) - len(byKey[keyOf(statOf(a.Info))])
	})
	for _, s := range sights {
		all := slices.DeleteFunc(slices.Clone(byKey[keyOf(statOf(s.Info))]), func(w *file) bool { return !t.is(w, s) })
		same := slices.DeleteFunc(slices.Clone(all), func(w *file) bool {
			return w.entry != nil && c.ids.phaseOf(w.entry) != known
		})
		if len(same) == 0 {
			same = append(same, nil)
		}
		found, decided := t.continuesAny(s, same)
		if found || t.rewrittenAway(s, all) {
			continue
		}
		if decided {
			t.tried[keyOf(statOf(s.Info))] = tried{s.Info.Size, s.Info.ModTime, waiting}
		}
		t.undecided = t.undecided || !decided
	}
}

// continuesAny calls continues for each of same until the file of s continues one of them.
func (t *rotation) continuesAny(s Sight, same []*file) (found, decided bool) {
	decided = true
	for _, w := range same {
		yes, known := t.continues(s, w)
		if yes {
			return true, true
		}
		decided = decided && known
	}
	return false, decided
}

// is reports whether, by its stat, an unlisted file is the aawaiting file w itself.
func (t *rotation) is(w *file, s Sight) bool {
	if w.entry == nil {
		return sameFile(w.info, statOf(s.Info))
	}
	return IsOf(t.c.ids.idOf(w.entry), s.Info)
}

// newUnlisted returns the record of an unlisted file.
func (t *rotation) newUnlisted(s Sight) *file {
	now := t.c.now()
	return &file{
		dir: s.Dir, name: s.Name, label: s.Label, info: statOf(s.Info), state: unlisted,
		since: now, unread: max(now, 1), foundEmpty: true,
		scan: t.c.table.scans, firstScan: t.c.table.scans,
	}
}

// continues follows an unlisted file if it continues an awaiting or missing file. If same is not
// nil, that file is same, which has the same inode. Otherwise it is an awaiting file with data that
// was copied. decided is false if this is undecided, because the unlisted file was renamed since or
// is still being written.
func (t *rotation) continues(s Sight, same *file) (found, decided bool) {
	c, f := t.c, t.newUnlisted(s)
	if same != nil && s.Label == same.label {
		return false, true // it is no longer wanted, or will be listed again
	}
	if same == nil && (s.Info.Size == 0 || !t.hasRelated(f)) {
		return false, true
	}
	if !c.handles.refresh(f) {
		c.handles.close(f)
		return false, f.trouble != nil
	}
	head, err := c.unpacker.firstHead(f, nil)
	if err != nil {
		c.handles.close(f)
		return false, false
	}
	head, decided = slices.Clone(head), true
	switch {
	case same != nil && same.entry == nil:
		return t.foundMissing(f, same), true
	case same != nil:
		if f.holds(same.read()) < same.read() {
			break
		}
		if ok, err := f.fits(same.fingerprint(), head, c.head[fileid.MaxHead:]); ok && err == nil {
			c.copies.adopt(f, same)
		}
	default:
		decided = t.continueRelated(f, head)
	}
	if f.entry == nil {
		c.handles.close(f)
		f.dropView()
		return false, decided
	}
	c.table.add(f)
	c.pace.soon()
	return true, true
}

// continueRelated makes f the successor of the first waiting file of a related name with data that
// f contains. decided is false if that cannot be decided now.
func (t *rotation) continueRelated(f *file, head []byte) (decided bool) {
	k := &t.c.copies
	var unbegun *file
	for _, e := range k.relatedEntries(f, head) {
		w := awaited(e)
		if w == nil && t.packs(f, e.file, head) {
			w = k.giveUpHandle(e.file)
			if w.blank() {
				k.adopt(f, w)
				return true
			}
		}
		if w == nil || k.isUnfinished(f, w, head) {
			continue
		}
		if w.blank() {
			if unbegun == nil && f.shows(w, head) {
				unbegun = w
			}
			continue
		}
		if f.isBeingMade(w) {
			return false
		}
		if ok, err := k.inherit(f, w, head); ok || err != nil {
			return err == nil
		}
	}
	if unbegun != nil {
		k.adopt(f, unbegun)
	}
	return true
}

// packs reports whether f is a whole compressed file with all data of the deleted file g, which a
// route has still to read by its handle.
func (t *rotation) packs(f, g *file, head []byte) bool {
	k := &t.c.copies
	if f.view == nil || g == nil || !t.isHeld(g) || !k.equals(f, g, head) || !k.replaces(f, g, head) {
		return false
	}
	f.size()
	return f.view.Err() == nil
}

// isHeld reports whether f has been deleted for long, and is open because a route has not read all
// of it.
func (t *rotation) isHeld(f *file) bool {
	if f.state != nameless || f.entry == nil || f.handle == nil || f.view != nil {
		return false
	}
	long := t.c.now() >= f.nameless+t.c.o.Growing.CopyWait
	return long && f.isDeleted() && f.left() > 0
}

// held returns the files for which isHeld is true.
func (t *rotation) held() (out []*file) {
	for _, f := range t.c.table.byKey {
		if t.isHeld(f) {
			out = append(out, f)
		}
	}
	return out
}

// rewrittenAway follows an unlisted file that is certainly the one awaited by all of same, but
// holds other data than the read data. It was emptied and written to before it was renamed, and was
// not looked at in between.
func (t *rotation) rewrittenAway(s Sight, same []*file) bool {
	c, info := t.c, statOf(s.Info)
	for _, w := range same {
		if w.entry == nil || !w.extras.unseen || s.Label == w.label || !info.Birth.known() {
			return false
		}
		if id := c.ids.idOf(w.entry); id.Key() != w.entry.given || id.Birth != int64(info.Birth) {
			return false
		}
	}
	if len(same) == 0 || c.table.byKey[keyOf(info)] != nil {
		return false
	}
	f := t.newUnlisted(s)
	f.nameless = c.now()
	f.ensureExtras().listed = same[0].label
	for _, w := range same {
		if c.ids.phaseOf(w.entry) == known && !t.goneFrom(f, w) {
			c.handles.close(f)
			return false
		}
	}
	for _, w := range same {
		c.ids.displace(w.entry)
	}
	c.table.add(f)
	c.pace.soon()
	return true
}

// goneFrom reports whether f no longer contains the read data of w, which was the same file. It
// returns false if f does, or if that is undecided.
func (t *rotation) goneFrom(f, w *file) bool {
	p := w.fingerprint()
	if p.At == 0 || p.Packed > 0 || !t.c.handles.refresh(f) {
		return false
	}
	if f.info.Size < w.read() {
		return true
	}
	n := int(min(f.info.Size, fileid.MaxHead))
	head := make([]byte, n)
	if f.readFull(head, 0) != nil {
		return false
	}
	ok, err := f.fits(p, head, t.c.head[fileid.MaxHead:])
	return !ok && err == nil
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

// foundMissing follows a file that was renamed out of the listing before anything of it was read.
func (t *rotation) foundMissing(f, lost *file) bool {
	c := t.c
	if !sameFile(f.info, lost.info) {
		c.handles.close(f)
		return false
	}
	if i := slices.Index(t.missing, lost); i >= 0 {
		t.missing = slices.Delete(t.missing, i, i+1)
	}
	lost.state = lost.state.on(found)
	f.firstScan, f.foundEmpty = lost.firstScan, lost.foundEmpty
	f.ensureExtras().listed = lost.label
	c.table.add(f)
	c.pace.soon()
	return true
}

// lateMost is how long a nameless file waits, after its time is over, for a candidate that was
// looked at but is not complete yet.
const lateMost = 10 * packedWait

// mayHaveSuccessor reports whether one of the listed files may be the successor of w, which waits
// or has no name and has used up its time. A catalogue with many files may be late in reading the
// successor: it was listed in time, but not read, and may have another name by now. Candidates are
// therefore read now, by the name in this listing, while one that is being compressed or held back
// is awaited. A file that turns out to be the successor takes w over.
func (t *rotation) mayHaveSuccessor(w *file, now time.Duration) bool {
	c := t.c
	var list []*file
	of, id := stem(w.label), c.ids.idOf(w.entry)
	for _, f := range c.table.byKey {
		if f.isUnidentified() && (strings.HasPrefix(path.Base(f.label), of) || isOf(id, f.info)) {
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

// isUnreadIn reports whether the aawaiting file w is the only way for the next process to recognise
// the file in which it was rewritten. That is the case if some route has delivered nothing of the
// new content, since its lines may appear under an unlisted name.
func (t *rotation) isUnreadIn(w *file, id fileid.ID) bool {
	f := t.c.table.byKey[id.Key()]
	return w.state == awaiting && t.c.ids.phaseOf(w.entry) != known && f != nil &&
		isOf(id, f.info) && f.isUnreadBySome() &&
		(f.isUnlisted() || f.info.Size > 0 || f.isMovedOrGrown())
}

// isMovedOrGrown reports whether a file that was empty when it was listed has more in it by now, or
// another name.
func (f *file) isMovedOrGrown() bool {
	if f.dir == nil {
		return false
	}
	seen, err := f.dir.Stat(f.name)
	return err != nil || seen.Size > 0 || !sameFile(statOf(seen), f.info)
}

// missed reports whether the file without listed name f may have a listed name after its time is
// over. A listing misses a file that is renamed during the listing. The next listing has it, unless
// the new name is outside the configured patterns.
func (t *rotation) missed(f *file) bool {
	if f.info.Links == 0 {
		return false
	}
	name, a := "", f.ensureExtras()
	files, err := t.directoryOf(f.label)
	if is, ok := files[keyOf(f.info)]; ok && sameFile(is.info, f.info) {
		name = is.label
	}
	seen := a.unlistedAs == name && a.unlistedScan != t.c.table.scans ||
		f.state == unlisted && f.label == name
	if err != nil || name == "" || seen {
		return false
	}
	if a.unlistedAs != name {
		a.unlistedAs, a.unlistedScan = name, t.c.table.scans
	}
	t.c.pace.soon()
	return true
}

// directory is the content of a directory, including entries that are not read.
type directory struct {
	at, took time.Duration // time and duration of the reading
	scan     uint32        // the listing before it
	files    map[fileid.Key]dirEntry
}

type dirEntry struct {
	label string
	info  stat
}

// directoryOf returns the content of the directory of a label. The result is reused until the next
// listing, as long as rereading would cost more time than listings may. If all files of a directory
// are rotated at once, thousands of them ask for it.
func (t *rotation) directoryOf(label string) (map[fileid.Key]dirEntry, error) {
	c := t.c
	dir, start := path.Dir(label), c.now()
	if d, ok := t.contents[dir]; ok && d.scan == c.table.scans && start < d.at+scanSpacing*d.took {
		return d.files, nil
	}
	files := make(map[fileid.Key]dirEntry)
	err := c.place.Siblings(label, func(s Sight) {
		info := statOf(s.Info)
		files[keyOf(info)] = dirEntry{s.Label, info}
	})
	if err != nil {
		return nil, err
	}
	now := c.now()
	t.contents[dir] = directory{at: now, took: now - start, scan: c.table.scans, files: files}
	return files, nil
}
