package follow

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// lateMost is how long a file without name whose time is over waits for one that was looked at and
// whose data is not whole yet.
const lateMost = 10 * packedWait

// mayLead says whether one of the listed files may lead on from w, a widow or a file without name,
// whose time is over. A route that has much to send comes late to the file that does: it was listed
// in time, but not looked at, and may have another name again. So it is looked at now, by the name
// that this listing has; one that is being compressed, or is held back, is waited for. What is
// found to lead on from w takes it over.
func (r *Reader) mayLead(w *file, now time.Duration) bool {
	var list []*file
	of, id := stem(w.label), r.s.idOf(w.entry)
	for _, f := range r.byKey {
		if f.unmet() && (strings.HasPrefix(path.Base(f.label), of) || isOf(id, f.info)) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, byLabel)
	for _, f := range list {
		if f.unmet() && r.look(f) && f.entry == nil {
			r.identify(f)
		}
	}
	if !slices.ContainsFunc(list, (*file).unmet) && !r.unreadIn(w, id) && !r.rotated.untold {
		return false
	}
	a := w.rare()
	if a.until == 0 {
		a.until = now + lateMost
	}
	r.pace.dueAt(min(a.until, now+packedWait))
	return now < a.until
}

// unreadIn says whether the widow w is all by which the next process would know the file in which
// it was rewritten: nothing was handed out of what stands there now, and what is written to it may
// come under a name that is not listed.
func (r *Reader) unreadIn(w *file, id fileid.ID) bool {
	f := r.byKey[id.Key()]
	return w.displaced && f != nil && isOf(id, f.info) && f.cursor.Next == 0 && (f.orphan || f.info.Size > 0 || movedOrGrown(f))
}

// movedOrGrown says whether a file that was empty when it was listed has something in it by now, or
// another name.
func movedOrGrown(f *file) bool {
	if f.dir == nil {
		return false
	}
	seen, err := f.dir.Stat(f.name)
	return err != nil || seen.Size > 0 || !sameFile(statOf(seen), f.info)
}

// missed says whether the file without name f, whose time is over, may have a name that is listed:
// a listing misses a file that is renamed while it is made. The one that follows has it, unless the
// name is none of those that are read.
func (r *Reader) missed(f *file) bool {
	if f.info.Links == 0 {
		return false
	}
	name, a := "", f.rare()
	files, err := r.besideOf(f.label)
	if is, ok := files[keyOf(f.info)]; ok && sameFile(is.info, f.info) {
		name = is.label
	}
	known := a.besideAs == name && a.besideIn != r.scans || f.beside && f.label == name
	if err != nil || name == "" || known {
		return false
	}
	if a.besideAs != name {
		a.besideAs, a.besideIn = name, r.scans
	}
	r.pace.soon()
	return true
}

// beside is what stood in a directory, wanted or not.
type beside struct {
	at, took time.Duration // when it was known, and what that took
	scan     uint32        // the listing before it
	files    map[fileid.Key]besideAs
}

type besideAs struct {
	label string
	info  stat
}

// besideOf returns what stands in the directory of a label. That is good until the next listing,
// for a time in which it costs no more than the listings may: files whose time is over come by the
// thousand where all of a directory are rotated at once.
func (r *Reader) besideOf(label string) (map[fileid.Key]besideAs, error) {
	dir, start := path.Dir(label), r.s.now()
	if d, ok := r.rotated.beside[dir]; ok && d.scan == r.scans && start < d.at+scanSpacing*d.took {
		return d.files, nil
	}
	files := make(map[fileid.Key]besideAs)
	err := r.s.place.Beside(label, func(s Sight) {
		info := statOf(s.Info)
		files[keyOf(info)] = besideAs{s.Label, info}
	})
	if err != nil {
		return nil, err
	}
	now := r.s.now()
	r.rotated.beside[dir] = beside{at: now, took: now - start, scan: r.scans, files: files}
	return files, nil
}

// unmet says whether it is not known yet which file it is.
func (f *file) unmet() bool {
	return f.entry == nil && f.info.Size > 0 && f.trouble == nil && !f.empty()
}
