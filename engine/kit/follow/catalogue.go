package follow

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// idleSpacing is scanSpacing for listings that only keep the catalogue current.
const idleSpacing = 3 * scanSpacing

// Catalogue knows the files of a source, for all of its routes. Its methods are safe for concurrent use.
//
// One lock guards the files. It is held by the route that reads, and free while that route waits or delivers. What a
// source and the checkpoint ask for has small locks of its own, so that they wait for no reading.
type Catalogue struct {
	o     Options
	place Place
	h     stream.Host
	log   *slog.Logger
	start time.Time // zero of the monotonic clock

	// finishing is held from the change of a file's name by its source until the catalogue was told. Nobody takes mu while holding it.
	finishing sync.Mutex

	ids   identities
	wakes wakes
	idle  chan struct{} // Watch: a listing has found nothing
	limit openLimit
	held  atomic.Pointer[heldFiles]

	mu       sync.Mutex // guards what follows
	clock    clock
	strategy strategy
	readers  []*Reader
	running  bool
	over     error // why the routes have to stop

	finishedRoutes []string // that have read everything, with Once

	table    table
	pace     pace
	lister   lister
	handles  handles
	identify identifier
	copies   copies
	rotation rotation
	resting  resting
	watched  watched
	unpacker unpacker
	head     [fileid.MaxHead + fileid.MaxBefore]byte
}

// New returns the catalogue of a source whose messages go to log. It starts nothing.
func New(place Place, o Options, h stream.Host, log *slog.Logger) *Catalogue {
	c := &Catalogue{
		o: o, place: place, h: h, log: log, start: time.Now(), clock: clock{settle: o.Settle}, ids: newIdentities(),
		idle: make(chan struct{}, 1), wakes: wakes{run: make(chan struct{}, 1)},
	}
	c.limit.n.Store(int64(o.OpenFiles))
	c.reset()
	return c
}

// reset forgets the files. The identities stay: the source may still finish what was sealed.
func (c *Catalogue) reset() {
	c.table, c.pace, c.over = newTable(), pace{}, nil
	c.lister = lister{c: c, refused: make(map[string]string)}
	c.handles = handles{c: c}
	c.identify, c.copies = identifier{c: c}, copies{c: c}
	c.rotation, c.unpacker = newRotation(c), unpacker{c: c}
	c.resting = resting{c: c, rests: newRests(c.o.Growing != nil)}
	c.watched = watched{c: c, news: c.watched.news}
	if c.o.Growing != nil {
		c.strategy = &growing{c: c, o: c.o.Growing}
	} else {
		c.strategy = &quiet{c: c}
	}
}

// Calibrate tells the catalogue the time of the last change that the file system gave a file which was written just now.
func (c *Catalogue) Calibrate(mtime time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = clock{settle: c.o.Settle}
	c.clock.calibrate(time.Now().UnixNano(), mtime.UnixNano())
}

// now returns the monotonic time since the catalogue was made.
func (c *Catalogue) now() time.Duration { return time.Since(c.start) }

