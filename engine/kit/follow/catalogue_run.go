package follow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// idleSpacing replaces scanSpacing for the listings of Run, which only keep the catalogue current:
// the wait between two of them is at least idleSpacing times the duration of the first one.
const idleSpacing = 3 * scanSpacing

// Run lists the files while no route does so, until ctx is done. Rotations, deletions and
// compressions are therefore followed while the routes do not read, for example during an outage of
// the receiver. Run also opens changed files, so that they can be read after they are deleted.
// While Run is running, files stay open for the routes that wait for their restart. Call it once
// per Catalogue. Run returns at once unless files may grow.
func (c *Catalogue) Run(ctx context.Context) error {
	if !c.grows() {
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
		c.listIfDue(ctx, least)
		t.Reset(c.o.PollMax)
	}
}

func (c *Catalogue) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	for _, r := range slices.Clone(c.readers) {
		if r.activity == absent {
			r.reportUndelivered()
			c.warnClose("", c.leave(r))
		}
	}
	if len(c.readers) == 0 {
		c.warnClose("", c.closeAll())
	}
}

// listIfDue lists the files and looks at the changed ones. It lists nothing if all routes are done,
// if a waiting route lists the files itself, or if the last listing was too recent. The minimum
// time since the last listing is the parameter least, or idleSpacing times the duration of that
// listing if this is longer.
func (c *Catalogue) listIfDue(ctx context.Context, least time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.updateRoutes() // list reports the error
	if len(c.readers) == 0 {
		c.warnClose("", c.closeAll())
		return
	}
	if c.now() < c.pace.listed+max(least, idleSpacing*c.pace.took) {
		return
	}
	working := false
	for _, r := range c.readers {
		if r.activity == waiting {
			return // it lists the files itself
		}
		working = working || r.activity != done
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
		c.identifyAndOpen(f)
	}
}

// updateRoutes adds a reader for each route of the source that has none and is not done. This
// reader is absent: it stands for a route that is not open yet. It has the stored progress of the
// route, so that a listing recognises all files that any route has read. updateRoutes also removes
// the absent readers of routes that the source no longer has. It does nothing unless files may
// grow.
func (c *Catalogue) updateRoutes() error {
	h, ok := c.h.(stream.SourceHost)
	if !ok || !c.grows() {
		return nil
	}
	routes := h.Routes()
	for _, r := range slices.Clone(c.readers) {
		if r.activity == absent && !slices.Contains(routes, r.o.Route) {
			c.warnClose("", c.leave(r))
		}
	}
	for _, route := range routes {
		of := func(r *Reader) bool { return r.o.Route == route }
		if slices.ContainsFunc(c.readers, of) || slices.Contains(c.finishedRoutes, route) {
			continue
		}
		o, err := h.Progress(route)
		if err != nil {
			return fmt.Errorf("progress of route %q: %w", route, err)
		}
		r := newReader(c, o)
		r.activity = absent
		c.join(r)
	}
	return nil
}

// pending returns the files in which any route has something to do. If there are too many, it
// returns the most recently changed ones. Their number is at most half of the limit of open files.
func (c *Catalogue) pending() []*file {
	var out []*file
	seen := make(map[*file]bool)
	for _, r := range c.readers {
		for _, f := range c.lister.filesToRead(r, c.now()) {
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

func (c *Catalogue) identifyAndOpen(f *file) {
	if !c.table.has(f) {
		return
	}
	if _, ok := c.establish(f, nil); !ok {
		return
	}
	for _, cur := range slices.Clone(f.cursors) {
		if cur.f == f && cur.changed() && !c.isStillIntact(cur) {
			return
		}
	}
	f.recordUnread()
}

// recordUnread records the beginning and end of an unread file, so that a copy of it can be
// recognised.
func (f *file) recordUnread() {
	if f.view != nil || !f.blank() || f.info.Size == 0 || f.handle == nil {
		return
	}
	head, err := f.readHead(make([]byte, fileid.MaxHead))
	if err != nil {
		return // the next look reports the reason
	}
	p, err := f.fingerprintAt(f.info.Size, head)
	if err != nil {
		return
	}
	p.ModTime = int64(f.info.ModTime)
	f.ensureExtras().unreadFingerprint = p
}
