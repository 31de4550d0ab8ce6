package follow

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// sweepMin is the least time between two sweeps, which look for progress of deleted files.
const sweepMin = time.Second

// forgets lists partitions of which the progress is no longer needed, so that the engine may delete
// it. The reader adds partitions. The goroutine that writes checkpoints removes them when it calls
// Deleted.
type forgets struct {
	mu   sync.Mutex // guards list
	list []string

	// ended has partitions of files that were read to their ends, given up or deleted. Their last
	// spans may be in the batch that Read is filling. publish moves them to list when the engine
	// has this batch. Otherwise the engine would delete their progress before it knows these spans.
	// Guarded by Catalogue.mu.
	ended []string

	stored  map[string]bool          // partitions of earlier runs without a file so far
	missing map[string]time.Duration // since when a sweep has not found the file of a partition
	swept   time.Duration
}

// add notes that a partition has ended and its progress may be dropped.
func (g *forgets) add(id string) { g.ended = append(g.ended, id) }

// publish makes the ended partitions available to Deleted. It is called when the engine has all of
// their batches.
func (g *forgets) publish() {
	if len(g.ended) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, g.ended...)
	g.ended = nil
}

// Deleted implements stream.PartitionTracker.
func (r *Reader) Deleted() []string {
	r.forgets.mu.Lock()
	list := r.forgets.list
	r.forgets.list = nil
	r.forgets.mu.Unlock()
	for _, id := range list {
		r.notes.end(id)
		r.c.ids.forget(id)
	}
	return list
}

// sweep finds the partitions of deleted files, which Deleted returns later. A file counts as
// deleted if it has been missing for the time Forget: it is not listed, not held open, and not an
// existing finished file. Files in missing folders do not count as deleted.
func (r *Reader) sweep(now time.Duration) {
	g, c := &r.forgets, r.c
	if c.o.Forget <= 0 || now-g.swept < max(sweepMin, c.o.Forget/4, 100*c.pace.took) {
		return
	}
	g.swept = now
	there, ok := c.there()
	if !ok {
		return
	}
	missing := make(map[string]time.Duration)
	var over []string
	partitions := r.partitions()
	for id, key := range partitions {
		if there[key] {
			continue
		}
		if m, ok := r.resume(id); ok && c.lister.isFolderMissing(m.Part.Name, key.Dev) {
			continue
		}
		since, ok := g.missing[id]
		if !ok {
			since = now
		}
		if now-since >= c.o.Forget {
			over = append(over, id)
			continue
		}
		missing[id] = since
	}
	g.missing = missing
	slices.Sort(over)
	for _, id := range over {
		delete(g.stored, id)
		if e := c.ids.get(id); e != nil && e.file == nil {
			c.ids.drop(e)
		}
		c.dormant.forget(id, partitions[id])
		g.add(id)
	}
}

// there returns the inodes of all files that exist: listed, open and finished ones. ok is false if
// the finished files cannot be listed.
func (c *Catalogue) there() (there map[fileid.Key]bool, ok bool) {
	there = make(map[fileid.Key]bool, len(c.table.byKey))
	if c.place.Finished(func(s Listed) { there[keyOf(statOf(s.Info))] = true }) != nil {
		return nil, false
	}
	for key := range c.table.byKey {
		there[key] = true
	}
	for key, d := range c.dormant.table.byKey {
		there[key] = d.scan == c.table.scans
	}
	for _, f := range c.watched.files {
		there[keyOf(f.info)] = true
	}
	return there, true
}

// partitions returns, for each partition that the route has stored or reads, the inode that has its
// data. The method sweep looks for these inodes. The partitions of awaiting files are omitted, and
// those of completed files that wait for the other routes (see awaitDone). Those of files that can
// no longer be read and are not sealed yet are omitted as well.
func (r *Reader) partitions() map[string]fileid.Key {
	out := make(map[string]fileid.Key)
	for id := range r.forgets.stored {
		if e := r.c.ids.get(id); e != nil {
			out[id] = e.id.Key()
		}
	}
	for key, d := range r.c.dormant.table.byKey {
		out[d.text] = key
	}
	r.notes.mu.Lock()
	for text, t := range r.notes.byID {
		key := t.fingerprint.Moved
		if key == (fileid.Key{}) {
			if id, err := fileid.Parse(text); err == nil {
				key = id.Key()
			}
		}
		out[text] = key
	}
	r.notes.mu.Unlock()
	r.c.ids.mu.Lock()
	for id := range r.done {
		delete(out, id)
	}
	r.c.ids.mu.Unlock()
	for w := range r.c.rotation.awaiting {
		for _, cur := range w.cursors {
			delete(out, cur.entry.text)
			if cur.original != nil {
				delete(out, cur.original.entry.text)
			}
		}
	}
	for _, cur := range r.lostCursors {
		delete(out, cur.entry.text)
	}
	return out
}

// completions lists the files that all routes have read to their ends, or that are lost, until
// their progress is deleted. The progress of all routes is deleted together, when every route has
// saved that it has read the file. Example: route 1 has saved this, and the process crashes before
// route 2 has. If the progress of route 1 were deleted already, the next process would treat the
// file as new for route 1.
type completions []completion

type completion []progressOf

// progressOf is the stored progress of one route in a partition.
type progressOf struct {
	r  *Reader
	id string
}

// awaitDone notes that a cursor is at the end of its file. The progress of the file is deleted only
// after the route has saved this.
func (r *Reader) awaitDone(cur *cursor) {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	if _, ok := r.done[cur.part.ID]; !ok {
		r.done[cur.part.ID] = false
	}
}

// isDone reports whether a route has saved that it has read a partition to its end. It also returns
// true if awaitDone was not called for the partition, because then nothing is waited for.
func (r *Reader) isDone(id string) bool {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	saved, ok := r.done[id]
	return saved || !ok
}

// awaitsDone reports whether awaitDone was called for a partition. The route's progress in this
// partition is then deleted together with that of the other routes.
func (r *Reader) awaitsDone(id string) bool {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	_, ok := r.done[id]
	return ok
}

// add adds the file f, which all routes have read to its end or which is lost. Its progress is
// deleted once all of them have saved this. Routes with progress but without a cursor in f have
// read it in an earlier run.
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
	// Remove an older entry of the same file: a restarted route may have read the end once
	// more.
	*d = slices.DeleteFunc(*d, func(old completion) bool {
		return slices.ContainsFunc(old, func(p progressOf) bool { return slices.Contains(all, p) })
	})
	*d = append(*d, all)
}

// withdraw is called if a file has grown after it was read to its end. Its progress is then kept,
// because the routes have to read the new data.
func (d *completions) withdraw(cur *cursor) {
	*d = slices.DeleteFunc(*d, func(all completion) bool {
		return slices.Contains(all, progressOf{cur.r, cur.part.ID})
	})
	cur.r.c.ids.mu.Lock()
	defer cur.r.c.ids.mu.Unlock()
	delete(cur.r.done, cur.part.ID)
}

// rejoin replaces the closed reader of a route by its new reader r, if d has the partition of m,
// the stored progress of the route. It returns true if r need not read this partition: m has
// Finished set, or the file was read to its end or given up.
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

// drop deletes the progress of files if all routes have saved that they have read them. It does not
// wait for a reader that has left the catalogue (gone): the next reader of the same route deletes
// the progress itself.
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
