package follow

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

// handles are the open files of a source, once for all routes. If there are too many, the least
// recently used ones are closed.
type handles struct {
	c             *Catalogue
	open          []*file
	closedForRoom []*file // growing: listed files without an open handle that may become dormant
	keep          *file   // being compared with others, must stay open; nil: none
}

// refresh opens f if necessary, and stats it by its handle. It returns false if f cannot be read
// now.
func (h *handles) refresh(f *file) bool {
	if !h.restat(f) {
		return false
	}
	f.refreshedAt = h.c.now()
	err := h.c.unpacker.findView(f)
	if err == nil {
		err = f.attachViews()
	}
	if err != nil {
		h.fail(f, err)
		return false
	}
	return true
}

// restat opens f if necessary, and stats it by its handle. It returns false if f cannot be read
// now; f then has no handle. If f.trouble is nil as well, the name of f leads to no file, or to
// another one.
func (h *handles) restat(f *file) bool {
	fresh := f.handle == nil
	if fresh && !h.openFile(f) {
		return false
	}
	now := h.c.now()
	seen, err := statHandle(f.handle, fresh)
	if err != nil {
		h.fail(f, err)
		return false
	}
	info := statOf(seen)
	if !sameFile(info, f.info) {
		h.close(f)
		f.trouble = nil
		h.c.pace.soon() // the next listing shows its new state
		return false
	}
	f.update(info, now)
	return true
}

// statHandle returns the stat of an open file. If the file was opened just now (fresh), statHandle
// uses the stat that was made when the file was opened, if the handle contains it.
func statHandle(h vfs.File, fresh bool) (vfs.Info, error) {
	if o, ok := h.(vfs.OpenStater); ok && fresh {
		if info, ok := o.OpenInfo(); ok {
			return info, nil
		}
	}
	return h.Stat()
}

func (h *handles) openFile(f *file) bool {
	var handle vfs.File
	err := fs.ErrNotExist
	if f.dir != nil {
		handle, err = vfs.OpenRegular(f.dir, f.name)
		if outOfDescriptors(err) && h.openFewer() {
			handle, err = vfs.OpenRegular(f.dir, f.name)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.trouble = nil
		h.c.pace.soon() // the next listing shows its new state
		return false
	case errors.Is(err, vfs.ErrNotRegular):
		h.c.lister.refuse(f.label, err.Error())
		return false
	case err != nil:
		h.fail(f, err)
		return false
	}
	h.add(f, handle)
	return true
}

// add gives f an open handle. If too many handles are open, it first closes the least recently used
// ones. It loses files for this only at open_files handles, not at a lower limit (see openLimit).
func (h *handles) add(f *file, handle vfs.File) {
	for len(h.open) >= h.c.limit.get() && h.closeOldest(len(h.open) >= h.c.o.OpenFiles) {
		continue
	}
	f.handle = handle
	h.open = append(h.open, f)
}

// closeOldest closes the least recently used handle and reports whether it closed one. If only its
// handle leads to a file, closing the handle loses the file. closeOldest closes such a handle only
// if lose is set. If files may grow, it closes other handles first.
func (h *handles) closeOldest(lose bool) bool {
	var oldest *file
	for _, f := range h.open {
		switch {
		case f == h.keep:
		case oldest == nil:
			oldest = f
		case f.byHandle() != oldest.byHandle() && (h.c.grows() || !lose):
			if oldest.byHandle() {
				oldest = f
			}
		case f.refreshedAt < oldest.refreshedAt:
			oldest = f
		}
	}
	if oldest == nil || oldest.byHandle() && !lose {
		return false // one more is open while two are compared
	}
	if oldest.state == finished && oldest.all((*cursor).isSealed) {
		h.c.watched.drop(oldest)
		return true
	}
	h.close(oldest)
	h.noteClosed(oldest)
	if oldest.byHandle() {
		h.c.lose(oldest, "too many files without a name are open; raise open_files")
	}
	return true
}

// noteClosed notes that a growing file is still followed, but has no open handle. Such a file may
// become dormant: it is then only listed until it changes.
func (h *handles) noteClosed(f *file) {
	if h.c.grows() && !f.closedForRoom {
		f.closedForRoom = true
		h.closedForRoom = append(h.closedForRoom, f)
	}
}

// openFewer closes the least recently used files until half of them (at least minOpen) are left,
// and lowers the limit to that number. It keeps files that only a handle leads to. It reports
// whether it has closed any.
func (h *handles) openFewer() bool {
	before := len(h.open)
	most := max(minOpen, before/2)
	for len(h.open) > most && h.closeOldest(false) {
		continue
	}
	if len(h.open) == before {
		return false
	}
	if h.c.limit.lower(most) {
		h.c.log.Warn("the process has too many files open; fewer are held open: raise its limit "+
			"(ulimit -n), or lower open_files",
			"open_files", h.c.o.OpenFiles, "used", most)
	}
	return true
}

// unfollow closes f and removes it from the table. e is the reason.
func (h *handles) unfollow(f *file, e event) {
	f.state = f.state.on(e)
	h.close(f)
	f.dropView()
	h.c.table.remove(f)
}

func (h *handles) close(f *file) {
	if f.handle == nil {
		return
	}
	if i := slices.Index(h.open, f); i >= 0 {
		h.open[i] = h.open[len(h.open)-1]
		h.open = h.open[:len(h.open)-1]
	}
	h.c.warnClose(f.label, f.close())
	for _, cur := range f.cursors {
		cur.note.suffix = nil
	}
}
