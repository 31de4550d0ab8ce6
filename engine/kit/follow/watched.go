package follow

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

const (
	// firstLook is the wait before a finished file is checked again. Each further wait is twice as
	// long.
	firstLook = time.Second
	// maxWatched is the maximum number of finished files that are checked again.
	maxWatched = 10_000
	// maxHeld is the maximum number of deleted files held open in case their writers continue.
	maxHeld = 64
)

// watched are the files that the source has finished. They are checked again at growing intervals,
// because their writers may continue.
type watched struct {
	c           *Catalogue
	files       []*file        // oldest first
	pending     []finishedFile // guarded by identities.mu
	openDeleted int            // deleted files that are held open; guarded by identities.mu
}

// finishedFile tells the catalogue about a file that its source finished.
type finishedFile struct {
	entry  *Entry
	dir    Dir // nil: it was deleted
	name   string
	handle vfs.File // of a deleted file; nil: too many are held
}

// takeFinished follows the files that the source has renamed, moved or deleted.
func (a *watched) takeFinished() {
	c := a.c
	c.finishing.Lock()
	c.ids.mu.Lock()
	pending := a.pending
	a.pending = nil
	c.ids.mu.Unlock()
	c.finishing.Unlock()
	for _, n := range pending {
		f := n.entry.file
		isFollowed := f != nil && f.entry == n.entry && c.table.has(f)
		isGone := n.dir == nil && n.handle == nil
		if !isFollowed || isGone {
			if n.handle != nil {
				c.warnClose(n.name, n.handle.Close())
			}
			if isFollowed && f.all((*cursor).isFinished) {
				c.end(f)
			}
			if n.dir == nil {
				a.forget(n.entry)
			}
			continue
		}
		c.table.remove(f)
		c.handles.close(f)
		f.rename(n.dir, n.name, n.name)
		f.state = f.state.on(isFinished)
		if n.handle != nil {
			c.handles.add(f, n.handle)
		}
		a.files = append(a.files, f)
		a.restartChecks(f)
	}
	for len(a.files) > maxWatched {
		a.drop(a.files[0])
	}
	a.countOpenDeleted()
}

// forget makes the routes drop their progress of a deleted file.
func (a *watched) forget(e *Entry) {
	for _, r := range a.c.readers {
		r.forgets.add(e.text)
	}
}

func (a *watched) closePending() error {
	a.c.ids.mu.Lock()
	defer a.c.ids.mu.Unlock()
	var errs []error
	for _, n := range a.pending {
		if n.handle != nil {
			errs = append(errs, n.handle.Close())
		}
	}
	a.pending = nil
	return errors.Join(errs...)
}

func (a *watched) restartChecks(f *file) {
	f.ensureExtras().checks, f.ensureExtras().nextLook = 0, a.c.now()+firstLook
}

// drop ends the checks of a finished file.
func (a *watched) drop(f *file) {
	if i := slices.Index(a.files, f); i >= 0 {
		a.files = slices.Delete(a.files, i, i+1)
	}
	a.c.handles.close(f)
	f.dropView()
	f.state = f.state.on(ends)
	if f.dir == nil && f.entry != nil {
		a.forget(f.entry)
	}
	a.c.release(f)
}

// countOpenDeleted updates the number of deleted files that are held open.
func (a *watched) countOpenDeleted() {
	held := 0
	for _, f := range a.files {
		if f.dir == nil {
			held++
		}
	}
	a.c.ids.mu.Lock()
	defer a.c.ids.mu.Unlock()
	a.openDeleted = held
}

// recheck checks the finished files that are due. Reading of grown ones continues.
func (a *watched) recheck(now time.Duration) {
	c := a.c
	var over []*file
	for _, f := range a.files {
		aside := f.ensureExtras()
		unchanged := func(cur *cursor) bool { return !cur.changed() }
		if now < aside.nextLook && f.entry == nil || now < aside.nextLook && f.all(unchanged) {
			c.pace.dueAt(aside.nextLook)
			continue
		}
		seen, err := vfs.Info{}, fs.ErrNotExist
		if f.handle != nil {
			seen, err = f.handle.Stat()
		} else if f.dir != nil {
			seen, err = f.dir.Stat(f.name)
		}
		info := statOf(seen)
		if err != nil || !sameFile(info, f.info) {
			over = append(over, f)
			continue
		}
		f.update(info, now)
		asRead := func(cur *cursor) bool {
			return f.view == nil && info.Size == cur.pos.Next || f.view != nil && cur.sealed && info.Size == cur.last
		}
		if f.entry == nil || !f.all(asRead) {
			continue // ready sees that it has changed
		}
		for _, cur := range f.cursors {
			cur.verified.at, cur.verified.size = info.ModTime, info.Size
		}
		if aside.checks++; firstLook<<aside.checks > c.o.Watch {
			over = append(over, f)
			continue
		}
		aside.nextLook = now + firstLook<<aside.checks
		c.pace.dueAt(aside.nextLook)
	}
	for _, f := range over {
		a.drop(f)
	}
	if len(over) > 0 {
		a.countOpenDeleted()
	}
}

// findGrown looks, once at the start, for finished files that have grown since the last run.
func (a *watched) findGrown() {
	c := a.c
	if c.ids.isEmpty() { // no finished file has progress
		return
	}
	err := c.place.Finished(func(s Listed) {
		info := statOf(s.Info)
		if !a.hasGrown(info) {
			return
		}
		f := newFile(s, info, c.now(), 0)
		f.state, f.extras = finished, &extras{nextLook: f.since}
		a.files = append(a.files, f)
	})
	if err != nil {
		c.h.Fault(fmt.Errorf("finished files cannot be listed; what was written to them since "+
			"the last run is not seen: %w", err))
	}
}

// hasGrown reports whether an earlier run has read less of a file than it now has.
func (a *watched) hasGrown(info stat) bool {
	for _, e := range a.c.ids.at(info) {
		for _, m := range a.c.identify.marks(e) {
			if cmp.Or(fingerprintOf(m.mark).Packed, highest(m.mark)) < info.Size {
				return true
			}
		}
	}
	return false
}
