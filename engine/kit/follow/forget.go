package follow

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// sweepMin is the least time between two sweeps.
const sweepMin = time.Second

// forgets are the partitions with progress that may be dropped. The reader adds them, and the
// checkpoint's goroutine removes them.
type forgets struct {
	mu   sync.Mutex // guards list
	list []string

	// ended are partitions that have ended, but with last spans that may be in the batch that Read
	// is filling. They are not published yet, because the engine would drop their progress before
	// it opens these spans. Only the reader uses it.
	ended []string

	stored  map[string]bool          // partitions of earlier runs without a file so far
	missing map[string]time.Duration // since when a sweep has not found the file of a partition
	swept   time.Duration
}

// add notes that a partition has ended and its progress may be dropped.
func (g *forgets) add(id string) { g.ended = append(g.ended, id) }

// publish makes the ended partitions available once the engine has all of their batches.
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
// existing finished file.
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
	for id, key := range r.partitions() {
		if there[key] || c.lister.isStoredFolderMissing(r, id, key) {
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
		c.dormant.forget(id)
		g.add(id)
	}
}

// there returns the inodes of all existing files. ok is false if the finished files cannot be
// listed.
func (c *Catalogue) there() (there map[fileid.Key]bool, ok bool) {
	there = make(map[fileid.Key]bool, len(c.table.byKey))
	if c.place.Finished(func(s Listed) { there[keyOf(statOf(s.Info))] = true }) != nil {
		return nil, false
	}
	for key := range c.table.byKey {
		there[key] = true
	}
	c.dormant.table.each(func(d *dormantFile) bool {
		there[d.key] = d.scan == c.table.scans
		return true
	})
	for _, f := range c.watched.files {
		there[keyOf(f.info)] = true
	}
	return there, true
}

// partitions returns the key of the data of each partition that the route has stored or reads,
// except awaiting ones.
func (r *Reader) partitions() map[string]fileid.Key {
	out := make(map[string]fileid.Key)
	for id := range r.forgets.stored {
		if e := r.c.ids.get(id); e != nil {
			out[id] = e.id.Key()
		}
	}
	r.c.dormant.table.each(func(d *dormantFile) bool {
		out[d.text] = d.key
		return true
	})
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
		}
	}
	return out
}