// Open returns a reader for one route. It takes the cursors of the route's last one.
func (c *Catalogue) Open(o stream.OpenOptions) *Reader {
	r := newReader(c, o)
	for _, name := range counted {
		r.count(name, 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.join(r)
	return r
}

// join adds a reader to those of the catalogue, which may be running.
func (c *Catalogue) join(r *Reader) {
	old := c.absent(r.o.Route)
	if old != nil {
		c.bringUpToDate()
		r.first = old.first
	}
	stored := c.store(r)
	c.readers = append(c.readers, r)
	c.wakes.add(r.wake)
	c.pace.soon()
	c.lister.unmet = true
	if c.table.scans == 0 {
		return
	}
	if r.first == 0 && c.lister.begun {
		r.first = c.table.scans
	}
	c.resting.joined(r)
	c.identify.claim(r, stored)
	for _, f := range c.files() {
		if f.entry == nil || f.by(r) != nil {
			continue
		}
		cur := r.begin(f, f.entry)
		if old != nil && f.by(old) != nil {
			cur.skipTo = f.by(old).skipTo
		}
	}
	if old != nil {
		c.warnClose("", c.leave(old))
	}
}

// store takes what a route has stored, and returns the identities in order.
func (c *Catalogue) store(r *Reader) []*Entry {
	var out []*Entry
	if r.o.Known == nil {
		return nil
	}
	for m := range r.o.Known {
		r.marked = true
		given, moved, ok := c.placeOf(m)
		if !ok {
			continue
		}
		r.forgets.stored[m.Part.ID] = true
		if e := c.ids.store(given, moved, m.Part.ID, m.Part.Name); e != nil {
			out = append(out, e)
		} else {
			r.forgets.now(m.Part.ID) // its file was read to its end, or given up, by a reader that did not save it
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int { return strings.Compare(a.text, b.text) })
	return out
}

// files returns all files that are known, but for those that rest.
func (c *Catalogue) files() []*file {
	var out []*file
	for _, f := range c.table.byKey {
		out = append(out, f)
	}
	for _, f := range c.rotation.waiting {
		out = append(out, f)
	}
	out = append(out, c.watched.files...)
	slices.SortFunc(out, byLabel)
	return out
}

// absent returns the reader that stands for a route that has none now, nil if there is none.
func (c *Catalogue) absent(route string) *Reader {
	i := slices.IndexFunc(c.readers, func(r *Reader) bool { return r.attendance == absent && r.o.Route == route })
	if i < 0 {
		return nil
	}
	return c.readers[i]
}

// leave takes a reader off the list. The last one closes the files.
func (c *Catalogue) leave(r *Reader) error {
	if r.attendance == gone {
		return nil
	}
	r.attendance = gone
	c.wakes.drop(r.wake)
	c.readers = slices.DeleteFunc(c.readers, func(o *Reader) bool { return o == r })
	for _, f := range r.queue {
		f.queues--
	}
	r.queue = nil
	for _, f := range c.files() {
		if cur := f.by(r); cur != nil {
			f.cursors = slices.DeleteFunc(f.cursors, func(o *cursor) bool { return o == cur })
			if cur.own != nil {
				cur.own.Close()
			}
			c.ids.unref(cur.entry, r, cur.sealed)
		}
	}
	if len(c.readers) > 0 || c.running {
		return nil
	}
	return c.closeAll()
}

// closeAll gives everything back.
func (c *Catalogue) closeAll() error {
	var errs []error
	for _, f := range slices.Clone(c.handles.open) {
		errs = append(errs, f.close())
	}
	c.unpacker.decoders.Close()
	errs = append(errs, c.watched.closeNews())
	c.ids.close()
	c.reset()
	return errors.Join(errs...)
}

// bringUpToDate lists the files: the first listing shows which files were rotated, the second one finds where they went.
func (c *Catalogue) bringUpToDate() {
	if c.o.Growing == nil {
		return
	}
	for range 2 {
		c.list(nil)
		for _, f := range c.pending() {
			c.lookAt(f)
		}
	}
}

// Run lists the files while no route does, until ctx is done. So a rotation, deletion or compression during an outage is
// followed as it happens, and files are opened before they disappear. While it runs, the files stay open for the routes
// that wait for their restart. Call it once per Catalogue. It returns at once unless files may grow.
func (c *Catalogue) Run(ctx context.Context) error {
	if c.o.Growing == nil {
		return nil
	}
	c.mu.Lock()
	c.running = true
	c.mu.Unlock()
	defer c.stop()
	c.CheckLimit()
	t := time.NewTimer(c.o.PollMax)
	defer t.Stop()
	for {
		least := c.o.PollMax
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-c.wakes.run:
			least = c.o.PollMin
			t.Reset(least)
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			}
		}
		c.attend(ctx, least)
		t.Reset(c.o.PollMax)
	}
}

func (c *Catalogue) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	for _, r := range slices.Clone(c.readers) {
		if r.attendance == absent {
			c.warnClose("", c.leave(r))
		}
	}
	if len(c.readers) == 0 {
		c.warnClose("", c.closeAll())
	}
}

