package follow

import (
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// completions are the files that all routes have read to their ends, but with progress that was not
// dropped yet. A route keeps its progress in a file until every other route has saved that it is
// done. If the process crashes while another route still needs the file, the next process must not
// treat the file as new for the first route.
type completions []completion

type completion []progressOf

// progressOf is the stored progress of one route in a partition.
type progressOf struct {
	r  *Reader
	id string
}

// awaitDone notes that a cursor is at the end of its file, but the route has not saved that yet.
func (r *Reader) awaitDone(cur *cursor) {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	if _, ok := r.done[cur.part.ID]; !ok {
		r.done[cur.part.ID] = false
	}
}

// isDone reports whether a route has saved that it is done with a partition, or has no pending
// progress for it.
func (r *Reader) isDone(id string) bool {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	saved, ok := r.done[id]
	return saved || !ok
}

// awaitsDone reports whether the progress of a partition is dropped together with the progress of
// other routes.
func (r *Reader) awaitsDone(id string) bool {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	_, ok := r.done[id]
	return ok
}

// add schedules the progress of a file to be dropped once all routes have saved that they are done
// with it. Routes without a cursor in it were done in an earlier run.
func (d *completions) add(c *Catalogue, f *file) {
	var all completion
	for _, cur := range f.cursors {
		cur.r.awaitDone(cur)
		all = append(all, progressOf{cur.r, cur.part.ID})
	}
	for _, r := range c.readers {
		if id := f.entry.text; f.by(r) == nil && r.forgets.stored[id] {
			delete(r.forgets.stored, id)
			all = append(all, progressOf{r, id})
		}
	}
	// a restarted route may have read the end of the file once more
	*d = slices.DeleteFunc(*d, func(old completion) bool {
		return slices.ContainsFunc(old, func(p progressOf) bool { return slices.Contains(all, p) })
	})
	*d = append(*d, all)
}

// withdraw keeps the progress of a file that has grown, because the routes have to read the new
// data.
func (d *completions) withdraw(cur *cursor) {
	*d = slices.DeleteFunc(*d, func(all completion) bool {
		return slices.Contains(all, progressOf{cur.r, cur.part.ID})
	})
	cur.r.c.ids.mu.Lock()
	defer cur.r.c.ids.mu.Unlock()
	delete(cur.r.done, cur.part.ID)
}

// rejoin makes r take over the completed progress m of the route's previous reader. It reports
// whether r is done with the partition. r is not done if the end of the file was never saved and
// the file can be read again.
func (d completions) rejoin(r *Reader, m stream.Mark) bool {
	id := m.Part.ID
	for _, all := range d {
		for i, p := range all {
			if p.id != id || p.r.o.Route != r.o.Route || p.r.activity != absent {
				continue
			}
			all[i].r = r
			done := m.Finished || r.c.ids.isOver(id)
			r.c.ids.mu.Lock()
			defer r.c.ids.mu.Unlock()
			r.done[id] = done
			return done
		}
	}
	return false
}

// drop drops the progress of files that all routes are done with. It does not wait for closed
// readers: the next reader of the same route drops the progress itself.
func (d *completions) drop() {
	*d = slices.DeleteFunc(*d, func(all completion) bool {
		if slices.ContainsFunc(all, func(p progressOf) bool {
			return p.r.activity != gone && !p.r.isDone(p.id)
		}) {
			return false
		}
		for _, p := range all {
			p.r.c.ids.mu.Lock()
			delete(p.r.done, p.id)
			p.r.c.ids.mu.Unlock()
			p.r.forgets.add(p.id)
		}
		return true
	})
}
