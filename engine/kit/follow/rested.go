package follow

import (
	"fmt"
	"path"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// A file rests when all of it was delivered and its mark says so: with finished: keep when it is
// finished, growing when it is not held open. Until it is changed, renamed or gone, or a file turns
// up that may be a copy of it, its listing is all that is looked at; then it is known again by its
// mark, as after a restart.

// passed says whether a listed file rests and was not changed since. One that was changed is known
// again as by its mark.
func (r *Reader) passed(s Sight, info stat) bool {
	if !r.s.o.Keep && r.grow == nil {
		return false
	}
	d := r.resting.get(keyOf(info))
	if d == nil {
		return r.scans == r.first && r.restsAlready(s, info)
	}
	switch {
	case d.birth != info.Birth && r.grow != nil:
		r.mourn(d)
		return false
	case d.birth != info.Birth, d.size != info.Size, d.modTime != info.ModTime:
		r.rouse(d)
		return false
	case r.grow != nil && d.label != s.Label:
		return false // it was renamed, or this is a hard link to it: that is known when all was listed
	}
	d.scan = r.scans
	return true
}

// restsAlready lays a file of an earlier run to rest at once.
func (r *Reader) restsAlready(s Sight, info stat) bool {
	k, m, ok := r.recallable(info)
	if !ok || r.grow == nil && !m.Finished || r.grow != nil && (m.Finished || m.Part.Name != s.Label || !r.alone()) {
		return false
	}
	r.forgetKnown(k.text, keyOf(info))
	r.lay(s.Dir, s.Name, s.Label, k.text, info)
	return true
}

// alone says whether no other route reads the files: what routes tell each other of a file, they
// tell by its entry.
func (r *Reader) alone() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return len(r.s.readers) == 1
}

