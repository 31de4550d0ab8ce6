package follow

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// sweepMin is the least time between two sweeps.
const sweepMin = time.Second

// gone are the partitions whose marks may be dropped. The reader writes, the checkpoint's goroutine
// takes.
type gone struct {
	mu   sync.Mutex // guards list
	list []string

	// ended are those whose last spans may be in the batch that Read is filling: the engine has not
	// opened them yet, and would drop their marks first. The reader's own.
	ended []string

	missing map[string]time.Duration // since when a sweep has not found the file of a partition
	swept   time.Duration
}

// now says that a partition has ended by proof.
func (g *gone) now(id string) { g.ended = append(g.ended, id) }

// publish hands over what has ended, when the engine has all batches with anything of it.
func (g *gone) publish() {
	if len(g.ended) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, g.ended...)
	g.ended = nil
}

// Forget implements stream.Forgetter.
func (r *Reader) Forget() []string {
	r.gone.mu.Lock()
	list := r.gone.list
	r.gone.list = nil
	r.gone.mu.Unlock()
	for _, id := range list {
		r.notes.end(id)
	}
	return list
}

// sweep finds partitions whose files are gone for Forget: neither listed, nor finished and still
// there, nor held open.
func (r *Reader) sweep(now time.Duration) {
	g := &r.gone
	if r.s.o.Forget <= 0 || now-g.swept < max(sweepMin, r.s.o.Forget/4, 100*r.pace.took) {
		return
	}
	g.swept = now
	there := make(map[fileid.Key]bool, len(r.byKey))
	if r.s.place.Finished(func(s Sight) { there[keyOf(statOf(s.Info))] = true }) != nil {
		return // nothing is known
	}
	for key := range r.byKey {
		there[key] = true
	}
	r.resting.each(func(d *rest) bool {
		there[d.key] = d.scan == r.scans
		return true
	})
	for _, f := range r.after {
		there[keyOf(f.info)] = true
	}
	missing := make(map[string]time.Duration)
	var over []string
	places := r.placesOf()
	for id, key := range places {
		if there[key] {
			continue
		}
		if r.markAway(id, key) {
			continue
		}
		since, ok := g.missing[id]
		if !ok {
			since = now
		}
		if now-since >= r.s.o.Forget {
			over = append(over, id)
			continue
		}
		missing[id] = since
	}
	g.missing = missing
	slices.Sort(over)
	for _, id := range over {
		key := places[id]
		r.forgetKnown(id, key)
		if d := r.resting.get(key); d != nil && d.text == id {
			r.s.mu.Lock()
			r.resting.remove(key)
			r.s.mu.Unlock()
		}
		g.now(id)
	}
}

// placesOf is where the data of each partition lies that the route has stored or reads; but for
// what is waited for.
func (r *Reader) placesOf() map[string]fileid.Key {
	out := make(map[string]fileid.Key)
	r.s.mu.Lock()
	for key, ids := range r.known {
		for _, k := range ids {
			out[k.text] = key
		}
	}
	for _, ids := range r.dead {
		for _, k := range ids {
			delete(out, k.text)
		}
	}
	r.s.mu.Unlock()
	r.resting.each(func(d *rest) bool {
		out[d.text] = d.key
		return true
	})
	r.notes.mu.Lock()
	for text, t := range r.notes.byID {
		key := t.proof.Moved
		if key == (fileid.Key{}) {
			if id, err := fileid.Parse(text); err == nil {
				key = id.Key()
			}
		}
		out[text] = key
	}
	r.notes.mu.Unlock()
	for e := range r.rotated.widows {
		delete(out, e.text)
	}
	return out
}

// forgetKnown drops what the route had stored of a partition.
func (r *Reader) forgetKnown(id string, key fileid.Key) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if list := slices.DeleteFunc(r.known[key], func(k knownID) bool { return k.text == id }); len(list) > 0 {
		r.known[key] = list
	} else {
		delete(r.known, key)
	}
}
