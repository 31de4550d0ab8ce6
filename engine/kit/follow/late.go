package follow

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// lateMost is how long a file without name whose time is over waits for one that was looked at and whose data is not whole yet.
const lateMost = 10 * packedWait

// mayLead says whether one of the listed files may lead on from w, a widow or a file without name, whose time is over. A route that has
// much to send comes late to the file that does: it was listed in time, but not looked at, and may have another name again. So it is
// looked at now, by the name that this listing has; one that is being compressed, or is held back, is waited for. What is found to lead
// on from w takes it over.
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
	r.dueAt(min(a.until, now+packedWait))
	return now < a.until
}

// unreadIn says whether the widow w is all by which the next process would know the file in which it was rewritten: nothing was handed out
// of what stands there now, and what is written to it may come under a name that is not listed.
func (r *Reader) unreadIn(w *file, id fileid.ID) bool {
	f := r.byKey[id.Key()]
	return w.displaced && f != nil && isOf(id, f.info) && f.cursor.Next == 0 && (f.orphan || f.info.Size > 0)
}

// missed says whether the file without name f, whose time is over, may have a name that is listed: a listing misses a file that is renamed
// while it is made. The one that follows has it, unless the name is none of those that are read.
func (r *Reader) missed(f *file) bool {
	if f.info.Links == 0 {
		return false
	}
	name, a := "", f.rare()
	err := r.s.place.Beside(f.label, func(s Sight) {
		if sameFile(statOf(s.Info), f.info) {
			name = s.Label
		}
	})
	known := a.besideAs == name && a.besideIn != r.scans || f.beside && f.label == name
	if err != nil || name == "" || known {
		return false
	}
	if a.besideAs != name {
		a.besideAs, a.besideIn = name, r.scans
	}
	r.soon()
	return true
}

// unmet says whether it is not known yet which file it is.
func (f *file) unmet() bool {
	return f.entry == nil && f.info.Size > 0 && f.trouble == nil && !f.empty()
}
