package follow

import (
	"errors"
	"io/fs"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// lookSpacing is how long a stat of a file's handle is good for, far from its end.
const lookSpacing = 5 * time.Millisecond

// look opens f, if need be, and stats it by its handle, unless what is known of it is good enough.
// false: not now.
func (r *Reader) look(f *file) bool {
	if f.handle == nil || f.view != nil || r.s.now()-f.looked >= lookSpacing {
		return r.lookNow(f)
	}
	if far := f.info.Size-f.cursor.Next > 2*r.target; !far && (r.grow == nil || f.entry == nil) {
		return r.lookNow(f)
	}
	r.uses++
	f.used = r.uses
	return true // its end is far off, or it grows, and what the listing saw of it is looked at again when it was read
}

// lookNow is look at the file as it is at this moment.
func (r *Reader) lookNow(f *file) bool {
	fresh := f.handle == nil
	if fresh && !r.openFile(f) {
		return false
	}
	now := r.s.now()
	seen, err := statHandle(f.handle, fresh)
	if err != nil {
		r.fail(f, err)
		return false
	}
	info := statOf(seen)
	f.looked = now
	if !sameFile(info, f.info) {
		r.closeFile(f) // the name was given to another file since the listing
		r.pace.soon()
		return false
	}
	f.saw(info, now)
	r.uses++
	f.used = r.uses
	if err := r.findView(f); err != nil {
		r.fail(f, err)
		return false
	}
	if err := f.attachView(); err != nil {
		r.fail(f, err)
		return false
	}
	return true
}

// statHandle returns what is known of an open file. One that was opened just now may know it
// already.
func statHandle(h vfs.File, fresh bool) (vfs.Info, error) {
	if o, ok := h.(vfs.OpenStater); ok && fresh {
		if info, ok := o.OpenInfo(); ok {
			return info, nil
		}
	}
	return h.Stat()
}

func (r *Reader) openFile(f *file) bool {
	var h vfs.File
	err := fs.ErrNotExist
	if f.dir != nil {
		h, err = vfs.OpenRegular(f.dir, f.name)
		if outOfDescriptors(err) && r.s.catalogue.openFewer(r) {
			h, err = vfs.OpenRegular(f.dir, f.name)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.pace.soon() // the next listing says what has become of it
		return false
	case errors.Is(err, vfs.ErrNotRegular):
		r.refuse(f.label, err.Error())
		return false
	case err != nil:
		r.fail(f, err)
		return false
	}
	r.makeRoom()
	f.handle = h
	r.open = append(r.open, f)
	return true
}

// makeRoom closes the handles that were used longest ago when too many are open; those by which
// alone a file is reached only when there are no others and open_files is reached.
func (r *Reader) makeRoom() {
	for len(r.open) >= r.s.open.get() && closeOldest(r, len(r.open) >= r.s.o.OpenFiles) {
		continue
	}
}

// closeOldest closes the handle that was used longest ago and reports whether there was one to be
// closed. A file that is reached by its handle alone is lost by that, and closed only if lose is
// set.
func closeOldest(r *Reader, lose bool) bool {
	var oldest *file
	for _, f := range r.open {
		switch {
		case f == r.rotated.asking:
		case oldest == nil:
			oldest = f
		case f.byHandle() != oldest.byHandle() && (r.grow != nil || !lose):
			if oldest.byHandle() {
				oldest = f
			}
		case f.used < oldest.used:
			oldest = f
		}
	}
	if oldest == nil || oldest.byHandle() && !lose {
		return false // one more is open while two are compared
	}
	if oldest.finished && oldest.sealed {
		r.unwatch(oldest)
		return true
	}
	r.closeFile(oldest)
	if r.grow != nil {
		r.shut = append(r.shut, oldest)
	}
	if oldest.byHandle() {
		r.lose(oldest, "too many files without a name are open; raise open_files")
	}
	return true
}

// byHandle says whether only its handle leads to the file.
func (f *file) byHandle() bool { return f.orphan && !f.beside || f.dir == nil }

func (r *Reader) closeFile(f *file) {
	if f.handle == nil {
		return
	}
	for i, o := range r.open {
		if o == f {
			r.open[i] = r.open[len(r.open)-1]
			r.open = r.open[:len(r.open)-1]
			break
		}
	}
	r.warnClose(f.label, f.close())
	if f.note != nil {
		f.note.suffix = nil
	}
}

// closeSealed closes a file that is sealed, unless only the handle leads to it.
func (r *Reader) closeSealed(f *file) {
	if f.dir != nil {
		r.closeFile(f)
	}
}

func (r *Reader) warnClose(label string, err error) {
	if err != nil {
		r.s.log.Warn("a file that was read could not be closed", "file", label, "error", err)
	}
}
