package follow

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// idleSpacing is scanSpacing for listings that only keep a reader current.
const idleSpacing = 3 * scanSpacing

// catalogue keeps readers current while their routes do not read: it lists the files for them,
// recognises each file while it still has the name by which that is possible, and opens files
// before they disappear. So a rotation, deletion or compression during an outage is followed as it
// happens.
//
//	reader   route                 listed by
//	reading  calls Read            Read
//	stalled  waits for its sink    the catalogue
//	closed   waits for a restart   the catalogue; the route's next reader takes over the files
//	         has not started yet   the same
//
// Its methods are safe for concurrent use.
type catalogue struct {
	s       *Set
	wake    chan struct{} // a notification came
	running bool          // guarded by s.mu
	use     budgetUse     // guarded by s.mu
	ended   []string      // routes that have read everything, with Once; guarded by s.mu
}

// attendance is what the catalogue and a route share of a reader.
type attendance struct {
	mu      sync.Mutex                 // held while the reader is used, except while Read waits for a listing
	waiting bool                       // Read waits, and lists the files itself
	reads   uint64                     // calls of lock by the route
	ended   bool                       // Read has returned io.EOF
	closed  bool                       // by its route; guarded by Set.mu
	carried []*file                    // of the route's last reader; empty after the first listing
	deleted map[fileid.Key]deletedFile // guarded by Set.mu; replaced, never changed
	unsaved map[string]unsavedFile     // by partition; guarded by Set.mu
}

func (a *attendance) lock() {
	a.mu.Lock()
	a.waiting = false
	a.reads++
}

func (a *attendance) unlock() { a.mu.Unlock() }

// wait is unlock while Read waits.
func (a *attendance) wait() {
	a.waiting = true
	a.mu.Unlock()
}

// Run lists the files for the readers whose routes do not read, until ctx is done. While it runs, a
// closed reader's files stay open for the next reader of the same route. Call it once per Set. It
// returns at once unless files may grow.
func (s *Set) Run(ctx context.Context) error {
	if s.o.Growing == nil {
		return nil
	}
	return s.catalogue.run(ctx)
}

func (c *catalogue) run(ctx context.Context) error {
	c.s.mu.Lock()
	c.running = true
	c.s.mu.Unlock()
	defer c.stop()
	c.s.CheckLimit()
	t := time.NewTimer(c.s.o.PollMax)
	defer t.Stop()
	for {
		least := c.s.o.PollMax
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-c.wake:
			least = c.s.o.PollMin
			t.Reset(least)
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			}
		}
		for _, r := range c.readers() {
			if ctx.Err() != nil {
				return nil
			}
			c.attend(ctx, r, least)
		}
		t.Reset(c.s.o.PollMax)
	}
}

// readers returns the readers of all routes. A route that has none yet gets one that counts as
// closed; the closed reader of a route that the source no longer has is dropped.
func (c *catalogue) readers() []*Reader {
	h, ok := c.s.h.(stream.SourceHost)
	if !ok {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return slices.Clone(c.s.readers)
	}
	routes := h.Routes()
	c.shutDown(func(r *Reader) bool { return !slices.Contains(routes, r.o.Route) })
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, route := range routes {
		of := func(r *Reader) bool { return r.o.Route == route }
		if slices.ContainsFunc(c.s.readers, of) || slices.Contains(c.ended, route) {
			continue
		}
		r := newReader(c.s, stream.OpenOptions{Route: route})
		r.attended.closed = true
		c.s.readers = append(c.s.readers, r)
	}
	return slices.Clone(c.s.readers)
}

// stop gives back the files of closed readers.
func (c *catalogue) stop() {
	c.s.mu.Lock()
	c.running = false
	c.s.mu.Unlock()
	c.shutDown(func(*Reader) bool { return true })
}

// shutDown gives back the files of those closed readers of which over is true.
func (c *catalogue) shutDown(over func(*Reader) bool) {
	c.s.mu.Lock()
	closed := slices.DeleteFunc(slices.Clone(c.s.readers), func(r *Reader) bool { return !r.attended.closed || !over(r) })
	c.s.mu.Unlock()
	for _, r := range closed {
		c.warnClose(r.shutDown())
	}
}

func (c *catalogue) warnClose(err error) {
	if err != nil {
		c.s.log.Warn("files that were held open for a route could not be closed", "error", err)
	}
}

// attend brings r up to date if its route has not listed the files for as long as least.
func (c *catalogue) attend(ctx context.Context, r *Reader, least time.Duration) {
	files, reads := c.list(r, least)
	for _, f := range files {
		if ctx.Err() != nil || !c.look(r, f, reads) {
			return
		}
	}
}