func (r *Reader) lay(dir Dir, name, label, text string, info stat) {
	d := rest{text: text, key: keyOf(info), size: info.Size, modTime: info.ModTime, birth: info.Birth, scan: r.scans}
	if r.grow != nil {
		d.dir, d.label, d.name = dir, label, len(name)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.resting.put(d)
}

// rouse makes what rests an id that the route has stored, and returns it.
func (r *Reader) rouse(d *rest) (knownID, stream.Mark, bool) {
	text, key := d.text, d.key
	m, ok := r.resume(text)
	k, isFile := r.placed(stream.Mark{Part: stream.Partition{ID: text}, Note: m.Note})
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.resting.remove(key)
	if isFile {
		r.known[k.id.Key()] = append(r.known[k.id.Key()], k)
		r.woken = append(r.woken, key)
	}
	return k, m, ok && isFile
}

// mourn waits for a file that leads on from one that rested and is gone.
func (r *Reader) mourn(d *rest) {
	if k, m, ok := r.rouse(d); ok && !m.Finished {
		r.widowOf(r.s.know(k, m.Part.Name), m, false, "its name is gone and it was not held open")
	}
}

// missRests mourns what rested and was not listed any more, and recognises what was changed before
// any other file: a new one may be a copy of it.
func (r *Reader) missRests() {
	r.resting.each(func(d *rest) bool {
		if d.scan != r.scans {
			r.mourn(d)
		}
		return true
	})
	var again []*file
	for _, key := range r.woken {
		if f := r.byKey[key]; f != nil {
			again = append(again, f)
		}
	}
	r.woken = nil
	r.recognised(again)
}

// rise makes a file of what rests.
func (r *Reader) rise(d *rest) {
	label, key := d.label, d.key
	if r.files[label] != nil || r.byKey[key] != nil {
		return
	}
	now := r.s.now()
	f := &file{
		dir: d.dir, name: label[len(label)-d.name:], label: label, since: now, unread: max(now, 1), scan: d.scan,
		info: stat{Size: d.size, ModTime: d.modTime, Birth: d.birth, Dev: key.Dev, Ino: key.Ino, Links: 1},
	}
	r.rouse(d)
	r.files[label], r.byKey[key] = f, f
	r.recall(f)
}

// riseKin makes files of what rests and has a name from which that of a new file may have been
// made.
func (r *Reader) riseKin(label string) {
	base := path.Base(label)
	var kin []rest
	for n := len(base); n > 0 && r.resting.len() > 0; n-- {
		kin = r.resting.ofStem(kin, base[:n], maxKin)
	}
	for i := range kin {
		r.rise(&kin[i])
	}
}

// riseAll makes files of all that rests: another route reads them, too.
func (r *Reader) riseAll() {
	r.resting.each(func(d *rest) bool {
		r.rise(d)
		return true
	})
	r.woken = nil
}

// retire keeps of files that are delivered, and whose marks say so, no more than has to be known
// while they rest.
func (r *Reader) retire() {
	if r.grow != nil {
		r.retireIdle()
		return
	}
	r.s.mu.Lock()
	list := r.told
	r.told = nil
	var files []*file
	for _, id := range list {
		if e := r.s.byID[id]; e != nil {
			if f := r.byKey[e.id.Key()]; f != nil && f.entry == e && f.sealed && !f.changed() && !e.dead {
				files = append(files, f)
			}
		}
	}
	r.s.mu.Unlock()
	for _, f := range files {
		if f.entry != nil { // else it was told twice
			r.layFile(f)
		}
	}
}

func (r *Reader) layFile(f *file) {
	key, text, given := keyOf(f.info), f.entry.text, f.entry.given
	r.closeFile(f)
	delete(r.byKey, key)
	if r.files[f.label] == f {
		delete(r.files, f.label)
	}
	r.notes.end(text)
	r.forgetKnown(text, key)
	r.forgetKnown(text, given)
	r.lay(f.dir, f.name, f.label, text, f.info)
	r.s.mu.Lock()
	r.resting.get(key).scan = f.scan
	r.s.mu.Unlock()
	r.release(f)
}

// retireIdle looks, after each save, at the growing files that were closed to make room for others.
func (r *Reader) retireIdle() {
	r.s.mu.Lock()
	saved, alone := r.fresh, len(r.s.readers) == 1
	r.fresh = false
	r.s.mu.Unlock()
	t := &r.rotated
	if !saved || !alone || len(t.widows)+len(t.strays) > 0 || r.s.now() < r.holding {
		return
	}
	kept := r.shut[:0]
	for _, f := range r.shut {
		switch {
		case !r.isIdle(f): // it comes again when it is closed again
		case r.savedWhole(f):
			r.layFile(f)
		default:
			kept = append(kept, f)
		}
	}
	clear(r.shut[len(kept):])
	r.shut = kept
}

// isIdle says whether a growing file is one as any other, closed, and nothing of it is left to be
// read.
func (r *Reader) isIdle(f *file) bool {
	odd := f.orphan || f.beside || f.lost || f.finished || f.sealed || f.touch || f.queued || f.trouble != nil || f.dir == nil
	return !odd && f.entry != nil && f.handle == nil && f.view == nil && !f.skipping() && !f.partial() && !f.changed() &&
		f.drained == f.info.Size && r.byKey[keyOf(f.info)] == f && r.files[f.label] == f && r.rotated.byEntry[f.entry] == f
}

// savedWhole says whether the mark of an idle file says that all of it was delivered, so that its
// stat alone recalls it.
func (r *Reader) savedWhole(f *file) bool {
	e := f.entry
	m, ok := r.wholeMark(e.text, f.info)
	return ok && !m.Finished && m.Part.Name == f.label && e.id.Certain() && f.info.Birth.known() && isOf(e.id, f.info) && !r.s.isDead(e)
}

// hardLink refuses another name of a file that rests under one that was listed, too; else it wakes
// it under the new one.
func (r *Reader) hardLink(label string, key fileid.Key) bool {
	d := r.resting.get(key)
	if d == nil {
		return false
	}
	if d.scan == r.scans {
		r.refuse(label, fmt.Sprintf("it is a hard link to %q, which is read", d.label))
		return true
	}
	r.rouse(d)
	return false
}

// storedLocked is what the route has stored of an inode, also where that rests.
func (r *Reader) storedLocked(key fileid.Key) []knownID {
	list := r.known[key]
	if d := r.resting.get(key); d != nil {
		if id, err := fileid.Parse(d.text); err == nil {
			id.Dev, id.Ino, id.Birth = key.Dev, key.Ino, int64(d.birth)
			list = append(list[:len(list):len(list)], knownID{id: id, text: d.text})
		}
	}
	return list
}
