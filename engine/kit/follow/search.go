package follow

import (
	"maps"
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// followRotated looks after files whose names are gone: it searches their directories for what
// leads on from them, gives up what was not found, and keeps the budget of what deleted files hold.
func (r *Reader) followRotated(now time.Duration) {
	if r.scans == r.first && r.marked {
		r.unmet()
		r.meetKnown()
	} else {
		r.meetUnread()
	}
	r.heldAway()
	t := &r.rotated
	clear(t.beside)
	if waiting := len(t.widows) + len(t.strays); waiting > 0 && (t.search == 0 || now-t.search >= r.s.o.PollMax) {
		t.search = max(now, 1)
		r.searchBeside(waiting)
	}
	if len(t.widows)+len(t.strays) > 0 {
		r.pace.dueAt(t.search + r.s.o.PollMax)
	}
	r.expire(now)
	r.s.catalogue.keepBudget(r)
}

// searchBeside looks for files that lead on from widows and strays outside of the listing, in the
// same directories.
func (r *Reader) searchBeside(waiting int) {
	t := &r.rotated
	t.untold = false
	dirs := make(map[string]string)
	byKey := make(map[fileid.Key][]*file) // an inode may have been used again, and by files that are all waited for
	for _, w := range t.inOrder() {
		dirs[path.Dir(w.label)] = w.label
		if !w.displaced || w.aside.unseen {
			id := r.s.idOf(w.entry)
			byKey[id.Key()] = append(byKey[id.Key()], w)
		}
	}
	for _, f := range t.strays {
		dirs[path.Dir(f.label)] = f.label
		byKey[keyOf(f.info)] = append(byKey[keyOf(f.info)], f)
	}
	var sights []Sight
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		label := dirs[dir]
		err := r.s.place.Beside(label, func(s Sight) {
			key := keyOf(statOf(s.Info))
			was, seen := t.tried[key]
			if r.byKey[key] == nil && r.resting.get(key) == nil && !(seen && was == tried{s.Info.Size, s.Info.ModTime, waiting}) {
				sights = append(sights, s)
			}
		})
		if err != nil {
			r.s.log.Debug("a directory cannot be searched for rotated files", "beside", label, "error", err)
		}
	}
	slices.SortStableFunc(sights, func(a, b Sight) int { // the very file that is waited for, before copies of it
		return len(byKey[keyOf(statOf(b.Info))]) - len(byKey[keyOf(statOf(a.Info))])
	})
	for _, s := range sights {
		all := slices.DeleteFunc(slices.Clone(byKey[keyOf(statOf(s.Info))]), func(w *file) bool { return !w.is(r, s) })
		same := slices.DeleteFunc(slices.Clone(all), func(w *file) bool { return w.displaced })
		if len(same) == 0 {
			same = append(same, nil)
		}
		found, told := r.leadsOne(s, same)
		if found || r.rewrittenAway(s, all) {
			continue
		}
		if told {
			t.tried[keyOf(statOf(s.Info))] = tried{s.Info.Size, s.Info.ModTime, waiting}
		}
		t.untold = t.untold || !told
	}
}

// leadsOne is leads for all of same, up to the first that a file leads on from.
func (r *Reader) leadsOne(s Sight, same []*file) (found, told bool) {
	told = true
	for _, w := range same {
		yes, known := r.leads(s, w)
		if yes {
			return true, true
		}
		told = told && known
	}
	return false, told
}

// is says whether a file outside of the listing is the one that is waited for, as far as a stat
// tells.
func (f *file) is(r *Reader, s Sight) bool {
	if f.entry == nil {
		return sameFile(f.info, statOf(s.Info))
	}
	return IsOf(r.s.idOf(f.entry), s.Info)
}

