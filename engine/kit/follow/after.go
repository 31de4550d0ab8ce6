package follow

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

const (
	// firstLook is how soon a finished file is looked at again; each further wait is twice as long.
	firstLook = time.Second
	// maxWatched is how many finished files a reader looks at again.
	maxWatched = 10_000
)

// takeNews follows the files that the source has renamed, moved or deleted: their writers may go
// on.
func (r *Reader) takeNews() {
	r.s.finishing.Lock()
	r.s.mu.Lock()
	news := r.news
	r.news = nil
	r.s.mu.Unlock()
	r.s.finishing.Unlock()
	for _, n := range news {
		id := r.s.idOf(n.entry)
		f := r.byKey[id.Key()]
		if f == nil || f.entry != n.entry || n.dir == nil && n.handle == nil {
			if n.handle != nil {
				r.warnClose(n.name, n.handle.Close())
			}
			if n.dir == nil {
				r.gone.now(n.entry.text)
			}
			continue
		}
		delete(r.byKey, keyOf(f.info))
		if r.files[f.label] == f {
			delete(r.files, f.label)
		}
		r.closeFile(f)
		f.rename(n.dir, n.name, n.name)
		f.finished, f.orphan = true, false
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

func (r *Reader) closeNews() error {
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

// watchAgain begins the row of looks at a finished file.
func (r *Reader) watchAgain(f *file) {
	f.rare().checks, f.rare().nextLook = 0, r.s.now()+firstLook
}

// unwatch ends it.
func (r *Reader) unwatch(f *file) {
	if i := slices.Index(r.after, f); i >= 0 {
		r.after = slices.Delete(r.after, i, i+1)
	}
	r.closeFile(f)
	if f.dir == nil && f.part != nil {
		r.gone.now(f.part.ID)
	}
	r.release(f)
}

// countHeld tells the source how many deleted files are held open.
func (r *Reader) countHeld() {
	held := 0
	for _, f := range r.after {
		if f.dir == nil {
			held++
		}
	}
	r.s.mu.Lock()
	r.held = held
	r.s.mu.Unlock()
}

// lookAgain looks at the finished files whose time has come; those that have grown are read on.
func (r *Reader) lookAgain(now time.Duration) {
	var over []*file
	for _, f := range r.after {
		a := f.rare()
		if now < a.nextLook && !f.changed() {
			r.pace.dueAt(a.nextLook)
			continue
		}
		seen, err := f.statFinished()
		info := statOf(seen)
		if err != nil || !sameFile(info, f.info) {
			over = append(over, f)
			continue
		}
		if f.saw(info, now); f.view == nil && info.Size != f.cursor.Next || f.view != nil && (!f.sealed || info.Size != f.last) {
			continue // ready sees that it has changed
		}
		f.stampAt, f.stampLen = info.ModTime, info.Size
		if a.checks++; firstLook<<a.checks > r.s.o.Watch {
			over = append(over, f)
			continue
		}
		a.nextLook = now + firstLook<<a.checks
		r.pace.dueAt(a.nextLook)
	}
	for _, f := range over {
		r.unwatch(f)
	}
	if len(over) > 0 {
		r.countHeld()
	}
}

func (f *file) statFinished() (vfs.Info, error) {
	switch {
	case f.handle != nil:
		return f.handle.Stat()
	case f.dir != nil:
		return f.dir.Stat(f.name)
	}
	return vfs.Info{}, fs.ErrNotExist
}

// findFinished looks, once at the start, for finished files to which more was written while nothing
// ran.
func (r *Reader) findFinished() {
	if !r.marked {
		return
	}
	err := r.s.place.Finished(func(s Sight) {
		info := statOf(s.Info)
		if !r.hasGrown(info) {
			return
		}
		now := r.s.now()
		f := &file{
			dir: s.Dir, name: s.Name, label: s.Label, info: info, since: now, unread: max(now, 1), finished: true,
			aside: &aside{nextLook: now},
		}
		r.after = append(r.after, f)
	})
	if err != nil {
		r.s.h.Fault(fmt.Errorf("finished files cannot be listed; what was written to them since the last run is not seen: %w", err))
	}
}

// hasGrown says whether an earlier run has read less of a file than it now has.
func (r *Reader) hasGrown(info stat) bool {
	r.s.mu.Lock()
	ids := r.known[keyOf(info)]
	r.s.mu.Unlock()
	for _, k := range ids {
		if !isOf(k.id, info) {
			continue
		}
		m, ok := r.resume(k.text)
		size := highest(m)
		if proof := r.proofOf(m); proof.Packed > 0 {
			size = proof.Packed
		}
		if ok && size < info.Size {
			return true
		}
	}
	return false
}
