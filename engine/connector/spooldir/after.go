package spooldir

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// firstLook is how soon a finished file is looked at again; each further wait is twice as long.
const firstLook = time.Second

// takeNews follows the files that Finish has renamed, moved or deleted: their writers may go on.
func (r *reader) takeNews() {
	r.s.finishing.Lock()
	r.s.mu.Lock()
	news := r.news
	r.news = nil
	r.s.mu.Unlock()
	r.s.finishing.Unlock()
	for _, n := range news {
		f := r.byKey[n.entry.id.Key()]
		if f == nil || f.entry != n.entry || n.where == nowhere && n.handle == nil {
			if n.handle != nil {
				r.warnClose(n.name, n.handle.Close())
			}
			continue
		}
		delete(r.byKey, keyOf(f.info))
		if r.files[f.name] == f {
			delete(r.files, f.name)
		}
		r.closeFile(f)
		f.rename(n.name)
		f.where, f.finished, f.orphan = n.where, true, false
		if n.handle != nil {
			r.makeRoom()
			f.handle = n.handle
			r.open = append(r.open, f)
		}
		r.after = append(r.after, f)
		r.watchAgain(f)
	}
	for len(r.after) > maxWatched {
		r.unwatch(r.after[0])
	}
	r.countHeld()
}

func (r *reader) closeNews() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var errs []error
	for _, n := range r.news {
		if n.handle != nil {
			errs = append(errs, n.handle.Close())
		}
	}
	r.news = nil
	return errors.Join(errs...)
}

func (r *reader) warnClose(name string, err error) {
	if err != nil {
		r.s.log.Warn("a file that was read could not be closed", "file", name, "error", err)
	}
}

// watchAgain begins the row of looks at a finished file.
func (r *reader) watchAgain(f *file) {
	f.checks, f.nextLook = 0, r.s.now()+firstLook
}

// unwatch ends it.
func (r *reader) unwatch(f *file) {
	if i := slices.Index(r.after, f); i >= 0 {
		r.after = slices.Delete(r.after, i, i+1)
	}
	r.closeFile(f)
	r.release(f)
}

// countHeld tells Finish how many deleted files are held open.
func (r *reader) countHeld() {
	held := 0
	for _, f := range r.after {
		if f.where == nowhere {
			held++
		}
	}
	r.s.mu.Lock()
	r.held = held
	r.s.mu.Unlock()
}

// lookAgain looks at the finished files whose time has come; those that have grown are read on.
func (r *reader) lookAgain(now time.Duration) {
	var over []*file
	for _, f := range r.after {
		if now < f.nextLook && !f.changed() {
			r.dueAt(f.nextLook)
			continue
		}
		info, err := r.statFinished(f)
		if err != nil || !sameFile(info, f.info) {
			over = append(over, f)
			continue
		}
		if f.saw(info, now); info.Size != f.cursor.Next {
			continue // ready sees that it has changed
		}
		f.stampAt, f.stampLen = info.ModTime, info.Size
		if f.checks++; firstLook<<f.checks > r.s.o.Watch {
			over = append(over, f)
			continue
		}
		f.nextLook = now + firstLook<<f.checks
		r.dueAt(f.nextLook)
	}
	for _, f := range over {
		r.unwatch(f)
	}
	if len(over) > 0 {
		r.countHeld()
	}
}

func (r *reader) statFinished(f *file) (vfs.Info, error) {
	switch {
	case f.handle != nil:
		return f.handle.Stat()
	case f.where == inMoved:
		return r.s.moved.Stat(f.name)
	case f.where == inSpool:
		return r.s.dir.Stat(f.name)
	}
	return vfs.Info{}, fs.ErrNotExist
}

// findFinished looks, once, for finished files of earlier runs that have grown since.
func (r *reader) findFinished() {
	if !r.marked {
		return
	}
	r.findGrown(r.s.dir, inSpool)
	if r.s.moved != nil {
		r.findGrown(r.s.moved, inMoved)
	}
}

func (r *reader) findGrown(dir vfs.Dir, where place) {
	entries, err := dir.Entries(".")
	if err != nil {
		r.s.log.Warn("finished files cannot be listed; what was written to them since the last run is not seen", "error", err)
		return
	}
	for _, e := range entries {
		if !e.Type.IsRegular() || where == inSpool && !r.s.names.done(path.Base(e.Name)) {
			continue
		}
		info, err := dir.Stat(e.Name)
		if err != nil || !r.hasGrown(info) {
			continue
		}
		now := r.s.now()
		f := &file{name: e.Name, where: where, info: info, since: now, unread: max(now, 1), finished: true}
		f.nextLook = now
		r.after = append(r.after, f)
	}
}

// hasGrown says whether an earlier run has read less of a file than it now has.
func (r *reader) hasGrown(info vfs.Info) bool {
	r.s.mu.Lock()
	ids := r.known[keyOf(info)]
	r.s.mu.Unlock()
	for _, id := range ids {
		if id.Birth != 0 && !info.Birth.IsZero() && info.Birth.UnixNano() != id.Birth {
			continue
		}
		if m, ok := r.resume(id.String()); ok && highest(m) < info.Size {
			return true
		}
	}
	return false
}
