package follow

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Catalogue tracks the files of a source for all of its routes. Its exported methods are safe for
// concurrent use.
//
// The lock mu guards the files. A route holds mu while it reads, but not while it waits or
// delivers. State that the Finisher or the writer of checkpoints needs has small locks of its own,
// so that neither of them waits for a read.
type Catalogue struct {
	o     Options
	place Place
	h     stream.Host
	log   *slog.Logger
	start time.Time // zero of the monotonic clock

	// The lock finishing is held while a source changes a file's name, until the catalogue knows
	// the new name. mu must not be locked while finishing is held.
	finishing sync.Mutex

	ids   identities
	wakes wakes
	idle  chan struct{} // Watch: a listing has found nothing
	limit openLimit
	held  atomic.Pointer[deletedFiles]

	mu       sync.Mutex // guards the fields below
	clock    clock
	strategy strategy
	readers  []*Reader
	running  bool
	over     error // why the routes have to stop

	finishedRoutes []string // routes that have read everything, with Once

	table       table
	pace        pace
	lister      lister
	handles     handles
	identify    identifier
	copies      copies
	rotation    rotation
	dormant     dormant
	watched     watched
	completions completions
	unpacker    unpacker
	head        [fileid.MaxHead + fileid.MaxBefore]byte
}

// New returns the catalogue of a source. Messages go to log. New starts no goroutine.
func New(place Place, o Options, h stream.Host, log *slog.Logger) *Catalogue {
	c := &Catalogue{
		o: o, place: place, h: h, log: log, start: time.Now(), clock: clock{settle: o.Settle}, ids: newIdentities(),
		idle: make(chan struct{}, 1), wakes: wakes{run: make(chan struct{}, 1)},
	}
	c.limit.n.Store(int64(o.OpenFiles))
	c.reset()
	return c
}

// reset removes all files from the catalogue, but keeps their identities (type Entry). The source
// may still rename, move or delete files that were read to their ends, and needs the identities for
// this.
func (c *Catalogue) reset() {
	c.table, c.pace, c.over, c.completions = newTable(), pace{}, nil, nil
	c.lister = lister{c: c, refused: make(map[string]refusal)}
	c.lister.folders = make(map[folderOn]bool)
	c.handles = handles{c: c}
	c.identify, c.copies = identifier{c: c}, copies{c: c}
	c.rotation, c.unpacker = newRotation(c), unpacker{c: c}
	c.dormant = dormant{c: c, table: newDormantTable()}
	c.watched = watched{c: c, pending: c.watched.pending}
	if c.grows() {
		c.strategy = &growing{c: c, o: c.o.Growing}
	} else {
		c.strategy = &quiet{c: c}
	}
}

// grows reports whether files may grow without end.
func (c *Catalogue) grows() bool { return c.o.Growing != nil }

// Calibrate sets the offset between the file system's clock and the local one. mtime is the
// modification time of a file that was written just now.
func (c *Catalogue) Calibrate(mtime time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = clock{settle: c.o.Settle}
	c.clock.calibrate(time.Now().UnixNano(), mtime.UnixNano())
}

// now returns the monotonic time since the catalogue was made.
func (c *Catalogue) now() time.Duration { return time.Since(c.start) }

