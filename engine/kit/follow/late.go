package follow

import (
	"path"
	"slices"
	"strings"
	"time"
)

// lateMost is how long a widow whose time is over waits for a file that was looked at and whose data is not whole yet.
const lateMost = 10 * packedWait

// mayLead says whether one of the listed files may lead on from w, whose time is over. A route that has much to send comes late to the
// file that does: it was listed in time, but not looked at, and may have another name again. So it is looked at now, by the name that
// this listing has; one that is being compressed, or is held back, is waited for. What is found to lead on from w takes it over.
func (r *Reader) mayLead(w *file, now time.Duration) bool {
	var list []*file
	of, id := stem(w.label), r.s.idOf(w.entry)
	for _, f := range r.byKey {
		if f.unmet() && (strings.HasPrefix(path.Base(f.label), of) || isOf(id, f.info)) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *file) int { return strings.Compare(a.label, b.label) })
	for _, f := range list {
		if f.unmet() && r.look(f) && f.entry == nil {
			r.identify(f)
		}
	}
	if !slices.ContainsFunc(list, (*file).unmet) {
		return false
	}
	if w.aside.until == 0 {
		w.aside.until = now + lateMost
	}
	r.dueAt(min(w.aside.until, now+packedWait))
	return now < w.aside.until
}

// unmet says whether it is not known yet which file it is.
func (f *file) unmet() bool {
	return f.entry == nil && f.info.Size > 0 && f.trouble == nil && !f.empty()
}
