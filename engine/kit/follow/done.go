package follow

import "github.com/penstock-io/penstock/fileid"

// done is a file that stays where it is, all of which was delivered, and whose mark says so: all that has to be known of it. A
// hundred thousand of them are what a spool directory with finished: keep holds.
type done struct {
	text    string // its id
	size    int64
	modTime stamp
	birth   stamp
	scan    uint64 // the last listing in which it was seen
}

// passed says whether a listed file is done and was not changed since. One that was changed is known again as by its mark.
func (r *Reader) passed(s Sight, info stat) bool {
	if !r.s.o.Keep {
		return false
	}
	key := keyOf(info)
	d, ok := r.done[key]
	if !ok {
		if r.scans > 1 {
			return false
		}
		k, m, ok := r.recallable(info)
		if !ok || !m.Finished {
			return false
		}
		r.forgetKnown(k.text, key)
		r.done[key] = done{text: k.text, size: info.Size, modTime: info.ModTime, birth: info.Birth, scan: r.scans}
		return true
	}
	if d.size == info.Size && d.modTime == info.ModTime && d.birth == info.Birth {
		d.scan = r.scans
		r.done[key] = d
		return true
	}
	delete(r.done, key)
	r.knowAgain(d.text)
	return false
}

// knowAgain adds an id to those that the route has stored.
func (r *Reader) knowAgain(text string) {
	if id, err := fileid.Parse(text); err == nil {
		r.s.mu.Lock()
		r.known[id.Key()] = append(r.known[id.Key()], knownID{id: id, text: text})
		r.s.mu.Unlock()
	}
}

// retire keeps of files that stay, and whose marks say that they are finished, no more than that.
func (r *Reader) retire() {
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
		if f.entry == nil { // it was told twice
			continue
		}
		key := keyOf(f.info)
		r.done[key] = done{text: f.entry.text, size: f.info.Size, modTime: f.info.ModTime, birth: f.info.Birth, scan: f.scan}
		delete(r.byKey, key)
		if r.files[f.label] == f {
			delete(r.files, f.label)
		}
		r.closeFile(f)
		r.notes.end(f.entry.text)
		r.release(f)
	}
}