// leads follows a file outside of the listing if it leads on from a widow or stray: same, if its
// inode is that one's, or else the widow that it is a copy of. told is false where that cannot be
// known now: it has another name since it was listed, or is being made.
func (r *Reader) leads(s Sight, same *file) (found, told bool) {
	now := r.s.now()
	f := &file{
		dir: s.Dir, name: s.Name, label: s.Label, info: statOf(s.Info),
		since: now, unread: max(now, 1), scan: r.scans, orphan: true, beside: true,
	}
	if same != nil && s.Label == same.label {
		return false, true // it is no longer wanted, or will be listed again
	}
	if same == nil && (s.Info.Size == 0 || !r.hasKin(f)) {
		return false, true
	}
	if !r.look(f) {
		r.closeFile(f)
		return false, f.trouble != nil
	}
	head, err := r.firstHead(f)
	if err != nil {
		r.closeFile(f)
		return false, false
	}
	head, told = append([]byte(nil), head...), true
	switch {
	case same != nil && same.entry == nil:
		return r.foundStray(f, same), true
	case same != nil:
		if f.holds(same.cursor.Next) < same.cursor.Next {
			break
		}
		if ok, err := f.fits(same.note.proof, head, r.head[fileid.MaxHead:]); ok && err == nil {
			r.adopt(f, same)
		}
	default:
		var unbegun *file
		for _, e := range r.kin(f, head) {
			w := r.rotated.widows[e]
			if w == nil || r.unfinished(f, w, head) {
				continue
			}
			if w.blank() {
				if unbegun == nil && shows(f, w, head) {
					unbegun = w
				}
				continue
			}
			if told = !f.beingMade(w); !told {
				break
			}
			if ok, err := r.inherit(f, w, head); ok || err != nil {
				told = err == nil
				break
			}
		}
		if f.entry == nil && told && unbegun != nil {
			r.adopt(f, unbegun)
		}
	}
	if f.entry == nil {
		r.closeFile(f)
		return false, told
	}
	r.byKey[keyOf(f.info)] = f
	r.pace.soon()
	return true, true
}

// rewrittenAway follows a file outside of the listing that is, beyond doubt, the one that all of
// same wait for, and in which something else stands than was read of it: it was emptied and written
// to before it was renamed, and this route has not looked in between.
func (r *Reader) rewrittenAway(s Sight, same []*file) bool {
	info := statOf(s.Info)
	for _, w := range same {
		if w.entry == nil || !w.aside.unseen || s.Label == w.label || !info.Birth.known() {
			return false
		}
		if id, moved := r.s.placeOf(w.entry); moved || id.Birth != int64(info.Birth) {
			return false
		}
	}
	if len(same) == 0 || r.byKey[keyOf(info)] != nil {
		return false
	}
	now := r.s.now()
	f := &file{
		dir: s.Dir, name: s.Name, label: s.Label, info: info,
		since: now, unread: max(now, 1), nameless: now, scan: r.scans, orphan: true, beside: true,
	}
	f.rare().listed = same[0].label
	for _, w := range same {
		if !w.displaced && !r.goneFrom(f, w) {
			r.closeFile(f)
			return false
		}
	}
	for _, w := range same {
		r.s.kill(w.entry, info)
		w.displaced = true
	}
	r.byKey[keyOf(info)] = f
	r.pace.soon()
	return true
}

// goneFrom says whether what was read of w, which was the same file as f, stands in f no more.
// false: it does, or it cannot be told.
func (r *Reader) goneFrom(f, w *file) bool {
	if w.note.proof.At == 0 || w.note.proof.Packed > 0 || !r.look(f) {
		return false
	}
	if f.info.Size < w.cursor.Next {
		return true
	}
	n := int(min(f.info.Size, fileid.MaxHead))
	head := make([]byte, n)
	if f.readFull(head, 0) != nil {
		return false
	}
	ok, err := f.fits(w.note.proof, head, r.head[fileid.MaxHead:])
	return !ok && err == nil
}

// hasKin says whether there is a file or widow from whose name f's may have been made.
func (r *Reader) hasKin(f *file) bool {
	base := path.Base(f.label)
	for n := len(base); n > 0; n-- {
		if len(r.rotated.stems[base[:n]]) > 0 {
			return true
		}
	}
	return false
}

// foundStray follows a file that was renamed out of the listing before anything of it was read.
func (r *Reader) foundStray(f, stray *file) bool {
	if !sameFile(f.info, stray.info) {
		r.closeFile(f)
		return false
	}
	for i, o := range r.rotated.strays {
		if o == stray {
			r.rotated.strays = append(r.rotated.strays[:i], r.rotated.strays[i+1:]...)
			break
		}
	}
	f.fromEnd = stray.fromEnd
	f.rare().listed = stray.label
	r.byKey[keyOf(f.info)] = f
	r.pace.soon()
	return true
}