// Open returns a reader for one route. It replaces the route's previous reader.
func (c *Catalogue) Open(o stream.OpenOptions) *Reader {
	r := newReader(c, o)
	for _, name := range counted {
		r.count(name, 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lister.opened = true
	r.opened = true
	c.join(r)
	if c.lister.first == 0 {
		c.pace.listed = c.now() // Run leaves the first listing to r
	}
	return r
}

// join adds a reader to the catalogue, which may have listed files already.
func (c *Catalogue) join(r *Reader) {
	var old *Reader // kept for the same route
	if i := slices.IndexFunc(c.readers, func(o *Reader) bool {
		return o.activity == absent && o.o.Route == r.o.Route
	}); i >= 0 {
		old = c.readers[i]
	}
	if old != nil {
		r.first = old.first
		c.ids.mu.Lock()
		r.unsaved = maps.Clone(old.unsaved)
		c.ids.mu.Unlock()
	}
	c.readers = append(c.readers, r)
	known := len(c.dormant.table.byKey) > 0
	stored := c.store(r)
	c.wakes.add(r.wake)
	c.pace.soon()
	c.lister.searchStored = true
	if r.first == 0 && c.lister.first > 0 {
		r.first = c.table.scans
	}
	if known {
		c.dormant.joined(r)
	}
	c.identify.claim(r, stored)
	for _, f := range c.files() {
		if f.entry == nil || f.entry.file != f || f.by(r) != nil { // gather may have moved its data
			continue
		}
		cur := r.begin(f, f.entry)
		if old != nil && f.by(old) != nil {
			// If old, the route's previous reader, still had to skip bytes of this file, r skips
			// them, too. There are two exceptions. If r has progress in the file, it resumes there.
			// The other exception is an old that was never opened, and did not know the stored
			// progress that r knows. Such an old may have skipped the file only because of FromEnd,
			// which applies to routes without progress.
			if cur.pos.Next == 0 && len(cur.pos.Above) == 0 && cur.entry == f.by(old).entry &&
				(old.opened || old.marked == r.marked) {
				cur.skipTo = f.by(old).skipTo
			}
			cur.unsettled = max(cur.unsettled, f.by(old).unsettled)
		}
	}
	if old != nil {
		r.reportLacking(old)
		c.warnClose("", c.leave(old))
	}
}

// store registers the marks (the stored progress) of a route, which is in c.readers already. It
// returns the identities of the files that they belong to, ordered by id, except dormant ones.
func (c *Catalogue) store(r *Reader) []*Entry {
	var out []*Entry
	if r.o.Known == nil {
		return nil
	}
	defer r.reportUnsaved()
	for m := range r.o.Known {
		r.marked = true
		given, moved, fingerprint, ok := c.placeOf(m)
		if !ok || c.completions.rejoin(r, m) || c.dormant.begin(r, m, moved, fingerprint) {
			continue
		}
		r.forgets.stored[m.Part.ID] = true
		if e := c.ids.store(given, moved, m.Part.ID, m.Part.Name); e != nil {
			out = append(out, e)
		} else {
			// An earlier reader of this route has read the file to its end or given it up, but the
			// route has not saved this yet. The stored progress is not needed any more.
			r.forgets.add(m.Part.ID)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int { return strings.Compare(a.text, b.text) })
	return out
}

// files returns all known files except dormant ones, ordered by label.
func (c *Catalogue) files() []*file {
	var out []*file
	for _, f := range c.table.byKey {
		out = append(out, f)
	}
	for f := range c.rotation.awaiting {
		out = append(out, f)
	}
	out = append(out, c.watched.files...)
	slices.SortFunc(out, byLabel)
	return out
}

// leave removes a reader. If no reader is left, it closes the files, unless Run is running.
func (c *Catalogue) leave(r *Reader) error {
	if r.activity == gone {
		return nil
	}
	r.activity = gone
	c.wakes.drop(r.wake)
	c.readers = slices.DeleteFunc(c.readers, func(o *Reader) bool { return o == r })
	r.queue = nil
	for _, f := range c.files() {
		if cur := f.by(r); cur != nil {
			f.cursors = slices.DeleteFunc(f.cursors, func(o *cursor) bool { return o == cur })
			if cur.own != nil {
				cur.own.Close()
			}
			c.ids.unref(cur.entry, r, cur.sealed)
			if cur.original != nil {
				c.ids.unref(cur.original.entry, r, false)
			}
			for ; cur != nil; cur = cur.original {
				if e := cur.entry; f.entry != e && e.file == f && !slices.Contains(f.entries(), e) {
					e.file = nil
				}
			}
		}
	}
	if len(c.readers) > 0 || c.running {
		return nil
	}
	return c.closeAll()
}

func (c *Catalogue) closeAll() error {
	var errs []error
	for _, f := range slices.Clone(c.handles.open) {
		errs = append(errs, f.close())
	}
	errs = append(errs, c.watched.closePending())
	c.ids.close()
	c.reset()
	return errors.Join(errs...)
}

// quietAt returns two monotonic times. The first is when a file will have been unchanged for the
// configured time (Settle), if it does not change before. The second is the current time. The
// parameters are those of [clock.quietAt].
func (c *Catalogue) quietAt(mtime stamp, since time.Duration) (at, now time.Duration) {
	t := time.Now()
	now = t.Sub(c.start)
	c.clock.observe(now, t.UnixNano())
	return c.clock.quietAt(now, t.UnixNano(), int64(mtime), since), now
}

func (c *Catalogue) warnClose(label string, err error) {
	if err != nil {
		c.log.Warn("a file could not be closed", "file", label, "error", err)
	}
}
