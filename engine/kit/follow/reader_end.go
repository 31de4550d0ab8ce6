package follow

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

func (r *Reader) hasReadAll() bool {
	for _, f := range r.c.table.byKey {
		if !r.isAtEnd(f) {
			return false
		}
	}
	return true
}

// isAtEnd reports whether a file, as last seen, has nothing more to read for the route.
func (r *Reader) isAtEnd(f *file) bool {
	cur, g := f.by(r), r.c.o.Growing
	switch {
	case cur != nil && cur.sealed, f.entry != nil && cur == nil:
		return true
	case g == nil, f.isUnlisted(), f.trouble != nil && f.trouble.broken.ok:
		return false
	case f.info.Size == 0:
		return true
	case cur == nil:
		return f.isEmpty()
	case (g.PartialWait > 0 || f.view != nil) && cur.partial():
		return false // the last record has no end yet, and will be handed out without one
	}
	return cur.isDrained()
}

// ended reports whether a reader has ended, and returns the result. If the routes have to stop
// (Catalogue.over), the result is the reason. Otherwise the reader has Once, and the result is
// io.EOF or an error about unread files.
func (r *Reader) ended() (bool, error) {
	c := r.c
	if c.over != nil {
		return true, c.over
	}
	var failed []*file
	young, now := 0, c.now()
	// a finished file that has grown is to be read to its end, too
	for _, f := range slices.AppendSeq(slices.Clone(c.watched.files), maps.Values(c.table.byKey)) {
		switch cur := f.by(r); {
		case r.isAtEnd(f):
		case cur != nil && cur.waitsForOriginal():
			return false, nil
		case f.trouble == nil:
			young++
		case f.trouble.failures.N < onceTries:
			return false, nil
		default:
			failed = append(failed, f)
		}
	}
	awaited := 0
	for w := range c.rotation.awaiting {
		if !w.isFolderMissing() {
			awaited++
		}
	}
	if young+awaited == 0 {
		r.finalWait = 0
	} else if r.finalWait == 0 {
		r.finalWait = now
	}
	most := max(finalWaitMin, finalWaitSettle*c.o.Settle)
	if awaited > 0 { // at least as long as these files await a successor
		most = max(most, c.o.Growing.CopyWait+lateMost+finalWaitMin)
	}
	if young+awaited > 0 && now-r.finalWait < most {
		return false, nil
	}
	if young+awaited > 0 {
		c.log.Warn("files are still being written; what was there of them is read, the rest is "+
			"left to the next run", "files", young+awaited)
	}
	if len(failed) > 0 {
		slices.SortFunc(failed, byLabel)
		return true, fmt.Errorf("%d files could not be read, the first is %q: %w; "+
			"repair them and run again", len(failed), failed[0].label, failed[0].trouble.last)
	}
	if label, err := c.rotation.unreadable(); err != nil {
		return true, fmt.Errorf("%q was renamed and could not be read under its new name: %w; "+
			"repair it and run again", label, err)
	}
	if err := r.unreadDeleted(); err != nil {
		return true, err
	}
	return true, io.EOF
}

// unreadDeleted returns an error if r ends before it has read all of the deleted and rewritten
// files.
func (r *Reader) unreadDeleted() error {
	var list []*file
	bytes := int64(0)
	add := func(f *file, left int64) {
		if left > 0 && !f.dataElsewhere && !f.isHeldElsewhere() && !f.isFolderMissing() {
			list, bytes = append(list, f), bytes+left
		}
	}
	for _, f := range r.c.table.byKey {
		if f.state == nameless && f.isDeleted() {
			add(f, r.leftOf(f))
		}
	}
	for w := range r.c.rotation.awaiting {
		switch cur := w.by(r); {
		case r.c.rotation.isInPlace(w):
			add(w, r.leftOf(w))
		case cur != nil:
			add(w, cur.missed())
		}
	}
	if len(list) == 0 {
		return nil
	}
	r.count("files_vanished", int64(len(list)))
	r.count("bytes_vanished", bytes)
	return fmt.Errorf("%d files were deleted or rewritten before they were read to their ends, "+
		"the first is %q; %d bytes are lost unless the next run finds copies",
		len(list), slices.MinFunc(list, byLabel).label, bytes)
}

// reportUndelivered reports the undelivered data of deleted files that are still open. The
// catalogue is about to close these files, so the next run cannot read them. reportUndelivered is
// called when the route has saved its progress for the last time.
func (r *Reader) reportUndelivered() {
	r.reportUnsaved()
	for _, f := range r.c.files() {
		if f.state != nameless || !f.isDeleted() || f.dataElsewhere || f.isHeldElsewhere() {
			continue
		}
		left, cur := r.leftOf(f), f.by(r)
		if cur != nil {
			m, _ := r.resume(cur.entry.text)
			left += readEnd{from: cur.skipTo, to: cur.pos.Next}.missing(m)
		}
		if left == 0 {
			continue
		}
		r.c.h.Fault(fmt.Errorf("file %q was deleted and is not delivered to its end, %d bytes are "+
			"lost unless the next start finds a copy", f.label, left))
		r.count("files_vanished", 1)
		r.count("bytes_vanished", left)
	}
}