// list lists the files for r, and returns the files to be looked at, and how often the route had
// read.
func (c *catalogue) list(r *Reader, least time.Duration) ([]*file, uint64) {
	a := &r.attended
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting || a.ended || r.closed || r.s.now() < r.pace.listed+max(least, idleSpacing*r.pace.took) {
		return nil, 0
	}
	r.list()
	r.s.listed(r, false) // so that notifications are asked for
	most := max(1, r.s.open.get()/2)
	return slices.Clone(r.queue[max(0, len(r.queue)-most):]), a.reads // those that changed last
}

// look recognises and opens one file. It reports whether the route has not read meanwhile.
func (c *catalogue) look(r *Reader, f *file, reads uint64) bool {
	a := &r.attended
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.closed || a.reads != reads {
		return false
	}
	if f.lost || r.byKey[keyOf(f.info)] != f {
		return true
	}
	if _, later, ok := r.establish(f); ok && (!later || !f.changed() || r.stands(f)) {
		c.glimpse(f)
	}
	return true
}

// glimpse remembers what stands in a file of which nothing was read, to find it again in a copy.
func (c *catalogue) glimpse(f *file) {
	if f.view != nil || !f.blank() || f.info.Size == 0 {
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

// shows reports whether f, which begins with head, holds the bytes that were seen in the widow w,
// of which nothing was read, and is no older than they are.
func shows(f, w *file, head []byte) bool {
	p := w.aside.glimpse
	if p.At == 0 || int64(f.info.ModTime) < p.ModTime {
		return false
	}
	var before [fileid.MaxBefore]byte
	ok, err := f.fits(p, head, before[:])
	return ok && err == nil
}

// keep reports whether r, which its route has closed, is kept current for the next reader of the
// route.
func (c *catalogue) keep(r *Reader) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if r.attended.ended {
		c.ended = append(c.ended, r.o.Route)
	}
	if !r.attended.closed && (!c.running || r.closed || r.attended.ended) {
		return false
	}
	r.attended.closed = true
	return true
}

// succeed makes r the successor of the closed reader of its route, if there is one.
func (c *catalogue) succeed(r *Reader) {
	c.s.mu.Lock()
	i := slices.IndexFunc(c.s.readers, func(o *Reader) bool { return o.attended.closed && o.o.Route == r.o.Route })
	var old *Reader
	if i >= 0 {
		old = c.s.readers[i]
	}
	c.s.mu.Unlock()
	if old == nil {
		return
	}
	for range 2 { // the first listing shows which files were rotated, the second one finds where they went
		c.attend(context.Background(), old, 0)
	}
	r.attended.carried = c.handOver(old)
	c.warnClose(old.shutDown())
}

// handOver takes from old its open files, and the files that only old knows.
func (c *catalogue) handOver(old *Reader) []*file {
	old.attended.mu.Lock()
	defer old.attended.mu.Unlock()
	out := append(old.attended.carried, c.unsaved(old)...)
	old.attended.carried = nil
	for _, f := range slices.SortedFunc(maps.Values(old.byKey), byLabel) {
		if f.lost || f.handle == nil && !f.beside {
			continue
		}
		out = append(out, bare(f))
		f.dropView()
		f.handle = nil
	}
	for _, f := range old.rotated.strays {
		out = append(out, bare(f))
	}
	old.rotated.strays = nil
	return out
}

// bare returns f as it was before it was recognised.
func bare(f *file) *file {
	g := &file{
		dir: f.dir, name: f.name, label: f.label, info: f.info, handle: f.handle, since: f.since, unread: f.unread,
		nameless: f.nameless, orphan: f.orphan, beside: f.beside, fromEnd: f.fromEnd,
	}
	if f.aside != nil && f.aside.listed != "" {
		g.rare().listed = f.aside.listed
	}
	return g
}

// meetCarried has r meet the files of the route's last reader, of which the listing lacks those
// without a name.
func (c *catalogue) meetCarried(r *Reader, now time.Duration) {
	for _, f := range r.attended.carried {
		f.fromEnd = f.fromEnd && !r.marked
		key := keyOf(f.info)
		g := r.byKey[key]
		switch {
		case r.resting.get(key) != nil, g != nil && (f.handle == nil || g.handle != nil || !sameFile(f.info, g.info)):
			r.warnClose(f.label, f.close())
		case g != nil:
			r.makeRoom()
			g.handle = f.handle
			r.open = append(r.open, g)
		case f.handle == nil && !f.beside:
			f.held = now + r.grow.CopyWait
			r.rotated.strays = append(r.rotated.strays, f)
		default:
			if !f.orphan {
				f.orphan, f.nameless = true, now
			}
			f.scan = r.scans
			r.byKey[key] = f
			if f.handle != nil {
				r.makeRoom()
				r.open = append(r.open, f)
			}
		}
	}
	r.attended.carried = nil
}

// drop takes r off the list of readers.
func (c *catalogue) drop(r *Reader) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.readers = slices.DeleteFunc(c.s.readers, func(o *Reader) bool { return o == r })
}