// attend brings the catalogue up to date if no route has listed the files for as long as least, and looks at what changed.
func (c *Catalogue) attend(ctx context.Context, least time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meetRoutes()
	if len(c.readers) == 0 {
		c.warnClose("", c.closeAll())
		return
	}
	if c.now() < c.pace.listed+max(least, idleSpacing*c.pace.took) {
		return
	}
	working := false
	for _, r := range c.readers {
		if r.attendance == waiting {
			return // it lists the files itself
		}
		working = working || r.attendance != done
	}
	if !working {
		return
	}
	c.list(nil)
	scan := c.table.scans
	for _, f := range c.pending() {
		c.mu.Unlock() // for a route that reads
		c.mu.Lock()
		if ctx.Err() != nil || c.table.scans != scan {
			return
		}
		c.lookAt(f)
	}
}

// meetRoutes gives each route of the source a reader, and drops those of routes that the source no longer has.
func (c *Catalogue) meetRoutes() {
	h, ok := c.h.(stream.SourceHost)
	if !ok {
		return
	}
	routes := h.Routes()
	for _, r := range slices.Clone(c.readers) {
		if r.attendance == absent && !slices.Contains(routes, r.o.Route) {
			c.warnClose("", c.leave(r))
		}
	}
	for _, route := range routes {
		of := func(r *Reader) bool { return r.o.Route == route }
		if slices.ContainsFunc(c.readers, of) || slices.Contains(c.finishedRoutes, route) {
			continue
		}
		r := newReader(c, stream.OpenOptions{Route: route})
		c.join(r)
		r.attendance = absent
	}
}

// pending returns the files in which any route has something to do, those that changed last, at most half of the limit of
// open files.
func (c *Catalogue) pending() []*file {
	var out []*file
	seen := make(map[*file]bool)
	for _, r := range c.readers {
		for _, f := range c.lister.todo(r, c.now()) {
			if !seen[f] {
				seen[f] = true
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, compareTimes)
	most := max(1, c.limit.get()/2)
	return out[max(0, len(out)-most):]
}

// lookAt recognises and opens one file.
func (c *Catalogue) lookAt(f *file) {
	if !c.table.has(f) {
		return
	}
	if _, ok := c.establish(f, nil); !ok {
		return
	}
	for _, cur := range slices.Clone(f.cursors) {
		if cur.f == f && cur.changed() && !c.stillStands(cur) {
			return
		}
	}
	f.look()
}

// look remembers what stands in a file of which nothing was read, to find it again in a copy.
func (f *file) look() {
	if f.view != nil || !f.blank() || f.info.Size == 0 || f.handle == nil {
		return
	}
	head, before := make([]byte, min(f.info.Size, fileid.MaxHead)), make([]byte, min(f.info.Size, fileid.MaxBefore))
	if f.readFull(head, 0) != nil || f.readFull(before, f.info.Size-int64(len(before))) != nil {
		return // the next look tells why
	}
	p := fileid.Proof{}.WithHead(head).WithPlace(f.info.Size, before)
	p.ModTime = int64(f.info.ModTime)
	f.rare().glimpse = p
}

// quietAt returns the monotonic time at which a file will have been quiet for settle, and now.
func (c *Catalogue) quietAt(mtime stamp, since time.Duration) (at, now time.Duration) {
	t := time.Now()
	now = t.Sub(c.start)
	c.clock.look(now, t.UnixNano())
	return c.clock.quietAt(now, t.UnixNano(), int64(mtime), since), now
}

func (c *Catalogue) warnClose(label string, err error) {
	if err != nil {
		c.log.Warn("a file could not be closed", "file", label, "error", err)
	}
}
